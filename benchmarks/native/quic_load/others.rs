//! What is counted rather than streamed: handshakes, round trips of a stream, DATAGRAMs there and back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Connection, Endpoint, VarInt};
use tokio::sync::Notify;

use uringcore_bench::latency::Latencies;
use uringcore_bench::report::Report;
use uringcore_bench::{Failure, cpu, memory, quic};

/// Handshakes under way at once.
const CONNECTIONS: usize = 8;
const PING_BYTES: usize = 100;
const DATAGRAM_BYTES: usize = 1000;
/// DATAGRAMs sent and not yet back. What is lost is given up when nothing comes for `LOST`.
const DATAGRAMS: u64 = 256;
const LOST: Duration = Duration::from_millis(20);
const STALL: Duration = Duration::from_secs(20);

pub struct Load<'a> {
    endpoint: &'a Endpoint,
    address: SocketAddr,
    connection: Connection,
    server: u32,
}

#[derive(Default)]
struct Counted {
    requests: u64,
    bytes: u64,
    latencies: Latencies,
}

impl<'a> Load<'a> {
    pub fn new(
        endpoint: &'a Endpoint,
        address: SocketAddr,
        connection: Connection,
        server: u32,
    ) -> Self {
        Self {
            endpoint,
            address,
            connection,
            server,
        }
    }

    /// Warms up, measures and reports.
    pub async fn run(&self, mode: &str, warmup: Duration, window: Duration) -> Result<(), Failure> {
        self.count(mode, warmup).await?;
        let (cpu_before, begin) = (cpu::cpu_ns(self.server)?, Instant::now());
        let mut counted = self.count(mode, window).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_ns = cpu::cpu_ns(self.server)? - cpu_before;
        self.connection.close(VarInt::from_u32(0), b"done");
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
                memory::resident_bytes(self.server)? as f64,
            )
            .field("p50_us", counted.latencies.percentile_us(50.0))
            .field("p99_us", counted.latencies.percentile_us(99.0))
            .print();
        Ok(())
    }

    async fn count(&self, mode: &str, time: Duration) -> Result<Counted, Failure> {
        match mode {
            "handshake" => self.handshakes(time).await,
            "ping" => self.pings(time).await,
            "datagram" => self.datagrams(time).await,
            _ => Err(format!("--mode: {mode:?} is none").into()),
        }
    }

    /// Full handshakes, each followed by a close, with a fixed number under way.
    async fn handshakes(&self, time: Duration) -> Result<Counted, Failure> {
        let end = Instant::now() + time;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (endpoint, address) = (self.endpoint.clone(), self.address);
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                while Instant::now() < end {
                    let begin = Instant::now();
                    let connection = quic::connect(&endpoint, address).await?;
                    latencies.push(begin.elapsed());
                    connection.close(VarInt::from_u32(0), b"");
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

    /// One message in flight on one stream.
    async fn pings(&self, time: Duration) -> Result<Counted, Failure> {
        let end = Instant::now() + time;
        let (mut send, mut receive) = self.connection.open_bi().await?;
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

    /// DATAGRAMs that came back, with a bounded number on their way.
    async fn datagrams(&self, time: Duration) -> Result<Counted, Failure> {
        let end = Instant::now() + time;
        let data = Bytes::from(vec![7; DATAGRAM_BYTES]);
        let back = Arc::new((AtomicU64::new(0), Notify::new()));
        let reader = tokio::spawn({
            let (connection, back) = (self.connection.clone(), back.clone());
            async move {
                while let Ok(data) = connection.read_datagram().await {
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
                self.connection.send_datagram_wait(data.clone()).await?;
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
