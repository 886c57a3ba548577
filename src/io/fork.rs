//! Noticing, without a system call, that this process is a forked child.
//!
//! A ring, an epoll set and an eventfd are shared with the parent after `fork`; a child that
//! submits or deregisters would do so in the parent's name. One page marked `MADV_WIPEONFORK` holds
//! the process id; the kernel hands the child a zeroed page, so a single load tells.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::Mapping;

/// The process in which a driver was born.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Birthplace {
    page: &'static AtomicU32,
    pid: u32,
}

impl Birthplace {
    pub(crate) fn here() -> io::Result<Birthplace> {
        static PAGE: OnceLock<&'static AtomicU32> = OnceLock::new();
        let page = match PAGE.get() {
            Some(page) => page,
            // Two threads may come here at once; the second one's page is given up.
            None => {
                let made = wiped_page()?;
                PAGE.get_or_init(|| made)
            }
        };
        let pid = std::process::id();
        // Several threads may store, all of them the same value.
        page.store(pid, Ordering::Relaxed);
        Ok(Birthplace { page, pid })
    }

    /// False in a forked child.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
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
