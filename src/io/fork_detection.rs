//! Detects, without a system call, that this process is a forked child.
//!
//! A ring, an epoll set and an eventfd are shared with the parent after `fork`; submissions and deregistrations of
//! a child would act on the parent's. One page marked `MADV_WIPEONFORK` holds the process id; the kernel gives the
//! child a zeroed page, so a single load detects a fork.
//!
//! State of a forked child that runs its parent's loop:
//!
//! - The loop is suspended before a fork through `os.fork`. Waiting operations are armed in the child as well, on a
//!   ring that its first `enter` sets up, or in a new epoll set (`uring/forked_child`).
//! - Operations that the parent's kernel may be carrying out at the fork (a file operation; all of them after a
//!   fork that Python does not see) end with ECANCELED in the child.
//! - Bytes that transports have queued, and bytes and datagrams that were received and not delivered, are in both
//!   processes, as with asyncio. If both processes run the loop, queued bytes are sent twice; the process that must not
//!   send them calls `abort()`. If another thread forks, the loop cannot be suspended: then sends of the child fail, so
//!   that no byte is sent twice.
//! - Listening and datagram sockets are shared from then on: neither process receives or accepts ahead of its
//!   program (`Engine::share_sockets`). Connections that were accepted and not delivered stay with the parent. QUIC
//!   endpoints stay with the parent too: two processes with the same keys would repeat nonces.
//! - Values that a process has once for all its loops (places for open files, the list of memory budgets, a
//!   thread of `background_files`) are created again in the child (`per_process`). A memory budget stays with the endpoints
//!   that were made with it; endpoints made by the child share a new one.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory_mapping::Mapping;

/// The process in which a driver was created.
#[derive(Copy, Clone, Debug)]
pub(crate) struct OwnerProcess {
    page: &'static AtomicU32,
    pid: u32,
}

impl OwnerProcess {
    pub(crate) fn current() -> io::Result<OwnerProcess> {
        static PAGE: OnceLock<&'static AtomicU32> = OnceLock::new();
        let page = match PAGE.get() {
            Some(page) => page,
            // Two threads may do this at once; the second one's page is leaked.
            None => {
                let made = wiped_page()?;
                PAGE.get_or_init(|| made)
            }
        };
        let pid = std::process::id();
        // Several threads may store here, all of them an equal value.
        page.store(pid, Ordering::Relaxed);
        Ok(OwnerProcess { page, pid })
    }

    /// False in a forked child.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.page.load(Ordering::Relaxed) == self.pid
    }
}

fn wiped_page() -> io::Result<&'static AtomicU32> {
    let mapping = Mapping::new(4096)?;
    mapping.wipe_on_fork()?;
    let pointer = mapping.leak().cast::<AtomicU32>();
    // SAFETY: the mapping is zeroed, page-aligned, at least four bytes long and leaked, so it is a
    // valid AtomicU32 for the rest of the process.
    Ok(unsafe { &*pointer })
}
