//! Returns freed memory to the system.
//!
//! glibc returns memory only from the top of an arena. Memory that was freed below it, which may be nearly all memory
//! of a burst, stays with the process.
//!
//! So `malloc_trim` is called once after a flood of data from clients
//! (`uringcore_limits::memory_budget::flood_end_detection`). Other allocators were measured and rejected. In the
//! measurement twenty clients send uploads that nobody reads; "afterwards" is six seconds after they have closed. The
//! other allocators were preloaded, so Python used them too:
//!
//! | heap | MiB more at the peak | afterwards | an idle connection |
//! | --- | --- | --- | --- |
//! | glibc, unchanged | 270 | 285 | 29.5 KiB |
//! | glibc, `malloc_trim` when idle | 272 | 0 | 29.4 KiB |
//! | glibc, M_TRIM_THRESHOLD 128 KiB, one arena | 263 | 182 | 30.0 KiB |
//! | mimalloc 2.0 | 286 | 33 | 28.7 KiB |
//! | jemalloc 5.3, its default times | 279 | 221 | 27.3 KiB |
//!
//! With each allocator a request cost 75 to 103 µs of processor time; the differences are noise. mimalloc reduced the
//! time of a sending benchmark by a tenth. But Python keeps glibc's heap, so a second heap in the process has free
//! pages of its own, and the wheel has one more dependency to upgrade.

use std::io;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::process_spawn::SignalMask;

/// Returns the free pages of all arenas to the system, on a temporary thread. Does nothing while such a thread runs.
/// Fails if the thread cannot be created.
///
/// This takes 75 to 150 ms for each gigabyte. glibc locks an arena while it is trimmed, so allocations of large blocks
/// on the calling thread wait for most of that time. Small blocks come from the thread's cache without waiting.
pub fn trim_on_thread() -> io::Result<()> {
    // The value is the process that runs such a thread, because a forked child inherits the value and not the thread.
    static AT_WORK: AtomicU32 = AtomicU32::new(0);
    let here = process::id();
    if AT_WORK.swap(here, Ordering::Relaxed) == here {
        return Ok(());
    }
    // The thread inherits this mask. Signals must arrive at threads that run Python, and this thread does not. So the
    // interpreter need not wait for this thread at exit either.
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

/// Calls glibc's `malloc_trim`. Does nothing with another C library.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` touches only memory that is free, under glibc's own locks (malloc_trim(3): MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
