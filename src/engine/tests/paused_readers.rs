//! Readers that pause, on both backends: received data keeps its order, is copied once, and is bounded.

use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::common::{BACKENDS, engine, iterate, open, receive_all_due, tcp_pair};
use uringcore_engine::{DatagramSize, Engine, EngineEvent, SharedState, StreamBytes};
use uringcore_io::{Backend, DriverConfig};

/// Returns bytes of a pattern in which a missing, repeated or misplaced piece would be noticed.
fn pattern(size: usize) -> Vec<u8> {
    (0..size)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// Runs loop iterations until at least `enough` bytes were received. The reader takes one piece, pauses, and resumes a
/// loop iteration later. `seen` inspects the engine after each loop iteration.
fn read_piece_by_piece(
    backend: Backend,
    engine: &mut Engine,
    fd: &OwnedFd,
    enough: usize,
    mut seen: impl FnMut(&Engine),
) -> Vec<u8> {
    let key = open(engine, fd);
    let mut heard = Vec::new();
    let end = Instant::now() + Duration::from_secs(30);
    while heard.len() < enough {
        assert!(
            Instant::now() < end,
            "{}: {}",
            backend.as_str(),
            heard.len()
        );
        iterate(engine, Duration::from_millis(20), |engine, event| {
            if let EngineEvent::StreamData { data, .. } = event {
                heard.extend_from_slice(&data);
                engine.transports().pause_reading(key);
            }
        });
        engine.transports().resume_reading(key);
        seen(engine);
    }
    heard
}

#[test]
fn a_reader_that_pauses_after_each_piece_has_each_byte_copied_at_most_once() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let sent = pattern(24 << 20);
        let copy = sent.clone();
        let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
        let heard = read_piece_by_piece(backend, &mut engine, &fd, sent.len(), |_| ());
        assert!(heard == sent, "{}", backend.as_str());
        let held = engine.stats().bytes_held;
        assert!(held <= sent.len() as u64, "{}: {held}", backend.as_str());
        drop(writer.join().expect("writer").expect("written"));
    }
}

/// While there is a backlog no receive is armed. So the backlog has at most the bytes that one receive delivers until
/// it is cancelled: those in all buffers of the pool, and in buffers that return to the pool in the meantime.
#[test]
fn the_backlog_is_bounded_by_the_receive_buffers() {
    for backend in BACKENDS {
        let config = DriverConfig {
            backend: Some(backend),
            ..DriverConfig::default()
        };
        let bound = 2 * usize::from(config.stream_buffers) * config.stream_buffer_size as usize;
        let mut engine = Engine::new(&config).expect("engine");
        let (fd, mut peer) = tcp_pair();
        let sent = pattern(8 * bound);
        let copy = sent.clone();
        let writer = std::thread::spawn(move || peer.write_all(&copy).map(|()| peer));
        let mut most = 0;
        let heard = read_piece_by_piece(backend, &mut engine, &fd, sent.len(), |engine| {
            most = most.max(engine.stats().backlog_bytes);
        });
        assert!(heard == sent, "{}", backend.as_str());
        assert!(most <= bound, "{}: {most} of {bound}", backend.as_str());
        drop(writer.join().expect("writer").expect("written"));
    }
}

/// A host may leave events in the queue if an exception ends its run. Data that arrives after the reader has paused
/// comes after these events.
#[test]
fn queued_data_precedes_data_that_arrives_during_a_pause() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        iterate(&mut engine, Duration::ZERO, |_, _| {});
        let mut arrive = |engine: &mut Engine, letter: &[u8]| {
            peer.write_all(letter).expect("write");
            // The sleep lets the piece reach the socket. `enter` without `process` then makes one completion of this
            // piece, so that two pieces are two completions.
            std::thread::sleep(Duration::from_millis(5));
            engine.enter(Some(Duration::ZERO)).expect("enter");
        };
        arrive(&mut engine, b"1");
        arrive(&mut engine, b"2");
        engine.process(Instant::now());
        arrive(&mut engine, b"3");
        engine.transports().pause_reading(key);
        engine.process(Instant::now());
        let end = Instant::now() + Duration::from_secs(10);
        let mut heard = Vec::new();
        while heard.len() < 3 {
            assert!(Instant::now() < end, "{}: {heard:?}", backend.as_str());
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                if let EngineEvent::StreamData { data, .. } = event {
                    heard.extend_from_slice(&data);
                }
            });
            engine.transports().resume_reading(key);
        }
        assert_eq!(heard, b"123", "{}", backend.as_str());
    }
}

