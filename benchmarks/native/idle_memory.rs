//! The memory of the server for each connection that is idle after one request.

use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::report::Report;
use crate::server_processes::ServerProcesses;
use crate::{Failure, process_memory};

/// Connections that open and close before the measurement, for one-time allocations.
const FIRST: usize = 8;
const SETTLE: Duration = Duration::from_millis(500);

/// Measures `--connections` connections. `open` opens a number of them with one request each; `probe` makes further
/// requests on some at the end, so that a connection that the server has closed is a failure.
pub fn measure<C>(
    args: &Args,
    open: impl Fn(usize) -> Result<C, Failure>,
    probe: impl FnOnce(&mut C) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let servers = ServerProcesses::of(args)?;
    let connections: usize = args.required("connections")?;
    drop(open(FIRST)?);
    thread::sleep(SETTLE);
    let before = servers.sum(process_memory::private_bytes)?;
    let cpu_before = servers.cpu_ns()?;
    let begin = Instant::now();
    let mut opened = open(connections)?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ns = servers.cpu_ns()? - cpu_before;
    thread::sleep(SETTLE);
    let private = servers
        .sum(process_memory::private_bytes)?
        .saturating_sub(before);
    probe(&mut opened)?;
    Ok(Report::default()
        .field("requests", connections as f64)
        .field("seconds", seconds)
        .field("private_bytes", private as f64)
        .field("server_cpu_ns", cpu_ns as f64))
}
