//! Detects without a system call that this process is a forked child.
//!
//! After `fork` the child shares the ring, the epoll set and the eventfd with its parent, so its submissions and
//! deregistrations would change the parent's state. One page that is marked `MADV_WIPEONFORK` holds the process ID.
//! The kernel gives the child a zeroed page, so reading one word detects a fork.
//!
//! State of a forked child that runs its parent's loop:
//!
//! - `os.fork` suspends the loop before the fork. The child arms waiting operations too, on a ring that its first
//!   `enter` sets up, or in a new epoll set (`uring/forked_child`).
//! - An operation that the kernel may be executing for the parent ends with ECANCELED in the child. After a
//!   suspension that is at most a file operation; if a fork bypasses `os.fork`, it is every operation.
//! - Bytes that transports have queued, and received data that was not delivered, are in both processes, as with
//!   asyncio. If both processes run the loop, queued bytes are sent twice; the process that must not send them calls
//!   `abort()`. A fork by another thread cannot suspend the loop: then the child's sends fail, so no byte is sent
//!   twice.
//! - Listening and datagram sockets are shared after the fork. So neither process accepts or receives before its
//!   program asks for it (`Engine::share_sockets`). Connections that were accepted and not delivered stay with the
//!   parent. QUIC endpoints stay with the parent too, because two processes with the same keys would repeat nonces.
//! - Values that exist once in a process (places for open files, the list of memory budgets, a thread of
//!   `background_log_files`) are created again in the child (`per_process_global`). Endpoints that the parent made keep their
//!   memory budget; endpoints that the child makes share a new one.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory_mapping::Mapping;

/// The process that created an object.
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
            // Two threads may map a page at the same time. The page of the thread that comes second is leaked.
            None => {
                let made = wiped_page()?;
                PAGE.get_or_init(|| made)
            }
        };
        let pid = std::process::id();
        // All threads that store here store the same value.
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
