//! The bulk server on uringcore's engine without Python: the upper limit for the Python figures.
//!
//! `quic_load.rs` describes the protocol. SIGTERM ends the server, by the default action.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use uringcore_engine::{Engine, EngineEvent, Key, QuicSocket, SocketFd, SystemClock};
use uringcore_io::{Backend, DriverConfig};
use uringcore_quic::tls::Identity;
use uringcore_quic::{
    Chunks, Connection, ConnectionKey, Endpoint, EndpointSettings, Event, ServerSettings,
    ServerSetup, TransportSettings,
};

use uringcore_bench::args::Args;
use uringcore_bench::{Failure, exit_with, pattern};

/// The flow-control window of a receiver, as in `quic.rs`.
const WINDOW: u64 = 16 << 20;
const QUEUE_HIGH: usize = 1 << 20;
const QUEUE_LOW: usize = QUEUE_HIGH / 2;

fn main() -> ExitCode {
    exit_with("engine_server", run())
}

fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let backend = match args.or("backend", "uring".to_owned())?.as_str() {
        "uring" => Backend::Uring,
        "epoll" => Backend::Epoll,
        other => return Err(format!("--backend: {other:?} is neither uring nor epoll").into()),
    };
    let mut engine = Engine::new(&DriverConfig {
        backend: Some(backend),
        ..DriverConfig::default()
    })?;
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    socket.set_nonblocking(true)?;
    let port = socket.local_addr()?.port();
    let protocol = Endpoint::new(EndpointSettings::default(), Some(server_setup(&args)?));
    let endpoint = engine.open_quic(|_, token| {
        QuicSocket::new(SocketFd::Owned(OwnedFd::from(socket)), protocol, token)
    })?;
    println!("READY {port}");

    let mut server = Server {
        endpoint,
        block: Bytes::from(pattern::block()),
        streams: HashMap::new(),
    };
    loop {
        let now = Instant::now();
        engine.flush(now);
        let timeout = if engine.events_ready() > 0 {
            Some(Duration::ZERO)
        } else {
            engine
                .next_deadline()
                .map(|at| at.saturating_duration_since(now))
        };
        engine.enter(timeout)?;
        engine.process(Instant::now());
        while let Some(event) = engine.next_event() {
            match event {
                EngineEvent::QuicReady { .. } => server.serve(&mut engine)?,
                EngineEvent::QuicClosed { .. } => return Err("the endpoint closed".into()),
                _ => {}
            }
        }
    }
}

fn server_setup(args: &Args) -> Result<ServerSetup, Failure> {
    let chain = std::fs::read(args.required::<String>("cert")?)?;
    let key = std::fs::read(args.required::<String>("key")?)?;
    let settings = ServerSettings {
        alpn: vec![b"bulk".to_vec()],
        transport: TransportSettings {
            max_data: 2 * WINDOW,
            max_stream_data: WINDOW,
            send_window: WINDOW,
            ..TransportSettings::default()
        },
        ..ServerSettings::new(Identity::from_pem(&chain, &key)?, SystemClock::shared())
    };
    Ok(ServerSetup::new(&settings)?)
}

enum Stream {
    Upload { count: u64, hash: Option<Context> },
    Download,
}

struct Server {
    endpoint: Key,
    block: Bytes,
    streams: HashMap<(ConnectionKey, u64), Stream>,
}

impl Server {
    fn serve(&mut self, engine: &mut Engine) -> Result<(), Failure> {
        let endpoint = engine.quic(self.endpoint).ok_or("the endpoint is gone")?;
        while let Some((key, event)) = endpoint.poll_event() {
            let Some(connection) = endpoint.protocol().connection(key) else {
                continue;
            };
            match event {
                Event::Accepted => connection.set_watermarks(QUEUE_HIGH, QUEUE_LOW),
                Event::StreamData {
                    stream_id,
                    data,
                    fin,
                } => self.stream_data(connection, (key, stream_id), &data, fin)?,
                Event::StreamWritable { stream_id }
                    if self.streams.contains_key(&(key, stream_id)) =>
                {
                    self.fill(connection, stream_id)?;
                }
                Event::Closed { .. } => self.streams.retain(|(owner, _), _| *owner != key),
                _ => {}
            }
        }
        Ok(())
    }

    fn stream_data(
        &mut self,
        connection: &mut Connection,
        id: (ConnectionKey, u64),
        data: &Chunks,
        fin: bool,
    ) -> Result<(), Failure> {
        let mut pieces = data.pieces().iter().map(|piece| &piece[..]);
        let mut first = pieces.next().unwrap_or_default();
        if !self.streams.contains_key(&id) {
            let (mode, rest) = first.split_first().ok_or("a stream without a mode")?;
            first = rest;
            let stream = match mode {
                b'D' => Stream::Download,
                b'U' => Stream::Upload {
                    count: 0,
                    hash: None,
                },
                b'V' => Stream::Upload {
                    count: 0,
                    hash: Some(Context::new(&SHA256)),
                },
                other => return Err(format!("mode {other:?}").into()),
            };
            if matches!(stream, Stream::Download) {
                self.fill(connection, id.1)?;
            }
            self.streams.insert(id, stream);
        }
        if let Some(Stream::Upload { count, hash }) = self.streams.get_mut(&id) {
            for piece in std::iter::once(first).chain(pieces) {
                *count += piece.len() as u64;
                if let Some(hash) = hash {
                    hash.update(piece);
                }
            }
        }
        if fin && let Some(stream) = self.streams.remove(&id) {
            connection.send_stream(id.1, answer(stream), true)?;
        }
        Ok(())
    }

    fn fill(&self, connection: &mut Connection, stream_id: u64) -> Result<(), Failure> {
        while connection.send_queue_bytes(stream_id) <= QUEUE_HIGH {
            connection.send_stream(stream_id, self.block.clone(), false)?;
        }
        Ok(())
    }
}

fn answer(stream: Stream) -> Bytes {
    match stream {
        Stream::Download => Bytes::new(),
        Stream::Upload { count, hash } => {
            let mut answer = count.to_be_bytes().to_vec();
            if let Some(hash) = hash {
                answer.extend_from_slice(hash.finish().as_ref());
            }
            Bytes::from(answer)
        }
    }
}
