//! Counts allocations: after some rounds, sending on a stream allocates nothing.

mod common;
mod counting_allocator;

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{BACKENDS, engine, iterate, iterate_until, open, tcp_pair};
use counting_allocator::allocations;
use uringcore_engine::{Engine, Key, QuicSocket, SocketFd, SystemClock, WriteOutcome};
use uringcore_io::net;
use uringcore_quic::{ClientSettings, ClientSetup, Endpoint, EndpointSettings};

/// Runs `round` many times, and returns the number of allocations in a round. The last rounds must all have the same
/// number.
fn allocations_a_round(mut round: impl FnMut()) -> u64 {
    (0..WARMING_UP).for_each(|_| round());
    let all = allocations(|| (0..ROUNDS).for_each(|_| round()));
    all.div_ceil(ROUNDS)
}

fn flush_and_send(engine: &mut Engine) {
    iterate(engine, Duration::ZERO, |_, _| {});
    while engine.stats().write_queue_bytes > 0 {
        iterate(engine, Duration::from_millis(1), |_, _| {});
    }
}

/// A connection whose reader reads all bytes at once.
struct Connection {
    key: Key,
    fd: OwnedFd,
    peer: std::net::TcpStream,
}

fn connection(engine: &mut Engine) -> Connection {
    let (fd, peer) = tcp_pair();
    let key = open(engine, &fd);
    Connection { key, fd, peer }
}

impl Connection {
    fn expect(&mut self, size: usize) {
        let mut got = [0; 64 * 1024];
        self.peer.read_exact(&mut got[..size]).expect("it was sent");
    }
}

#[test]
fn quic_connections_that_write_alternately_in_a_callback_are_listed_once() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
        let protocol = Endpoint::new(EndpointSettings::default(), None);
        let endpoint = engine
            .open_quic(|_, token| QuicSocket::new(SocketFd::Owned(socket.into()), protocol, token))
            .expect("endpoint");
        let setup = ClientSetup::new(&ClientSettings::new(SystemClock::shared())).expect("setup");
        let address = peer.local_addr().expect("address");
        let connections = [(); 2].map(|()| {
            let open = engine.quic(endpoint).expect("open").protocol();
            open.connect(Instant::now(), &setup, address, "localhost")
                .expect("connect")
        });
        engine.begin_callbacks(2);
        let mut write = |rounds| {
            for _ in 0..rounds {
                for connection in connections {
                    let protocol = engine.quic(endpoint).expect("open").protocol();
                    protocol.connection(connection).expect("open");
                    engine.quic_written(endpoint, connection);
                }
            }
        };
        // The first writes are sent at once, and the later ones are held.
        write(10);
        assert_eq!(allocations(|| write(10_000)), 0);
    }
}

#[test]
fn a_small_write_that_is_sent_at_once_allocates_nothing() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let mut one = connection(&mut engine);
        let count = allocations_a_round(|| {
            assert_eq!(
                engine.transports().write_copy(one.key, b"hello"),
                WriteOutcome::Queued
            );
            flush_and_send(&mut engine);
            one.expect(5);
        });
        assert_eq!(count, 0, "{}", backend.as_str());
        assert!(engine.stats().direct_sends >= ROUNDS);
    }
}

#[test]
fn small_writes_that_go_through_the_driver_allocate_nothing() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        // If a busy machine interrupts this thread, the engine must not take the time for a long callback. So all of
        // its time limits are multiplied.
        engine.slow_down(1_000);
        // Small writes go through the driver only if another connection has work in the same loop iteration.
        let mut pair = [connection(&mut engine), connection(&mut engine)];
        for writes in [1, 5] {
            let count = allocations_a_round(|| {
                engine.begin_callbacks(pair.len());
                for one in &pair {
                    for _ in 0..writes {
                        engine.transports().write_copy(one.key, b"hello");
                    }
                }
                flush_and_send(&mut engine);
                pair.iter_mut().for_each(|one| one.expect(5 * writes));
            });
            assert_eq!(count, 0, "{}", backend.as_str());
        }
        assert!(engine.stats().direct_sends < ROUNDS);
    }
}

#[test]
fn written_bytes_objects_are_sent_without_a_further_allocation() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let mut pair = [connection(&mut engine), connection(&mut engine)];
        let count = allocations_a_round(|| {
            for one in &pair {
                engine
                    .transports()
                    .write(one.key, Bytes::copy_from_slice(b"hello"));
            }
            flush_and_send(&mut engine);
            pair.iter_mut().for_each(|one| one.expect(5));
        });
        assert_eq!(count, 2, "{}: one each", backend.as_str());
    }
}

#[test]
fn a_head_and_a_body_are_sent_without_an_allocation() {
    let body = Bytes::from_static(&[b'x'; 8192]);
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let mut pair = [connection(&mut engine), connection(&mut engine)];
        let count = allocations_a_round(|| {
            for one in &pair {
                engine.transports().write_copy(one.key, b"head");
                engine.transports().write(one.key, body.clone());
            }
            flush_and_send(&mut engine);
            pair.iter_mut().for_each(|one| one.expect(4 + 8192));
        });
        assert_eq!(count, 0, "{}", backend.as_str());
    }
}

#[test]
fn a_small_write_behind_a_pending_send_allocates_at_most_once() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let mut one = stalled(&mut engine);
        let count = allocations_a_round(|| {
            assert_eq!(
                engine.transports().write_copy(one.key, b"hello"),
                WriteOutcome::Queued
            );
            iterate(&mut engine, Duration::ZERO, |_, _| {});
        });
        assert!(count <= 1, "{}: {count}", backend.as_str());
        // The socket's buffer was full, and all bytes arrive nevertheless.
        let waiting = engine.stats().write_queue_bytes;
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            one.peer.read_to_end(&mut got).map(|_| got)
        });
        iterate_until(
            &mut engine,
            |_, _| {},
            |engine| engine.stats().write_queue_bytes == 0,
        );
        engine
            .transports()
            .finish_writing(one.key)
            .expect("half-closed");
        let got = reader.join().expect("reader").expect("read");
        let hellos = b"hello".repeat((WARMING_UP + ROUNDS) as usize);
        assert!(waiting >= hellos.len() && got.ends_with(&hellos));
    }
}

/// A connection whose socket is full, with a send in flight.
fn stalled(engine: &mut Engine) -> Connection {
    let one = connection(engine);
    engine.transports().set_marks(one.key, 1 << 20, 4 << 20);
    let filler = [0; 65536];
    while net::send_pieces(one.fd.as_raw_fd(), [&filler[..]].into_iter()).is_ok() {}
    engine
        .transports()
        .write(one.key, Bytes::from_static(&[0; 65536]));
    iterate(engine, Duration::ZERO, |_, _| {});
    assert!(engine.stats().write_queue_bytes > 0);
    one
}

const WARMING_UP: u64 = 600;
const ROUNDS: u64 = 1_000;
