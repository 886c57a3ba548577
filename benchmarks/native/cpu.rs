//! Processor time of another process, read at the start and at the end of the measured window.

use std::fs;

use crate::Failure;

/// Returns the processor time of all living threads of `pid`, in nanoseconds.
///
/// `schedstat` counts nanoseconds; `/proc/<pid>/stat` counts clock ticks of 10 ms, too coarse for a
/// window of a second. The kernel updates the figure at each timer tick, which gives an error of at
/// most 4 ms for each thread and reading.
pub fn cpu_ns(pid: u32) -> Result<u64, Failure> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| format!("the server (pid {pid}) is gone: {error}"))?;
    let mut total = 0;
    for task in tasks {
        // A thread may end between the listing and the read; both readings lack its time.
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
