//! Processor time of another process, read where the measured window begins and ends.

use std::fs;

use crate::Failure;

/// The processor nanoseconds that all living threads of `pid` have used.
///
/// `schedstat` counts nanoseconds; `/proc/<pid>/stat` counts clock ticks of 10 ms, too coarse for a
/// window of a second. The figure is brought up to date at each timer tick, an error of at most 4 ms a
/// thread and reading.
pub fn cpu_ns(pid: u32) -> Result<u64, Failure> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| format!("the server (pid {pid}) is gone: {error}"))?;
    let mut total = 0;
    for task in tasks {
        // A thread may end between the listing and the read; its time is lost from both readings.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let first = text
            .split_whitespace()
            .next()
            .ok_or("an empty schedstat: the kernel lacks CONFIG_SCHED_INFO")?;
        total += first.parse::<u64>()?;
    }
    Ok(total)
}
