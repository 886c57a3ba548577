//! Load of an HTTP/1.1 server over TLS 1.3: connections that make one request each, with a full or with a resumed
//! handshake; large downloads; or connections that are idle after one request.
//!
//! A thread for each connection in progress, with blocking calls. Every handshake is of the same cipher suite and key
//! exchange, and of the wanted kind, every response is the hello, and every byte of a download is the pattern's.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{CipherSuite, ClientConfig, ClientConnection, HandshakeKind, NamedGroup, StreamOwned};

use uringcore_bench::args::Args;
use uringcore_bench::latency::Latencies;
use uringcore_bench::quinn_setup::{self, SERVER_NAME};
use uringcore_bench::report::Report;
use uringcore_bench::server_processes::ServerProcesses;
use uringcore_bench::{Failure, exit_with, idle_memory, pattern};

/// The only ones that the client offers: servers prefer different ones.
const CIPHER_SUITE: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;
const GROUP: NamedGroup = NamedGroup::X25519;
const HELLO: &[u8] = b"Hello, world!";
/// Longer than any answer takes, unless the server hangs.
const STALL: Duration = Duration::from_secs(20);
/// At the end, one idle connection of this many gets another request.
const PROBED: usize = 100;
const RECEIVE_BYTES: usize = 256 * 1024;
const HEAD_MAX: usize = 16 * 1024;

fn main() -> ExitCode {
    exit_with("tls_load", run())
}

fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let mode: String = args.required("mode")?;
    let report = match mode.as_str() {
        "full" => load(&args, Work::Handshakes(HandshakeKind::Full))?,
        "resumed" => load(&args, Work::Handshakes(HandshakeKind::Resumed))?,
        "download" => {
            let size = args.required("size")?;
            load(&args, Work::Download { size })?
        }
        "idle" => idle(&args)?,
        other => {
            let known = "full, resumed, download and idle";
            return Err(format!("--mode: {other:?} is none of {known}").into());
        }
    };
    report.print();
    Ok(())
}

#[derive(Clone, Copy)]
enum Work {
    /// A connection with this kind of handshake for each request.
    Handshakes(HandshakeKind),
    /// Requests for `size` bytes on one connection.
    Download { size: u64 },
}

/// What all threads count.
#[derive(Default)]
struct Counts {
    /// The clients that have got their first answer.
    ready: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    is_over: AtomicBool,
    latencies: Mutex<Latencies>,
    failure: Mutex<Option<Failure>>,
}

fn load(args: &Args, work: Work) -> Result<Report, Failure> {
    let server = ServerProcesses::of(args)?;
    let connections: usize = args.required("connections")?;
    let clients = (0..connections)
        .map(|_| Client::new(args))
        .collect::<Result<Vec<_>, _>>()?;
    let counts = Counts::default();

    std::thread::scope(|scope| {
        for client in &clients {
            let counts = &counts;
            scope.spawn(move || {
                if let Err(failure) = client.work(work, counts) {
                    counts.is_over.store(true, Ordering::Relaxed);
                    lock(&counts.failure).get_or_insert(failure);
                }
            });
        }
        let measured = measure(args, &server, &counts);
        counts.is_over.store(true, Ordering::Relaxed);
        measured
    })
    .and_then(|report| match lock(&counts.failure).take() {
        Some(failure) => Err(failure),
        None => Ok(report),
    })
}

