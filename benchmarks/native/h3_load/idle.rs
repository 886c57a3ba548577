//! Connections that have made one request each and are idle since: their cost in the server's
//! memory.
//!
//! A sample is the difference in the server's private pages between no connection and all of them.
//! A few connections open and close first, so that one-time allocations are not counted. Pages that
//! an allocator keeps without need do count: no other process can use them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::Connection;
use tokio::task::JoinSet;

use uringcore_bench::args::Args;
use uringcore_bench::report::Report;
use uringcore_bench::{Failure, cpu, process_memory, quinn_setup};

use crate::requests::HELLO;
use crate::target::{Ask, Requests, Target, close};

const FIRST: usize = 8;
/// Handshakes in progress at once.
const OPENING: usize = 16;
/// At the end, one connection of this many gets another request.
const PROBED: usize = 100;
/// Keeps every connection below the server's idle time-out while others are opened.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_millis(500);

type Opened = (Connection, Requests);

pub async fn run(args: &Args) -> Result<Report, Failure> {
    let count: usize = args.required("connections")?;
    let mut transport = quinn_setup::transport();
    transport.keep_alive_interval(Some(PING_INTERVAL));
    let target = Rc::new(Target::new(args, transport)?);
    let ask = Rc::new(Ask {
        uri: target.uri("/")?,
        content: Bytes::new(),
        answer: Bytes::from_static(HELLO),
    });

    for (connection, _) in open(&target, &ask, FIRST).await? {
        close(&connection);
    }
    tokio::time::sleep(SETTLE).await;
    let before = process_memory::private_bytes(target.pid)?;
    let cpu_before = cpu::cpu_ns(target.pid)?;
    let begin = Instant::now();
    let mut opened = open(&target, &ask, count).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ns = cpu::cpu_ns(target.pid)? - cpu_before;
    tokio::time::sleep(SETTLE).await;
    let private = process_memory::private_bytes(target.pid)?.saturating_sub(before);

    for (number, (connection, requests)) in opened.iter_mut().enumerate() {
        if let Some(reason) = connection.close_reason() {
            return Err(format!("idle connection {number} of {count} is gone: {reason}").into());
        }
        if number % PROBED == 0 {
            ask.exchange(requests).await?;
        }
    }
    drop(opened);
    Rc::into_inner(target)
        .ok_or("a task still opens connections")?
        .close()
        .await;
    Ok(Report::default()
        .field("requests", count as f64)
        .field("seconds", seconds)
        .field("private_bytes", private as f64)
        .field("server_cpu_ns", cpu_ns as f64))
}

/// Opens `count` connections, each of which has received one response.
async fn open(target: &Rc<Target>, ask: &Rc<Ask>, count: usize) -> Result<Vec<Opened>, Failure> {
    let left = Rc::new(Cell::new(count));
    let mut tasks = JoinSet::new();
    for _ in 0..OPENING.min(count) {
        tasks.spawn_local(open_some(target.clone(), ask.clone(), left.clone()));
    }
    let mut opened = Vec::with_capacity(count);
    while let Some(some) = tasks.join_next().await {
        opened.extend(some??);
    }
    Ok(opened)
}

async fn open_some(
    target: Rc<Target>,
    ask: Rc<Ask>,
    left: Rc<Cell<usize>>,
) -> Result<Vec<Opened>, Failure> {
    let mut opened = Vec::new();
    while left.get() > 0 {
        left.set(left.get() - 1);
        let (connection, mut requests) = target.connect().await?;
        ask.exchange(&mut requests).await?;
        opened.push((connection, requests));
    }
    Ok(opened)
}
