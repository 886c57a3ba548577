//! HTTP/1.1 and HTTP/2 load over TCP without TLS: connections with a number of requests in flight
//! on each, or connections that are idle after one request. Every status and every byte is checked.
//!
//! One thread with mio; a request costs it the kernel's share, a parse of the head and a memcmp, so
//! the server on the other core is the limit. `applications/__init__.py` describes the responses.

#[path = "http_load/exchange.rs"]
mod exchange;
#[path = "http_load/hpack.rs"]
mod hpack;
#[path = "http_load/http1.rs"]
mod http1;
#[path = "http_load/http2.rs"]
mod http2;
#[path = "http_load/load.rs"]
mod load;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::report::Report;
use uringcore_bench::server_processes::ServerProcesses;
use uringcore_bench::{Failure, exit_with, idle_memory, process_memory};

use exchange::Exchange;
use load::{Load, Protocol};

/// At the end, one idle connection of this many gets another request.
const PROBED: usize = 100;

fn main() -> ExitCode {
    exit_with("http_load", run())
}

fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let version: u8 = args.required("http")?;
    match version {
        1 => run_mode::<http1::Connection>(&args),
        2 => run_mode::<http2::Connection>(&args),
        other => Err(format!("--http: {other} is neither 1 nor 2").into()),
    }
}

fn run_mode<P: Protocol>(args: &Args) -> Result<(), Failure> {
    let mode: String = args.or("mode", "requests".to_owned())?;
    let report = match mode.as_str() {
        "requests" => requests::<P>(args)?,
        "idle" => idle::<P>(args)?,
        other => return Err(format!("--mode: {other:?} is neither requests nor idle").into()),
    };
    report.print();
    Ok(())
}

fn requests<P: Protocol>(args: &Args) -> Result<Report, Failure> {
    let servers = ServerProcesses::of(args)?;
    let exchange = Exchange::new(args)?;
    let connections: usize = args.required("connections")?;
    let streams: usize = args.or("streams", 1)?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    let mut load = Load::<P>::new(&exchange, streams)?;
    load.open(connections)?;
    load.run_for(warmup)?;
    load.latencies = Latencies::with_capacity(1 << 20);
    let cpu_before = servers.cpu_ns()?;
    let begin = Instant::now();
    let requests = load.run_for(window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ns = servers.cpu_ns()? - cpu_before;
    let resident = servers.sum(process_memory::resident_bytes)?;
    load.drain()?;
    Ok(Report::default()
        .field("requests", requests as f64)
        .field("seconds", seconds)
        .field("bytes", requests as f64 * exchange.bytes() as f64)
        .field("server_cpu_ns", cpu_ns as f64)
        .field("server_rss_bytes", resident as f64)
        .field("p50_us", load.latencies.percentile_us(50.0))
        .field("p99_us", load.latencies.percentile_us(99.0)))
}

fn idle<P: Protocol>(args: &Args) -> Result<Report, Failure> {
    let exchange = Exchange::new(args)?;
    let open = |count: usize| {
        let mut load = Load::<P>::new(&exchange, 1)?;
        load.open_and_ask(count)?;
        Ok(load)
    };
    idle_memory::measure(args, open, |load| load.once(PROBED))
}