/// Waits for the first answer of each client, then measures the window.
fn measure(args: &Args, server: &ServerProcesses, counts: &Counts) -> Result<Report, Failure> {
    let connections: u64 = args.required("connections")?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);
    let begin = Instant::now();
    while counts.ready.load(Ordering::Relaxed) < connections || begin.elapsed() < warmup {
        if counts.is_over.load(Ordering::Relaxed) || begin.elapsed() > STALL {
            let failure = lock(&counts.failure).take();
            return Err(failure.unwrap_or_else(|| "no first answer".into()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    *lock(&counts.latencies) = Latencies::with_capacity(1 << 18);
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (requests, bytes) = (read(&counts.requests), read(&counts.bytes));
    let cpu_before = server.cpu_ns()?;
    let begin = Instant::now();
    std::thread::sleep(window);
    let seconds = begin.elapsed().as_secs_f64();
    let requests = read(&counts.requests) - requests;
    let bytes = read(&counts.bytes) - bytes;
    let cpu_ns = server.cpu_ns()? - cpu_before;
    let resident = server.resident_bytes()?;
    let report = Report::default()
        .field("requests", requests as f64)
        .field("seconds", seconds)
        .field("bytes", bytes as f64)
        .field("server_cpu_ns", cpu_ns as f64)
        .field("server_rss_bytes", resident as f64);
    if args.required::<String>("mode")? == "download" {
        return Ok(report);
    }
    let mut latencies = std::mem::take(&mut *lock(&counts.latencies));
    Ok(report
        .field("p50_us", latencies.percentile_us(50.0))
        .field("p99_us", latencies.percentile_us(99.0)))
}

fn idle(args: &Args) -> Result<Report, Failure> {
    let client = Client::new(args)?;
    let open = |count: usize| {
        (0..count)
            .map(|_| {
                let mut stream = client.connect()?;
                client.hello(&mut stream, "keep-alive")?;
                Ok(stream)
            })
            .collect::<Result<Vec<_>, Failure>>()
    };
    idle_memory::measure(args, open, |streams| {
        streams
            .iter_mut()
            .step_by(PROBED)
            .try_for_each(|stream| client.hello(stream, "keep-alive"))
    })
}

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// A client with its own tickets.
struct Client {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Client {
    fn new(args: &Args) -> Result<Client, Failure> {
        let mut config = quinn_setup::client_tls_with(args, provider())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if args.required::<String>("mode")? == "resumed" {
            config.resumption = Resumption::in_memory_sessions(1);
        }
        Ok(Client {
            address: args.required("addr")?,
            config: Arc::new(config),
        })
    }

    fn connect(&self) -> Result<Stream, Failure> {
        let socket = TcpStream::connect_timeout(&self.address, STALL)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STALL))?;
        socket.set_write_timeout(Some(STALL))?;
        let name = ServerName::try_from(SERVER_NAME)?;
        let session = ClientConnection::new(Arc::clone(&self.config), name)?;
        let stream = StreamOwned::new(session, socket);
        Ok(BufReader::with_capacity(HEAD_MAX, stream))
    }

    fn work(&self, work: Work, counts: &Counts) -> Result<(), Failure> {
        match work {
            Work::Handshakes(kind) => self.handshakes(kind, counts),
            Work::Download { size } => self.download(size, counts),
        }
    }

    fn handshakes(&self, wanted: HandshakeKind, counts: &Counts) -> Result<(), Failure> {
        let mut has_ticket = wanted == HandshakeKind::Full;
        let mut is_first = true;
        while !counts.is_over.load(Ordering::Relaxed) {
            let since = Instant::now();
            let mut stream = self.connect()?;
            self.hello(&mut stream, "close")?;
            let kind = stream.get_ref().conn.handshake_kind();
            if kind != Some(wanted) && has_ticket {
                return Err(format!("a handshake was {kind:?}, not {wanted:?}").into());
            }
            wait_for_end(stream)?;
            if std::mem::replace(&mut has_ticket, true) {
                counts.requests.fetch_add(1, Ordering::Relaxed);
                lock(&counts.latencies).add(since.elapsed());
            }
            if std::mem::take(&mut is_first) {
                counts.ready.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Sends a request for `/` and receives the hello.
    fn hello(&self, stream: &mut Stream, connection: &str) -> Result<(), Failure> {
        let length = self.ask(stream, "/", connection)?;
        check_negotiated(stream)?;
        let mut content = vec![0; usize::try_from(length)?];
        stream.read_exact(&mut content)?;
        match content == HELLO {
            true => Ok(()),
            false => Err("a wrong answer".into()),
        }
    }

    fn download(&self, size: u64, counts: &Counts) -> Result<(), Failure> {
        let block = pattern::block();
        let path = format!("/download/{size}");
        let mut buffer = vec![0; RECEIVE_BYTES];
        let mut stream = self.connect()?;
        let mut is_first = true;
        while !counts.is_over.load(Ordering::Relaxed) {
            let length = self.ask(&mut stream, &path, "keep-alive")?;
            if length != size {
                return Err(format!("{length} bytes in place of {size}").into());
            }
            let mut done = 0;
            while done < size && !counts.is_over.load(Ordering::Relaxed) {
                let wanted = usize::try_from(size - done)?.min(buffer.len());
                let count = stream.read(&mut buffer[..wanted])?;
                if count == 0 {
                    return Err("closed by the server".into());
                }
                if let Err(at) = pattern::check(&block, done, &buffer[..count]) {
                    return Err(format!("a wrong byte at {at}").into());
                }
                if std::mem::take(&mut is_first) {
                    check_negotiated(&stream)?;
                    counts.ready.fetch_add(1, Ordering::Relaxed);
                }
                done += count as u64;
                counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            counts.requests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends a request and returns the length of the content of its response.
    fn ask(&self, stream: &mut Stream, path: &str, connection: &str) -> Result<u64, Failure> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: benchmark\r\nAccept: */*\r\nConnection: {connection}\r\n\r\n",
            self.address
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
            if head.len() > HEAD_MAX {
                return Err("a header section that is too long".into());
            }
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        match length.map(|text| text.trim().parse()) {
            Some(Ok(length)) if head.starts_with("http/1.1 200 ") => Ok(length),
            _ => Err(format!("an unexpected response: {head}").into()),
        }
    }
}

fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CIPHER_SUITE);
    provider.kx_groups.retain(|group| group.name() == GROUP);
    provider
}

fn check_negotiated(stream: &Stream) -> Result<(), Failure> {
    let session = &stream.get_ref().conn;
    let suite = session.negotiated_cipher_suite().map(|it| it.suite());
    let group = session.negotiated_key_exchange_group().map(|it| it.name());
    match (suite, group) {
        (Some(CIPHER_SUITE), Some(GROUP)) => Ok(()),
        found => Err(format!("the server has chosen {found:?}").into()),
    }
}

/// Receives the end of the connection, so that no server is reset before it has closed. Ends with or without a
/// close_notify.
fn wait_for_end(mut stream: Stream) -> Result<(), Failure> {
    match stream.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        Ok(_) => return Err("bytes after the response".into()),
        Err(error) => return Err(error.into()),
    }
    stream.get_mut().conn.send_close_notify();
    // A server that has closed both directions resets the connection now, which is no fault.
    let _ = stream.get_mut().flush();
    Ok(())
}

/// A poisoned mutex means that another thread has failed, which ends the program with status 1.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
