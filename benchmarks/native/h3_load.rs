//! HTTP/3 load: N connections, M requests in flight on each, every status and body checked.
//!
//! quinn and the h3 crate on one thread. Prints requests, seconds, latency percentiles and the
//! server's processor time within the window.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use http::Request;

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::report::Report;
use uringcore_bench::{Failure, cpu, exit_with, quic};

/// What every server of the case answers.
const BODY: &[u8] = b"Hello, world!";
/// RFC 9114 section 8.1.
const H3_NO_ERROR: quinn::VarInt = quinn::VarInt::from_u32(0x100);
const STALL: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    exit_with("h3_load", start())
}

fn start() -> Result<(), Failure> {
    let runtime = quic::runtime()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, run())
}

/// What the requesting tasks share.
#[derive(Default)]
struct Shared {
    ended: Cell<bool>,
    requests: Cell<u64>,
    latencies: RefCell<Latencies>,
}

async fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let address: SocketAddr = args.required("addr")?;
    let server: u32 = args.required("pid")?;
    let connections: usize = args.required("connections")?;
    let streams: usize = args.required("streams")?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    let endpoint = quic::client(&args, b"h3")?;
    let shared = Rc::new(Shared::default());
    let uri: http::Uri = format!("https://{}:{}/", quic::SERVER_NAME, address.port()).parse()?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let connection = quic::connect(&endpoint, address).await?;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
        // The driver lives as long as the connection; a failure shows in the requests.
        tokio::task::spawn_local(async move { driver.wait_idle().await });
        for _ in 0..streams {
            tasks.spawn_local(ask(requests.clone(), uri.clone(), shared.clone()));
        }
    }

    watch(&mut tasks, warmup).await?;
    shared.latencies.replace(Latencies::with_capacity(1 << 18));
    let before = shared.requests.get();
    let cpu_before = cpu::cpu_ns(server)?;
    let begin = Instant::now();
    watch(&mut tasks, window).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let requests = shared.requests.get() - before;
    let cpu_ns = cpu::cpu_ns(server)? - cpu_before;

    shared.ended.set(true);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    // An orderly end: a server must not be measured waiting for clients that vanished.
    endpoint.close(H3_NO_ERROR, b"done");
    endpoint.wait_idle().await;
    let mut latencies = shared.latencies.replace(Latencies::default());
    Report::default()
        .field("requests", requests as f64)
        .field("seconds", seconds)
        .field("bytes", requests as f64 * BODY.len() as f64)
        .field("server_cpu_ns", cpu_ns as f64)
        .field("server_rss_bytes", cpu::resident_bytes(server)? as f64)
        .field("p50_us", latencies.percentile_us(50.0))
        .field("p99_us", latencies.percentile_us(99.0))
        .print();
    Ok(())
}

/// Lets the tasks run for `time`; a task that ends within it has failed.
async fn watch(
    tasks: &mut tokio::task::JoinSet<Result<(), Failure>>,
    time: Duration,
) -> Result<(), Failure> {
    match tokio::time::timeout(time, tasks.join_next()).await {
        Err(_) => Ok(()),
        Ok(Some(ended)) => {
            ended??;
            Err("a task ended before its time".into())
        }
        Ok(None) => Err("no tasks".into()),
    }
}

async fn ask(
    mut requests: SendRequest<OpenStreams, Bytes>,
    uri: http::Uri,
    shared: Rc<Shared>,
) -> Result<(), Failure> {
    while !shared.ended.get() {
        let begin = Instant::now();
        let request = Request::get(uri.clone()).body(())?;
        tokio::time::timeout(STALL, fetch(&mut requests, request))
            .await
            .map_err(|_| format!("no response for {STALL:?}"))??;
        shared.requests.set(shared.requests.get() + 1);
        shared.latencies.borrow_mut().add(begin.elapsed());
    }
    Ok(())
}

async fn fetch(
    requests: &mut SendRequest<OpenStreams, Bytes>,
    request: Request<()>,
) -> Result<(), Failure> {
    let mut stream = requests.send_request(request).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("status {}", response.status()).into());
    }
    let mut body = Vec::with_capacity(BODY.len());
    while let Some(mut piece) = stream.recv_data().await? {
        while piece.has_remaining() {
            let chunk = piece.chunk();
            body.extend_from_slice(chunk);
            let length = chunk.len();
            piece.advance(length);
        }
    }
    if body != BODY {
        return Err(format!("the body is {:?}", String::from_utf8_lossy(&body)).into());
    }
    Ok(())
}
