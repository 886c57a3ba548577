//! Echo load over TCP, TLS or UDP: N connections, one message in flight on each, every reply
//! compared byte by byte.
//!
//! The program is one thread on one core. A request costs it the kernel's share and a memcmp, so
//! the Python server on the other core is the limit. Prints requests, seconds, latency percentiles
//! and the server's processor time within the window.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mio::{Poll, Token};

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::message_load::{Client, MessageLoad, STALL};
use uringcore_bench::report::Report;
use uringcore_bench::socket_channel::{self, Channel};
use uringcore_bench::{Failure, cpu, exit_with, pattern, process_memory};

fn main() -> ExitCode {
    exit_with("echo_load", run())
}

fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let address: SocketAddr = args.required("addr")?;
    let server: u32 = args.required("pid")?;
    let connections: usize = args.required("connections")?;
    let size: usize = args.required("size")?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    let channels = socket_channel::open(&args, address, connections, STALL)?;
    let mut load = load(channels, size)?;
    load.run_for(warmup)?;
    load.latencies = Latencies::with_capacity(1 << 20);

    let cpu_before = cpu::cpu_ns(server)?;
    let begin = Instant::now();
    let requests = load.run_for(window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ns = cpu::cpu_ns(server)? - cpu_before;

    load.drain()?;
    Report::default()
        .field("requests", requests as f64)
        .field("seconds", seconds)
        .field("bytes", requests as f64 * size as f64)
        .field("server_cpu_ns", cpu_ns as f64)
        .field(
            "server_rss_bytes",
            process_memory::resident_bytes(server)? as f64,
        )
        .field("p50_us", load.latencies.percentile_us(50.0))
        .field("p99_us", load.latencies.percentile_us(99.0))
        .print();
    Ok(())
}

fn load(channels: Vec<Channel>, size: usize) -> Result<MessageLoad<Connection>, Failure> {
    let poll = Poll::new()?;
    let mut connections = Vec::with_capacity(channels.len());
    for (index, mut channel) in channels.into_iter().enumerate() {
        channel.register(poll.registry(), Token(index))?;
        connections.push(Connection::new(channel, index, size));
    }
    // Each connection compares its reply where it has received it.
    Ok(MessageLoad::new(poll, connections, 0))
}

struct Connection {
    channel: Channel,
    index: usize,
    sequence: u64,
    message: Vec<u8>,
    reply: Vec<u8>,
    sent: usize,
    received: usize,
    in_flight: bool,
    since: Instant,
}

impl Connection {
    fn new(channel: Channel, index: usize, size: usize) -> Connection {
        Connection {
            channel,
            index,
            sequence: 0,
            message: pattern::bytes(index as u32 + 1, size),
            reply: vec![0; size],
            sent: 0,
            received: 0,
            in_flight: false,
            since: Instant::now(),
        }
    }
}

impl Client for Connection {
    fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// The sequence number makes each message different, so that a reply to the previous message is
    /// an error.
    fn send_next(&mut self) -> Result<(), Failure> {
        self.sequence += 1;
        let stamp = self.sequence.to_le_bytes();
        let length = stamp.len().min(self.message.len());
        self.message[..length].copy_from_slice(&stamp[..length]);
        self.sent = 0;
        self.received = 0;
        self.in_flight = true;
        self.since = Instant::now();
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        while self.in_flight && self.sent < self.message.len() {
            match self.channel.write(&self.message[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("connection {}: {error}", self.index).into()),
            }
        }
        self.channel
            .push()
            .map_err(|error| format!("connection {}: {error}", self.index).into())
    }

    fn receive(&mut self, _buffer: &mut [u8]) -> Result<Option<Duration>, Failure> {
        // Between two messages no data is due; a read would only cost an EAGAIN for each reply.
        while self.in_flight {
            match self.channel.read(&mut self.reply[self.received..]) {
                Ok(0) => {
                    return Err(format!("connection {}: closed by the server", self.index).into());
                }
                Ok(count) => self.received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(format!("connection {}: {error}", self.index).into()),
            }
            if self.received == self.reply.len() {
                if self.reply != self.message {
                    return Err(format!(
                        "connection {}: reply {} differs from the message",
                        self.index, self.sequence
                    )
                    .into());
                }
                self.in_flight = false;
                return Ok(Some(self.since.elapsed()));
            }
        }
        Ok(None)
    }
}