#[test]
fn a_reader_that_pauses_after_each_datagram_has_each_copied_at_most_once() {
    for backend in BACKENDS {
        for size in [DatagramSize::Buffer, DatagramSize::Large] {
            let mut engine = engine(backend);
            let ours = UdpSocket::bind("127.0.0.1:0").expect("bind");
            ours.set_nonblocking(true).expect("nonblocking");
            let peer = UdpSocket::bind("127.0.0.1:0").expect("bind");
            let target = ours.local_addr().expect("address");
            let key =
                engine
                    .transports()
                    .open_datagram(ours.as_raw_fd(), size, SharedState::default());
            engine.transports().start(key);
            iterate(&mut engine, Duration::ZERO, |_, _| {});
            for number in 0..COUNT {
                peer.send_to(&number.to_be_bytes(), target).expect("send");
            }
            let mut heard = Vec::new();
            let end = Instant::now() + Duration::from_secs(10);
            while heard.len() < COUNT as usize {
                let name = backend.as_str();
                assert!(Instant::now() < end, "{name} {size:?}: {}", heard.len());
                iterate(&mut engine, Duration::from_millis(20), |engine, event| {
                    if let EngineEvent::DatagramReceived { datagram, .. } = event {
                        heard.push(u32::from_be_bytes(
                            datagram.payload().try_into().expect("four bytes"),
                        ));
                        engine.transports().pause_reading(key);
                    }
                });
                engine.transports().resume_reading(key);
            }
            assert!(heard.iter().copied().eq(0..COUNT), "{size:?}: {heard:?}");
            let held = engine.stats().datagrams_held;
            assert!(held <= u64::from(COUNT), "{}: {held}", backend.as_str());
        }
    }
}

/// The number of datagrams: they fit in a socket's receive queue, and a loop iteration receives only a small part of
/// them.
const COUNT: u32 = 200;

/// The host receives large data itself, until small data comes again. The end of the stream is reported afterwards,
/// and nothing is delivered to a paused reader.
#[test]
fn only_large_receives_are_left_to_the_host() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        // Sends a message and reads it completely. Returns a flag for each piece: true if the host received it itself.
        let exchange = |engine: &mut Engine, size: usize, pauses: bool| {
            let sent = pattern(size);
            let copy = sent.clone();
            let mut writing = peer.try_clone().expect("clone");
            let writer = std::thread::spawn(move || writing.write_all(&copy));
            let (mut heard, mut by_host) = (Vec::new(), Vec::new());
            let end = Instant::now() + Duration::from_secs(20);
            while heard.len() < sent.len() {
                assert!(
                    Instant::now() < end,
                    "{}: {}",
                    backend.as_str(),
                    heard.len()
                );
                iterate(engine, Duration::from_millis(20), |engine, event| {
                    if let EngineEvent::StreamData { data, .. } = event {
                        heard.extend_from_slice(&data);
                        by_host.push(matches!(data, StreamBytes::Copied(_)));
                        if pauses {
                            engine.transports().pause_reading(key);
                        }
                    }
                });
                engine.transports().resume_reading(key);
            }
            assert!(heard == sent, "{}", backend.as_str());
            writer.join().expect("writer").expect("written");
            by_host
        };
        exchange(&mut engine, 8 << 20, false);
        assert_eq!(engine.stats().bytes_held, 0);
        let by_host = exchange(&mut engine, 8 << 20, true);
        assert!(
            by_host.iter().all(|by_host| *by_host),
            "{}",
            backend.as_str()
        );
        assert_eq!(
            engine.stats().bytes_held,
            0,
            "nothing was received for a pause"
        );
        let mut by_host = Vec::new();
        for _ in 0..40 {
            by_host.extend(exchange(&mut engine, 100, false));
        }
        assert!(
            by_host[0] && !by_host[39],
            "{}: {by_host:?}",
            backend.as_str()
        );
        exchange(&mut engine, 1 << 20, false);
        drop(peer);
        let mut ended = false;
        let end = Instant::now() + Duration::from_secs(10);
        while !ended {
            assert!(Instant::now() < end, "{}", backend.as_str());
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                ended |= matches!(event, EngineEvent::StreamEof { .. });
            });
        }
    }
}

