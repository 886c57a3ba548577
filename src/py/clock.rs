//! asyncio's clock, `time.monotonic()`, without the call into Python.

/// Seconds of `CLOCK_MONOTONIC`.
pub fn monotonic() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// One tick of that clock: a timer due within it runs now, as in asyncio.
pub const RESOLUTION: f64 = 1e-9;
