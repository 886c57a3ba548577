//! Giving memory that was freed back to the system.
//!
//! glibc keeps what is freed below the top of an arena, and that may be nearly all of what a burst took.
//!
//! The allocator stays glibc's, with one `malloc_trim` when a flood is over (`uringcore_limits::budget::flood`).
//! Measured with twenty clients whose uploads nobody reads, six seconds after they had gone; the other allocators
//! were preloaded, so Python used them too:
//!
//! | heap | MiB more at the peak | afterwards | an idle connection |
//! | --- | --- | --- | --- |
//! | glibc, nothing done | 270 | 285 | 29.5 KiB |
//! | glibc, `malloc_trim` when idle | 272 | 0 | 29.4 KiB |
//! | glibc, M_TRIM_THRESHOLD 128 KiB, one arena | 263 | 182 | 30.0 KiB |
//! | mimalloc 2.0 | 286 | 33 | 28.7 KiB |
//! | jemalloc 5.3, its own times | 279 | 221 | 27.3 KiB |
//!
//! A request cost 75 to 103 µs of processor time with each of them, which is the noise of a busy machine. mimalloc
//! took a tenth off a benchmark of sending. But a second heap beside Python's keeps free pages of its own, and a
//! wheel with another allocator has another dependency to upgrade.

use std::io;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::spawn::SignalMask;

/// Gives back the free pages of all arenas, on a thread of its own that ends with that. Does nothing while another
/// is at it. Fails if there can be no thread.
///
/// That takes 75 to 150 ms for each gigabyte. The arena of the calling thread is locked for most of the time: the
/// thread goes on with what it has in its cache of small blocks, and waits with larger ones.
pub fn trim_apart() -> io::Result<()> {
    // By process: a forked child has no such thread.
    static AT_WORK: AtomicU32 = AtomicU32::new(0);
    let here = process::id();
    if AT_WORK.swap(here, Ordering::Relaxed) == here {
        return Ok(());
    }
    // The thread inherits the mask: signals are for threads that run Python. It runs none, so the interpreter's end
    // need not wait for it.
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
