//! Load of a file server over HTTP/1.1 and TCP: N connections, one GET of the same file in flight on
//! each.
//!
//! The file repeats the test pattern. Every byte of small files is compared, and of a large file every
//! byte of each connection's first response, before the window; later only its length. Prints
//! requests, seconds, bytes, latency percentiles and the server's processor time within the window.
//! Bytes count when they arrive, so that a window may end in the middle of a large file.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::message_load::{self, STALL};
use uringcore_bench::report::Report;
use uringcore_bench::server_processes::ServerProcesses;
use uringcore_bench::{Failure, exit_with, pattern};

/// Files up to this size are compared in every response.
const COMPARED_MAX: usize = 128 * 1024;
const RECEIVE_BYTES: usize = 1 << 20;
const HEAD_MAX: usize = 16 * 1024;

fn main() -> ExitCode {
    exit_with("file_load", run())
}

fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let address: SocketAddr = args.required("addr")?;
    let server = ServerProcesses::of(&args)?;
    let connections: usize = args.required("connections")?;
    let size: usize = args.required("size")?;
    let path: String = args.required("path")?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    let mut load = Load::open(address, connections, &path, size)?;
    load.run_until_each_has_answered(warmup)?;
    load.latencies = Latencies::with_capacity(1 << 20);

    let (cpu_before, answers_before) = (server.cpu_ns()?, load.answers);
    let bytes_before = load.bytes;
    let begin = Instant::now();
    load.run_for(window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ns = server.cpu_ns()? - cpu_before;

    Report::default()
        .field("requests", (load.answers - answers_before) as f64)
        .field("seconds", seconds)
        .field("bytes", (load.bytes - bytes_before) as f64)
        .field("server_cpu_ns", cpu_ns as f64)
        .field("server_rss_bytes", server.resident_bytes()? as f64)
        .field("p50_us", load.latencies.percentile_us(50.0))
        .field("p99_us", load.latencies.percentile_us(99.0))
        .print();
    Ok(())
}

struct Load {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    request: Vec<u8>,
    block: Vec<u8>,
    size: usize,
    received: Vec<u8>,
    answers: u64,
    /// The bytes of contents.
    bytes: u64,
    latencies: Latencies,
}

impl Load {
    fn open(address: SocketAddr, count: usize, path: &str, size: usize) -> Result<Load, Failure> {
        let poll = Poll::new()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: benchmark\r\nAccept: */*\r\n\r\n"
        );
        let mut connections = Vec::with_capacity(count);
        for index in 0..count {
            let stream = TcpStream::connect_timeout(&address, STALL)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            poll.registry()
                .register(&mut stream, Token(index), Interest::READABLE)?;
            let mut connection = Connection::new(stream, index);
            connection.ask(request.as_bytes())?;
            connections.push(connection);
        }
        Ok(Load {
            poll,
            events: Events::with_capacity(count.clamp(1, 1024)),
            connections,
            request: request.into_bytes(),
            block: pattern::block(),
            size,
            received: vec![0; RECEIVE_BYTES],
            answers: 0,
            bytes: 0,
            latencies: Latencies::default(),
        })
    }

    fn run_until_each_has_answered(&mut self, least: Duration) -> Result<(), Failure> {
        self.run_for(least)?;
        while self.connections.iter().any(|one| one.answers == 0) {
            self.turn()?;
        }
        Ok(())
    }

    fn run_for(&mut self, window: Duration) -> Result<(), Failure> {
        let end = Instant::now() + window;
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Failure> {
        message_load::poll(&mut self.poll, &mut self.events, STALL, "nothing")?;
        for event in &self.events {
            let connection = &mut self.connections[event.token().0];
            loop {
                let count = match connection.stream.read(&mut self.received) {
                    Ok(0) => return Err(connection.failure("closed by the server")),
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(connection.failure(error)),
                };
                let before = connection.done;
                let is_whole = connection.take(&self.received[..count], &self.block, self.size)?;
                self.bytes += (connection.done - before) as u64;
                if is_whole {
                    connection.done = 0;
                    connection.answers += 1;
                    self.answers += 1;
                    self.latencies.add(connection.since.elapsed());
                    connection.ask(&self.request)?;
                    // The next response brings its own event.
                    break;
                }
                if count < RECEIVE_BYTES {
                    break;
                }
            }
        }
        Ok(())
    }
}

struct Connection {
    stream: mio::net::TcpStream,
    index: usize,
    head: Vec<u8>,
    is_head_read: bool,
    /// The bytes of the content that have arrived.
    done: usize,
    answers: u64,
    since: Instant,
}

impl Connection {
    fn new(stream: mio::net::TcpStream, index: usize) -> Self {
        Self {
            stream,
            index,
            head: Vec::new(),
            is_head_read: false,
            done: 0,
            answers: 0,
            since: Instant::now(),
        }
    }

    fn failure(&self, what: impl std::fmt::Display) -> Failure {
        format!("connection {}: {what}", self.index).into()
    }

    fn ask(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.since = Instant::now();
        match self.stream.write(request) {
            Ok(count) if count == request.len() => Ok(()),
            Ok(_) => Err(self.failure("a request was not sent whole")),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Takes received bytes. Returns true at the end of a correct response.
    fn take(&mut self, mut data: &[u8], block: &[u8], size: usize) -> Result<bool, Failure> {
        if !self.is_head_read {
            let before = self.head.len();
            self.head.extend_from_slice(data);
            let end = self.head.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            let Some(end) = end.map(|at| at + 4) else {
                return match self.head.len() > HEAD_MAX {
                    true => Err(self.failure("a header section that is too long")),
                    false => Ok(false),
                };
            };
            self.head.truncate(end);
            self.check_head(size)?;
            self.head.clear();
            self.is_head_read = true;
            data = &data[end - before..];
        }
        if data.len() > size - self.done {
            return Err(self.failure("bytes after the content"));
        }
        if (size <= COMPARED_MAX || self.answers == 0)
            && let Err(at) = pattern::check(block, self.done as u64, data)
        {
            return Err(self.failure(format_args!("a wrong byte at {at}")));
        }
        self.done += data.len();
        let is_whole = self.done == size;
        self.is_head_read = !is_whole;
        Ok(is_whole)
    }

    fn check_head(&self, size: usize) -> Result<(), Failure> {
        let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        if !head.starts_with("http/1.1 200 ") || length.map(str::trim) != Some(&size.to_string()) {
            return Err(self.failure(format_args!("an unexpected response: {head}")));
        }
        Ok(())
    }
}
