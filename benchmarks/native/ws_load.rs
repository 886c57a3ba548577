//! WebSocket echo load over TCP: N connections, one text message in flight on each, every reply
//! compared byte by byte.
//!
//! Two messages alternate, so that a reply to the previous message is an error. With
//! `--deflate true` the messages are compressed (RFC 7692): the client compresses both once, without
//! reference to earlier messages, and decompresses every reply, which may refer to earlier ones. The
//! client offers what browsers offer. Prints messages, seconds, latency percentiles and the server's
//! processor time within the window.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use mio::{Interest, Poll, Token};

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::message_load::{Client, MessageLoad, STALL};
use uringcore_bench::report::Report;
use uringcore_bench::server_processes::ServerProcesses;
use uringcore_bench::{Failure, exit_with};

const RECEIVE_BYTES: usize = 256 * 1024;
const HEADER_MAX: usize = 10;
const TEXT: u8 = 0x81;
const RSV1: u8 = 0x40;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// The end of a flush, which is not sent (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
const OFFER: &str = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
const WINDOW_BITS_MAX: u8 = 15;

fn main() -> ExitCode {
    exit_with("ws_load", run())
}

fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let address: SocketAddr = args.required("addr")?;
    let server = ServerProcesses::of(&args)?;
    let connections: usize = args.required("connections")?;
    let size: usize = args.required("size")?;
    let deflate: bool = args.or("deflate", false)?;
    let path: String = args.or("path", "/echo".to_owned())?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    let mut load = open(address, connections, &path, size, deflate)?;
    load.run_for(warmup)?;
    load.latencies = Latencies::with_capacity(1 << 20);

    let cpu_before = server.cpu_ns()?;
    let begin = Instant::now();
    let messages = load.run_for(window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ns = server.cpu_ns()? - cpu_before;

    load.drain()?;
    Report::default()
        .field("requests", messages as f64)
        .field("seconds", seconds)
        .field("bytes", messages as f64 * size as f64)
        .field("server_cpu_ns", cpu_ns as f64)
        .field("server_rss_bytes", server.resident_bytes()? as f64)
        .field("p50_us", load.latencies.percentile_us(50.0))
        .field("p99_us", load.latencies.percentile_us(99.0))
        .print();
    Ok(())
}

/// The two messages of all connections.
struct Messages {
    texts: [Vec<u8>; 2],
    /// Both as masked frames.
    frames: [Vec<u8>; 2],
}

impl Messages {
    fn new(size: usize, window_bits: Option<u8>) -> Self {
        let texts = [1, 2].map(|seed| text(seed, size));
        let frames = [0, 1].map(|at: usize| match window_bits {
            None => frame(TEXT, &texts[at]),
            Some(bits) => frame(TEXT | RSV1, &compressed(&texts[at], bits)),
        });
        Self { texts, frames }
    }
}

/// Records as programs send them, of `size` bytes of ASCII.
fn text(seed: u32, size: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    let mut text = Vec::new();
    while text.len() < size {
        let record = format!(
            "{{\"id\": {}, \"user\": \"user-{}\", \"price\": {}.{:02}, \"state\": \"open\"}}\n",
            next(60_000),
            next(1000),
            next(500),
            next(100)
        );
        text.extend_from_slice(record.as_bytes());
    }
    text.truncate(size);
    text
}

fn compressed(text: &[u8], window_bits: u8) -> Vec<u8> {
    let mut stream = Compress::new_with_window_bits(Compression::default(), false, window_bits);
    let mut out = Vec::with_capacity(text.len() + 1024);
    stream
        .compress_vec(text, &mut out, FlushCompress::Sync)
        .expect("the space suffices");
    assert!(stream.total_in() == text.len() as u64 && out.ends_with(&TAIL));
    out.truncate(out.len() - TAIL.len());
    out
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        length @ 0..=125 => out.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    out.extend(masked.map(|(byte, key)| byte ^ key));
    out
}

fn open(
    address: SocketAddr,
    count: usize,
    path: &str,
    size: usize,
    deflate: bool,
) -> Result<MessageLoad<Connection>, Failure> {
    let poll = Poll::new()?;
    let mut connections = Vec::with_capacity(count);
    let mut messages = None;
    for index in 0..count {
        let (stream, window_bits) = connect(address, path, deflate)
            .map_err(|error| format!("connection {index}: {error}"))?;
        let messages = messages
            .get_or_insert_with(|| Rc::new(Messages::new(size, window_bits)))
            .clone();
        let mut stream = mio::net::TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(&mut stream, Token(index), interest)?;
        connections.push(Connection::new(stream, index, messages, deflate));
    }
    Ok(MessageLoad::new(poll, connections, RECEIVE_BYTES))
}

