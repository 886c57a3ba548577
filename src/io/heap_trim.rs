//! Returns freed memory to the system.
//!
//! glibc keeps memory that is freed below the top of an arena, and that may be nearly all memory of a burst.
//!
//! The allocator stays glibc's, with one `malloc_trim` after a flood (`uringcore_limits::memory_budget::flood_recovery`).
//! Measured with twenty clients whose uploads are not read, six seconds after they had gone; the other
//! allocators were preloaded, so Python used them too:
//!
//! | heap | MiB more at the peak | afterwards | an idle connection |
//! | --- | --- | --- | --- |
//! | glibc, unchanged | 270 | 285 | 29.5 KiB |
//! | glibc, `malloc_trim` when idle | 272 | 0 | 29.4 KiB |
//! | glibc, M_TRIM_THRESHOLD 128 KiB, one arena | 263 | 182 | 30.0 KiB |
//! | mimalloc 2.0 | 286 | 33 | 28.7 KiB |
//! | jemalloc 5.3, its default times | 279 | 221 | 27.3 KiB |
//!
//! A request cost 75 to 103 µs of processor time with each of them; the differences are noise of a busy
//! machine. mimalloc reduced the time of a sending benchmark by a tenth. But a second heap beside Python's
//! keeps free pages of its own, and a wheel with another allocator has another dependency to upgrade.

use std::io;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::spawn::SignalMask;

/// Returns the free pages of all arenas to the system, on a temporary thread. Does nothing while another such
/// thread runs. Fails if the thread cannot be created.
///
/// It takes 75 to 150 ms for each gigabyte. The calling thread's arena is locked for most of that time: the thread
/// can use its cache of small blocks, and waits for larger ones.
pub fn trim_on_thread() -> io::Result<()> {
    // Compared by process: a forked child has no such thread.
    static AT_WORK: AtomicU32 = AtomicU32::new(0);
    let here = process::id();
    if AT_WORK.swap(here, Ordering::Relaxed) == here {
        return Ok(());
    }
    // The thread inherits the mask: signals are for threads that run Python. This one does not, so the interpreter
    // need not wait for it at exit.
    let before = SignalMask::block_all();
    let started = thread::Builder::new()
        .name("uringcore-trim".into())
        .spawn(|| {
            trim();
            AT_WORK.store(0, Ordering::Relaxed);
        });
    before.restore();
    if let Err(error) = started {
        AT_WORK.store(0, Ordering::Relaxed);
        return Err(error);
    }
    Ok(())
}

/// Does nothing with another C library.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` touches only memory that is free, under glibc's own locks (malloc_trim(3): MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