/// When a receive has filled its buffer, the stream receives once more at once. Only then the other streams receive.
#[test]
fn a_full_receive_is_followed_by_one_more_before_other_sockets() {
    const ROOM: usize = 4096;
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (one_fd, mut one_peer) = tcp_pair();
        let (other_fd, mut other_peer) = tcp_pair();
        let streams = [open(&mut engine, &one_fd), open(&mut engine, &other_fd)];
        let mut heard = [0, 0];
        let large = pattern(48 * 1024);
        one_peer.write_all(&large).expect("written");
        other_peer.write_all(&large).expect("written");
        while heard != [large.len(); 2] {
            iterate(&mut engine, Duration::from_secs(1), |_, event| {
                if let EngineEvent::StreamData { stream, data } = event {
                    heard[usize::from(stream == streams[1])] += data.len();
                }
            });
        }
        // From here on, both streams wait for data by a poll.
        iterate(&mut engine, Duration::ZERO, |_, _| {});
        one_peer.write_all(&large[..4 * ROOM]).expect("written");
        other_peer.write_all(&large[..4 * ROOM]).expect("written");
        let mut order = Vec::new();
        while order.len() < 8 {
            engine.flush(Instant::now());
            engine.enter(Some(Duration::from_secs(1))).expect("enter");
            engine.process(Instant::now());
            while let Some(event) = engine.next_event() {
                let EngineEvent::StreamReadable { stream, fd } = event else {
                    panic!("{}: another event", backend.as_str());
                };
                receive_all_due(&mut engine, stream, fd, ROOM, |_, _| order.push(stream));
            }
        }
        let (first, then) = (order[0], order[2]);
        assert_ne!(first, then, "{}", backend.as_str());
        let expected = [first, first, then, then].repeat(2);
        assert_eq!(order, expected, "{}", backend.as_str());
    }
}

/// A reader that waits a loop iteration gets one piece in each loop iteration, even if more has arrived.
#[test]
fn callbacks_that_a_reader_schedules_run_before_its_next_data() {
    for backend in BACKENDS {
        for room in [120 * 1024, 16 * 1024] {
            let mut engine = engine(backend);
            let (fd, mut peer) = tcp_pair();
            let stream = open(&mut engine, &fd);
            let large = pattern(200 * 1024);
            let mut heard = Vec::new();
            let writer = std::thread::spawn(move || {
                peer.write_all(&large).expect("written");
                (peer, large)
            });
            while heard.len() < 200 * 1024 {
                engine.flush(Instant::now());
                let is_due = engine.events_ready() > 0;
                let sleep = Duration::from_secs(u64::from(!is_due));
                engine.enter(Some(sleep)).expect("enter");
                engine.process(Instant::now());
                let mut pieces = 0;
                let mut hear = |engine: &mut Engine, data: StreamBytes| {
                    pieces += 1;
                    heard.extend_from_slice(&data);
                    engine.transports().wait_for_next_iteration(stream);
                };
                while let Some(event) = engine.next_event() {
                    match event {
                        EngineEvent::StreamData { data, .. } => hear(&mut engine, data),
                        EngineEvent::StreamReadable { fd, .. } => {
                            receive_all_due(&mut engine, stream, fd, room, &mut hear);
                        }
                        _ => panic!("{}: another event", backend.as_str()),
                    }
                }
                assert!(pieces <= 1, "{}: {pieces}", backend.as_str());
            }
            let (_peer, large) = writer.join().expect("written");
            assert!(heard == large, "{}", backend.as_str());
        }
    }
}
