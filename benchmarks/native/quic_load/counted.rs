//! Loads that are counted and not streamed: handshakes, round trips on a stream, echoed DATAGRAMs,
//! short streams, WebTransport sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Endpoint, VarInt};
use tokio::sync::Notify;

use uringcore_bench::carrier::{Carrier, WebTransport};
use uringcore_bench::latency::Latencies;
use uringcore_bench::report::Report;
use uringcore_bench::{Failure, cpu, process_memory, quinn_setup};

const PING_BYTES: usize = 100;
const DATAGRAM_BYTES: usize = 1000;
/// DATAGRAMs sent whose echo is outstanding. If nothing arrives for `LOST`, the outstanding ones
/// count as lost.
const DATAGRAMS: u64 = 256;
const LOST: Duration = Duration::from_millis(20);
const STALL: Duration = Duration::from_secs(20);

pub struct Load<'a> {
    endpoint: &'a Endpoint,
    address: SocketAddr,
    carrier: Carrier,
    http: Option<Arc<WebTransport>>,
    server: u32,
    /// Handshakes, short streams or sessions in progress at once.
    concurrent: usize,
}

#[derive(Default)]
struct Counted {
    requests: u64,
    bytes: u64,
    latencies: Latencies,
}

/// Repeats one operation, with a fixed number in progress.
async fn under_way<W>(
    concurrent: usize,
    time: Duration,
    work: impl Fn() -> W + Clone + Send + 'static,
) -> Result<Counted, Failure>
where
    W: Future<Output = Result<(), Failure>> + Send,
{
    let end = Instant::now() + time;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..concurrent {
        let work = work.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < end {
                let begin = Instant::now();
                tokio::time::timeout(STALL, work()).await??;
                latencies.push(begin.elapsed());
            }
            Ok::<_, Failure>(latencies)
        });
    }
    let mut counted = Counted::default();
    while let Some(done) = tasks.join_next().await {
        for latency in done?? {
            counted.requests += 1;
            counted.latencies.add(latency);
        }
    }
    Ok(counted)
}

/// A full handshake, followed by a close.
async fn handshake(endpoint: Endpoint, address: SocketAddr) -> Result<(), Failure> {
    let connection = quinn_setup::connect(&endpoint, address).await?;
    connection.close(VarInt::from_u32(0), b"");
    Ok(())
}

/// Echoes one message on a stream of its own.
async fn echo(carrier: Carrier) -> Result<(), Failure> {
    let (mut send, mut receive) = carrier.open_bi().await?;
    let mut message = vec![b'E'];
    message.extend_from_slice(&[7; PING_BYTES]);
    send.write_all(&message).await?;
    send.finish()?;
    if receive.read_to_end(PING_BYTES).await? != message[1..] {
        return Err("a wrong byte came back".into());
    }
    Ok(())
}

/// Opens and closes one session.
async fn session(http: Arc<WebTransport>) -> Result<(), Failure> {
    http.session().await?.close().await
}

impl<'a> Load<'a> {
    pub fn new(
        endpoint: &'a Endpoint,
        address: SocketAddr,
        carrier: Carrier,
        http: Option<Arc<WebTransport>>,
        server: u32,
        concurrent: usize,
    ) -> Self {
        Self {
            endpoint,
            address,
            carrier,
            http,
            server,
            concurrent,
        }
    }

    /// Warms up, measures and reports.
    pub async fn run(&self, mode: &str, warmup: Duration, window: Duration) -> Result<(), Failure> {
        self.count(mode, warmup).await?;
        let (cpu_before, begin) = (cpu::cpu_ns(self.server)?, Instant::now());
        let mut counted = self.count(mode, window).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_ns = cpu::cpu_ns(self.server)? - cpu_before;
        self.carrier.close();
        self.endpoint.wait_idle().await;
        if counted.requests == 0 {
            return Err(format!("--mode {mode}: nothing came back").into());
        }
        Report::default()
            .field("requests", counted.requests as f64)
            .field("seconds", seconds)
            .field("bytes", counted.bytes as f64)
            .field("server_cpu_ns", cpu_ns as f64)
            .field(
                "server_rss_bytes",
                process_memory::resident_bytes(self.server)? as f64,
            )
            .field("p50_us", counted.latencies.percentile_us(50.0))
            .field("p99_us", counted.latencies.percentile_us(99.0))
            .print();
        Ok(())
    }

    async fn count(&self, mode: &str, time: Duration) -> Result<Counted, Failure> {
        match mode {
            "handshake" => {
                let (endpoint, address) = (self.endpoint.clone(), self.address);
                under_way(self.concurrent, time, move || {
                    handshake(endpoint.clone(), address)
                })
                .await
            }
            "ping" => self.pings(time).await,
            "datagram" => self.datagrams(time).await,
            "stream" => {
                let carrier = self.carrier.clone();
                under_way(self.concurrent, time, move || echo(carrier.clone())).await
            }
            "session" => {
                let http = self.http.clone();
                let http = http.ok_or("--mode session: needs --webtransport")?;
                under_way(self.concurrent, time, move || session(http.clone())).await
            }
            _ => Err(format!("--mode: {mode:?} is none").into()),
        }
    }

    /// One message in flight on one stream.
    async fn pings(&self, time: Duration) -> Result<Counted, Failure> {
        let end = Instant::now() + time;
        let (mut send, mut receive) = self.carrier.open_bi().await?;
        send.write_all(b"E").await?;
        let (sent, mut received) = ([7; PING_BYTES], [0; PING_BYTES]);
        let mut counted = Counted::default();
        while Instant::now() < end {
            let begin = Instant::now();
            send.write_all(&sent).await?;
            tokio::time::timeout(STALL, receive.read_exact(&mut received)).await??;
            if received != sent {
                return Err("a wrong byte came back".into());
            }
            counted.latencies.add(begin.elapsed());
            counted.requests += 1;
            counted.bytes += PING_BYTES as u64;
        }
        send.finish()?;
        tokio::time::timeout(STALL, receive.read_to_end(0)).await??;
        Ok(counted)
    }

    /// Counts echoed DATAGRAMs, with a bounded number in flight.
    async fn datagrams(&self, time: Duration) -> Result<Counted, Failure> {
        let end = Instant::now() + time;
        let data = Bytes::from(vec![7; DATAGRAM_BYTES]);
        let back = Arc::new((AtomicU64::new(0), Notify::new()));
        let reader = tokio::spawn({
            let (carrier, back) = (self.carrier.clone(), back.clone());
            async move {
                while let Ok(data) = carrier.read_datagram().await {
                    if data.len() == DATAGRAM_BYTES {
                        back.0.fetch_add(1, Ordering::Relaxed);
                        back.1.notify_one();
                    }
                }
            }
        });
        let (mut sent, mut given_up) = (0, 0);
        while Instant::now() < end {
            let under_way = sent - given_up - back.0.load(Ordering::Relaxed).min(sent - given_up);
            if under_way < DATAGRAMS {
                self.carrier.send_datagram(&data).await?;
                sent += 1;
            } else if tokio::time::timeout(LOST, back.1.notified()).await.is_err() {
                given_up += under_way;
            }
        }
        reader.abort();
        let requests = back.0.load(Ordering::Relaxed);
        Ok(Counted {
            requests,
            bytes: requests * DATAGRAM_BYTES as u64,
            latencies: Latencies::default(),
        })
    }
}
