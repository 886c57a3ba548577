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

use mio::{Events, Poll, Token};

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::report::Report;
use uringcore_bench::socket_channel::{self, Channel};
use uringcore_bench::{Failure, cpu, exit_with, memory, pattern};

/// A server that sends no answer for this long has failed.
const STALL: Duration = Duration::from_secs(5);

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
    let mut load = Load::new(channels, size)?;
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
        .field("server_rss_bytes", memory::resident_bytes(server)? as f64)
        .field("p50_us", load.latencies.percentile_us(50.0))
        .field("p99_us", load.latencies.percentile_us(99.0))
        .print();
    Ok(())
}

struct Load {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    latencies: Latencies,
}

impl Load {
    fn new(channels: Vec<Channel>, size: usize) -> Result<Load, Failure> {
        let poll = Poll::new()?;
        let count = channels.len();
        let mut connections = Vec::with_capacity(count);
        for (index, mut channel) in channels.into_iter().enumerate() {
            channel.register(poll.registry(), Token(index))?;
            connections.push(Connection::new(channel, index, size));
        }
        Ok(Load {
            poll,
            events: Events::with_capacity(count.clamp(1, 1024)),
            connections,
            latencies: Latencies::default(),
        })
    }

    /// Keeps every connection busy for `window`; returns the number of whole replies in it.
    fn run_for(&mut self, window: Duration) -> Result<u64, Failure> {
        let end = Instant::now() + window;
        let mut replies = 0;
        for connection in &mut self.connections {
            if !connection.in_flight {
                connection.send_next()?;
            }
        }
        while Instant::now() < end {
            replies += self.turn(true)?;
        }
        Ok(replies)
    }

    /// Waits for the replies in flight, so that the server closes idle connections and not broken
    /// ones.
    fn drain(&mut self) -> Result<(), Failure> {
        while self.connections.iter().any(|one| one.in_flight) {
            self.turn(false)?;
        }
        Ok(())
    }

    fn turn(&mut self, send_more: bool) -> Result<u64, Failure> {
        if let Err(error) = self.poll.poll(&mut self.events, Some(STALL)) {
            if error.kind() == ErrorKind::Interrupted {
                return Ok(0);
            }
            return Err(error.into());
        }
        if self.events.is_empty() {
            return Err(format!("no reply on any connection for {STALL:?}").into());
        }
        let mut replies = 0;
        for event in &self.events {
            let connection = &mut self.connections[event.token().0];
            connection.flush()?;
            // The next reply brings its own event: another read would only cost an EAGAIN.
            if let Some(elapsed) = connection.receive()? {
                replies += 1;
                self.latencies.add(elapsed);
                if send_more {
                    connection.send_next()?;
                }
            }
        }
        Ok(replies)
    }
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

    /// Returns the round-trip time of a whole, correct reply; `None` until it has arrived.
    fn receive(&mut self) -> Result<Option<Duration>, Failure> {
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
