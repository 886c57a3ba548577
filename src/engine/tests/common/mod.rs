//! A host without Python: it runs the loop iterations of an engine and stores the events.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use uringcore_engine::{Engine, EngineEvent, Key, NextReceive, SharedState, StreamBytes};
use uringcore_io::{Backend, DriverConfig, Errno, net};

pub const BACKENDS: [Backend; 2] = [Backend::Uring, Backend::Epoll];

pub fn engine(backend: Backend) -> Engine {
    let config = DriverConfig {
        backend: Some(backend),
        ..DriverConfig::default()
    };
    Engine::new(&config).unwrap_or_else(|error| panic!("{}: {error}", backend.as_str()))
}

/// Runs one loop iteration that waits for at most `limit`, and passes its events to `handle`.
pub fn iterate(
    engine: &mut Engine,
    limit: Duration,
    mut handle: impl FnMut(&mut Engine, EngineEvent),
) {
    engine.flush(Instant::now());
    let wait = if engine.events_ready() > 0 {
        Duration::ZERO
    } else {
        limit
    };
    engine.enter(Some(wait)).expect("enter");
    engine.process(Instant::now());
    while let Some(event) = engine.next_event() {
        let EngineEvent::StreamReadable { stream, fd } = event else {
            handle(engine, event);
            continue;
        };
        receive_all_due(engine, stream, fd, RECEIVE_MAX, |engine, data| {
            handle(engine, EngineEvent::StreamData { stream, data });
        });
    }
}

const RECEIVE_MAX: usize = 120 * 1024;

/// Receives from streams that leave receiving to the host, at most `size` bytes at a time.
pub fn receive_all_due(
    engine: &mut Engine,
    stream: Key,
    fd: RawFd,
    size: usize,
    mut handle: impl FnMut(&mut Engine, StreamBytes),
) {
    loop {
        let mut memory = vec![MaybeUninit::new(0); size];
        let errno = |error: std::io::Error| Errno(error.raw_os_error().expect("a number"));
        let result = net::recv(fd, &mut memory).map_err(errno);
        let next = match result {
            Ok(count) if count == size => NextReceive::AtOnce,
            _ => NextReceive::WhenReadable,
        };
        let is_followed = engine.transports().received(stream, result, next);
        let count = result.unwrap_or(0);
        // SAFETY: the first `count` bytes were initialized above.
        let bytes = memory[..count]
            .iter()
            .map(|byte| unsafe { byte.assume_init() });
        if count > 0 {
            handle(engine, StreamBytes::Copied(bytes.collect()));
        }
        if !is_followed || !engine.transports().receives_again(stream) {
            return;
        }
    }
}

/// Runs loop iterations until `done` returns true, or panics after ten seconds.
pub fn iterate_until(
    engine: &mut Engine,
    mut handle: impl FnMut(&mut Engine, EngineEvent),
    mut done: impl FnMut(&Engine) -> bool,
) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done(engine) {
        assert!(Instant::now() < end, "nothing happened for ten seconds");
        iterate(engine, Duration::from_millis(20), &mut handle);
    }
}

/// Runs loop iterations until the only transport, which is closing, has ended. Releases the transport's descriptor on
/// `Lost`. Returns the events of the end.
pub fn events_of_end(engine: &mut Engine, key: Key, fd: OwnedFd) -> Vec<&'static str> {
    let mut fd = Some(fd);
    let mut reported = Vec::new();
    iterate_until(
        engine,
        |engine, event| match event {
            EngineEvent::Lost { .. } => {
                reported.push("lost");
                assert!(!engine.transports().release(key, fd.take()));
            }
            EngineEvent::Closed { .. } => reported.push("closed"),
            _ => {}
        },
        |engine| engine.stats().streams + engine.stats().datagrams == 0,
    );
    reported
}

/// A connected pair of TCP sockets: one for the engine, one for the test.
pub fn tcp_pair() -> (OwnedFd, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let peer =
        std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (ours, _) = listener.accept().expect("accept");
    ours.set_nonblocking(true).expect("nonblocking");
    (ours.into(), peer)
}

/// Opens a stream on `fd` and starts reading. The test keeps the descriptor until it releases the stream.
pub fn open(engine: &mut Engine, fd: &OwnedFd) -> Key {
    let key = engine
        .transports()
        .open_stream(fd.as_raw_fd(), SharedState::default());
    engine.transports().start(key);
    key
}

pub fn bytes(data: &StreamBytes) -> Vec<u8> {
    data.to_vec()
}