/// Opens a WebSocket. Also returns the window of the client's compressor, if messages are compressed.
fn connect(
    address: SocketAddr,
    path: &str,
    deflate: bool,
) -> Result<(TcpStream, Option<u8>), Failure> {
    let mut stream = TcpStream::connect_timeout(&address, STALL)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n",
        if deflate { OFFER } else { "" }
    );
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?.to_ascii_lowercase();
    if !head.starts_with("http/1.1 101 ") {
        return Err(format!("the server refuses: {head}").into());
    }
    let agreed = head
        .lines()
        .find_map(|line| line.strip_prefix("sec-websocket-extensions:"));
    let window_bits = match (agreed, deflate) {
        (Some(agreed), true) if agreed.trim().starts_with("permessage-deflate") => {
            let bits = agreed
                .split(';')
                .find_map(|part| part.trim().strip_prefix("client_max_window_bits="));
            Some(bits.map_or(Ok(WINDOW_BITS_MAX), str::parse)?)
        }
        (None, false) => None,
        (agreed, _) => return Err(format!("the server agrees on {agreed:?}").into()),
    };
    stream.set_nonblocking(true)?;
    Ok((stream, window_bits))
}

struct Connection {
    stream: mio::net::TcpStream,
    index: usize,
    messages: Rc<Messages>,
    /// The message in flight or before the next.
    at: usize,
    sent: usize,
    /// The header of the reply, as far as it has arrived.
    header: Vec<u8>,
    /// The bytes of the reply's frame that are missing.
    missing: usize,
    reply: Vec<u8>,
    /// The decompressor, if replies may be compressed.
    inflater: Option<Decompress>,
    in_flight: bool,
    since: Instant,
}

impl Connection {
    fn new(
        stream: mio::net::TcpStream,
        index: usize,
        messages: Rc<Messages>,
        deflate: bool,
    ) -> Connection {
        Connection {
            stream,
            index,
            messages,
            at: 0,
            sent: 0,
            header: Vec::with_capacity(HEADER_MAX),
            missing: 0,
            reply: Vec::new(),
            inflater: deflate.then(|| Decompress::new_with_window_bits(false, WINDOW_BITS_MAX)),
            in_flight: false,
            since: Instant::now(),
        }
    }

    fn failure(&self, what: impl std::fmt::Display) -> Failure {
        format!("connection {}: {what}", self.index).into()
    }

    /// Takes bytes of the reply's frame. Returns true if the frame is complete and correct.
    fn take(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        while self.missing == 0 {
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(false);
            };
            *input = rest;
            self.header.push(byte);
            self.begin()?;
        }
        let (piece, rest) = input.split_at(self.missing.min(input.len()));
        *input = rest;
        self.missing -= piece.len();
        self.add(piece)?;
        if self.missing > 0 {
            return Ok(false);
        }
        if self.header[0] & RSV1 != 0 {
            self.add(&TAIL)?;
        }
        if self.reply != self.messages.texts[self.at] {
            return Err(self.failure("the reply differs from the message"));
        }
        self.header.clear();
        self.reply.clear();
        Ok(true)
    }

    /// Reads the header once it is complete.
    fn begin(&mut self) -> Result<(), Failure> {
        let [first, second, rest @ ..] = &self.header[..] else {
            return Ok(());
        };
        let may_compress = self.inflater.is_some();
        if !(*first == TEXT || *first == TEXT | RSV1 && may_compress) || second & 0x80 != 0 {
            return Err(self.failure(format_args!("an unexpected frame: {:02x?}", self.header)));
        }
        let length = match (second, rest) {
            (126, [high, low]) => u64::from(u16::from_be_bytes([*high, *low])),
            (127, rest) if rest.len() == 8 => rest
                .iter()
                .fold(0, |length, &byte| length << 8 | u64::from(byte)),
            (126 | 127, _) => return Ok(()),
            (&length, _) => u64::from(length),
        };
        self.missing = usize::try_from(length)?;
        Ok(())
    }

    /// Adds a piece of the payload to the reply.
    fn add(&mut self, mut piece: &[u8]) -> Result<(), Failure> {
        let (Some(inflater), true) = (&mut self.inflater, self.header[0] & RSV1 != 0) else {
            self.reply.extend_from_slice(piece);
            return Ok(());
        };
        let size = self.messages.texts[0].len();
        loop {
            self.reply
                .reserve((size + 1).saturating_sub(self.reply.len()));
            let before = inflater.total_in();
            let inflated = inflater.decompress_vec(piece, &mut self.reply, FlushDecompress::None);
            piece = &piece[(inflater.total_in() - before) as usize..];
            if inflated.is_err() || self.reply.len() > size {
                return Err(self.failure("a reply that does not decompress to the message"));
            }
            if piece.is_empty() {
                return Ok(());
            }
        }
    }
}

impl Client for Connection {
    fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    fn send_next(&mut self) -> Result<(), Failure> {
        self.at = 1 - self.at;
        self.sent = 0;
        self.in_flight = true;
        self.since = Instant::now();
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let frame = &self.messages.frames[self.at];
        while self.in_flight && self.sent < frame.len() {
            match (&self.stream).write(&frame[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, received: &mut [u8]) -> Result<Option<Duration>, Failure> {
        // Between two messages no data is due; a read would only cost an EAGAIN for each reply.
        while self.in_flight {
            let count = match self.stream.read(received) {
                Ok(0) => return Err(self.failure("closed by the server")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(self.failure(error)),
            };
            let mut rest = &received[..count];
            while !rest.is_empty() {
                if self.take(&mut rest)? {
                    if !rest.is_empty() {
                        return Err(self.failure("bytes after the reply"));
                    }
                    self.in_flight = false;
                    return Ok(Some(self.since.elapsed()));
                }
            }
        }
        Ok(None)
    }
}
