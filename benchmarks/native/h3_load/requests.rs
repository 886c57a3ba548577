//! N connections with M requests in flight on each, for a window. Reports requests, latency
//! percentiles and the server's processor time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::report::Report;
use uringcore_bench::{Failure, cpu, pattern, process_memory};

use crate::target::{Ask, Requests, Target};

/// The response to `GET /`.
pub const HELLO: &[u8] = b"Hello, world!";

/// State shared by the requesting tasks.
#[derive(Default)]
struct Shared {
    ended: Cell<bool>,
    requests: Cell<u64>,
    latencies: RefCell<Latencies>,
}

pub async fn run(args: &Args, target: Target) -> Result<Report, Failure> {
    let connections: usize = args.required("connections")?;
    let streams: usize = args.required("streams")?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    // A server of several processes lists all of them.
    let pids: String = args.or("processes", target.pid.to_string())?;
    let pids = pids
        .split(',')
        .map(str::parse)
        .collect::<Result<Vec<u32>, _>>()?;

    let ask = Rc::new(ask(args, &target)?);
    let shared = Rc::new(Shared::default());
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (_, requests) = target.connect().await?;
        for _ in 0..streams {
            tasks.spawn_local(keep_asking(requests.clone(), ask.clone(), shared.clone()));
        }
    }

    watch(&mut tasks, warmup).await?;
    shared.latencies.replace(Latencies::with_capacity(1 << 18));
    let before = shared.requests.get();
    let cpu_before = cpu_of_all(&pids)?;
    let begin = Instant::now();
    watch(&mut tasks, window).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let requests = shared.requests.get() - before;
    let cpu_ns = cpu_of_all(&pids)? - cpu_before;
    let resident = process_memory::resident_bytes(target.pid)?;

    shared.ended.set(true);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    target.close().await;
    let mut latencies = shared.latencies.replace(Latencies::default());
    let bytes = ask.content.len() + ask.answer.len();
    Ok(Report::default()
        .field("requests", requests as f64)
        .field("seconds", seconds)
        .field("bytes", requests as f64 * bytes as f64)
        .field("server_cpu_ns", cpu_ns as f64)
        .field("server_rss_bytes", resident as f64)
        .field("p50_us", latencies.percentile_us(50.0))
        .field("p99_us", latencies.percentile_us(99.0)))
}

fn cpu_of_all(pids: &[u32]) -> Result<u64, Failure> {
    pids.iter().map(|pid| cpu::cpu_ns(*pid)).sum()
}

/// `--path` returns `--size` bytes of the pattern, or the hello; with `--upload` it accepts that
/// many bytes and returns their count.
fn ask(args: &Args, target: &Target) -> Result<Ask, Failure> {
    let upload: usize = args.or("upload", 0)?;
    let answer = match args.optional("size")? {
        _ if upload > 0 => Bytes::from((upload as u64).to_be_bytes().to_vec()),
        Some(size) => pattern::repeated(size),
        None => Bytes::from_static(HELLO),
    };
    Ok(Ask {
        uri: target.uri(&args.or("path", "/".to_owned())?)?,
        content: pattern::repeated(upload),
        answer,
    })
}

/// Runs the tasks for `time`; a task that ends earlier has failed.
async fn watch(tasks: &mut JoinSet<Result<(), Failure>>, time: Duration) -> Result<(), Failure> {
    match tokio::time::timeout(time, tasks.join_next()).await {
        Err(_) => Ok(()),
        Ok(Some(ended)) => {
            ended??;
            Err("a task ended before its time".into())
        }
        Ok(None) => Err("no tasks".into()),
    }
}

async fn keep_asking(
    mut requests: Requests,
    ask: Rc<Ask>,
    shared: Rc<Shared>,
) -> Result<(), Failure> {
    while !shared.ended.get() {
        let begin = Instant::now();
        ask.exchange(&mut requests).await?;
        shared.requests.set(shared.requests.get() + 1);
        shared.latencies.borrow_mut().add(begin.elapsed());
    }
    Ok(())
}
