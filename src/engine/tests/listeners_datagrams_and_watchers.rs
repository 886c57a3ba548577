//! Listeners, datagram sockets and watchers on the engine, both backends.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::common::{BACKENDS, engine, events_of_end, iterate, iterate_until};
use bytes::Bytes;
use uringcore_engine::{DatagramSize, Direction, EngineEvent, SharedState, WriteOutcome};
use uringcore_io::{Errno, FileOutcome, FileRequest, Outcome, ReadTarget, SendMsg, SockAddr};

fn message(data: &'static [u8], to: std::net::SocketAddr) -> SendMsg {
    SendMsg {
        data: Bytes::from_static(data),
        to: Some(SockAddr::from(to)),
        segment_size: None,
        ecn: None,
        src_ip: None,
    }
}

/// A datagram for a connected socket, without an address.
fn connected(data: &[u8]) -> SendMsg {
    SendMsg {
        data: Bytes::copy_from_slice(data),
        to: None,
        segment_size: None,
        ecn: None,
        src_ip: None,
    }
}

#[test]
fn a_stopped_listener_frees_its_address_at_once() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("nonblocking");
        let addr = listener.local_addr().expect("address");
        let key = engine.listeners().open(listener.as_raw_fd());
        let _client = TcpStream::connect(addr).expect("connect");
        let mut accepted: Vec<OwnedFd> = Vec::new();
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while accepted.is_empty() {
            assert!(std::time::Instant::now() < end);
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                if let EngineEvent::Accepted { fd, .. } = event {
                    accepted.push(fd);
                }
            });
        }
        engine.listeners().stop(key).expect("stop");
        drop(listener);
        assert!(
            TcpStream::connect(addr).is_err(),
            "{}: still listening",
            backend.as_str()
        );
        iterate_until(
            &mut engine,
            |_, _| {},
            |engine| engine.stats().listeners == 0,
        );
        assert_eq!(engine.stats().driver.in_flight, 0);
    }
}

#[test]
fn datagrams_go_both_ways_and_the_socket_ends() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let ours = UdpSocket::bind("127.0.0.1:0").expect("bind");
        ours.set_nonblocking(true).expect("nonblocking");
        let addr = ours.local_addr().expect("address");
        let peer = UdpSocket::bind("127.0.0.1:0").expect("bind");
        peer.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("timeout");
        let key = engine.transports().open_datagram(
            ours.as_raw_fd(),
            DatagramSize::Buffer,
            SharedState::default(),
        );
        engine.transports().start(key);
        peer.send_to(b"ping", addr).expect("send");
        let mut senders = Vec::new();
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while senders.is_empty() {
            assert!(std::time::Instant::now() < end);
            iterate(&mut engine, Duration::from_millis(20), |engine, event| {
                if let EngineEvent::DatagramReceived { datagram, .. } = event {
                    assert_eq!(datagram.payload(), b"ping");
                    let sender = datagram.remote().expect("an internet address");
                    senders.push(sender);
                    assert_eq!(
                        engine
                            .transports()
                            .send_datagram(key, message(b"pong", sender)),
                        WriteOutcome::Queued
                    );
                }
            });
        }
        engine.transports().close(key);
        let reported = events_of_end(&mut engine, key, OwnedFd::from(ours));
        assert_eq!(reported, ["lost", "closed"]);
        let mut buf = [0; 16];
        let (count, from) = peer.recv_from(&mut buf).expect("the answer");
        assert_eq!((&buf[..count], from), (&b"pong"[..], addr));
        assert_eq!(engine.stats().driver.in_flight, 0);
    }
}

#[test]
fn a_datagram_queue_is_bounded_by_its_watermark() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (ours, peer) = UnixDatagram::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        peer.set_nonblocking(true).expect("nonblocking");
        let key = engine.transports().open_datagram(
            ours.as_raw_fd(),
            DatagramSize::Large,
            SharedState::default(),
        );
        let mut sent = 0;
        // Datagrams that the socket accepts at once are not queued, so the socket is filled first.
        while engine
            .transports()
            .send_datagram(key, connected(&[7; 1000]))
            == WriteOutcome::Queued
        {
            sent += 1;
            assert!(sent < 10_000, "the queue has no bound");
        }
        let queued = engine.stats().write_queue_bytes;
        assert!((64 * 1024..65 * 1024 + 1008).contains(&queued), "{queued}");
        let mut resumed = false;
        let mut buf = [0; 1000];
        iterate_until(
            &mut engine,
            |_, event| resumed |= matches!(event, EngineEvent::Writable { .. }),
            |engine| {
                while peer.recv(&mut buf).is_ok() {}
                engine.stats().write_queue_bytes == 0
            },
        );
        assert!(resumed, "{}", backend.as_str());
    }
}

#[test]
fn datagrams_keep_their_order_however_full_the_socket() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        // Two bound sockets instead of a socket pair, so that the sender's buffer is full before the receiver's.
        let name = format!(
            "uringcore-order-{}-{}",
            std::process::id(),
            backend.as_str()
        );
        let addr = SocketAddr::from_abstract_name(name).expect("name");
        let peer = UnixDatagram::bind_addr(&addr).expect("bind");
        let ours = UnixDatagram::unbound().expect("socket");
        ours.connect_addr(&addr).expect("connect");
        ours.set_nonblocking(true).expect("nonblocking");
        peer.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("timeout");
        let key = engine.transports().open_datagram(
            ours.as_raw_fd(),
            DatagramSize::Large,
            SharedState::default(),
        );
        // The queue of a Unix socket holds only a few datagrams, so most of these have to wait for room.
        let count = 3000u32;
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            let mut buf = [0; 16];
            while got.len() < count as usize {
                let size = peer.recv(&mut buf).expect("the next datagram");
                got.push(u32::from_le_bytes(buf[..size].try_into().expect("four")));
            }
            got
        });
        let mut next = 0u32;
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while next < count {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            // The number of datagrams in a loop iteration varies from one to many.
            for _ in 0..(next % 97).min(count - next) + 1 {
                if next < count {
                    engine
                        .transports()
                        .send_datagram(key, connected(&next.to_le_bytes()));
                    next += 1;
                }
            }
            iterate(&mut engine, Duration::ZERO, |_, _| {});
        }
        iterate_until(
            &mut engine,
            |_, _| {},
            |engine| engine.stats().write_queue_bytes == 0,
        );
        let got = reader.join().expect("reader");
        assert!(got.iter().copied().eq(0..count), "{}", backend.as_str());
    }
}

#[test]
fn a_large_datagram_arrives_whole_and_waits_for_a_paused_reader() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (ours, peer) = UnixDatagram::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        let key = engine.transports().open_datagram(
            ours.as_raw_fd(),
            DatagramSize::Large,
            SharedState::default(),
        );
        engine.transports().start(key);
        let sent: Vec<u8> = (0..150_000u32).map(|i| (i % 253) as u8).collect();
        peer.send(&sent).expect("send");
        peer.send(b"").expect("send");
        let mut got = Vec::new();
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while got.is_empty() {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            iterate(&mut engine, Duration::from_millis(20), |engine, event| {
                if let EngineEvent::DatagramReceived { datagram, .. } = event {
                    got.push(datagram.payload().to_vec());
                    engine.transports().pause_reading(key);
                }
            });
        }
        for _ in 0..3 {
            iterate(&mut engine, Duration::from_millis(5), |_, event| {
                assert!(!matches!(event, EngineEvent::DatagramReceived { .. }));
            });
        }
        engine.transports().resume_reading(key);
        while got.len() < 2 {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                if let EngineEvent::DatagramReceived { datagram, .. } = event {
                    assert_eq!(datagram.raw_remote().len(), 0, "an unnamed sender");
                    got.push(datagram.payload().to_vec());
                }
            });
        }
        assert!(got == [sent, Vec::new()], "{}", backend.as_str());
        drop(peer);
    }
}

#[test]
fn a_watcher_is_level_triggered_until_it_is_removed() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let ours = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let peer = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let fd = ours.as_raw_fd();
        engine.watchers().add(fd, Direction::Read);
        peer.send_to(b"x", ours.local_addr().expect("address"))
            .expect("send");
        let mut fired = 0;
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while fired < 5 {
            assert!(std::time::Instant::now() < end);
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                if let EngineEvent::PollReady(ready) = event {
                    assert_eq!((ready.fd, ready.direction), (fd, Direction::Read));
                    fired += 1; // the datagram is never read
                }
            });
        }
        assert!(
            engine
                .watchers()
                .remove(fd, Direction::Read)
                .expect("unwatch")
        );
        assert!(
            !engine
                .watchers()
                .remove(fd, Direction::Read)
                .expect("unwatch")
        );
        for _ in 0..5 {
            iterate(&mut engine, Duration::from_millis(1), |_, event| {
                assert!(
                    !matches!(event, EngineEvent::PollReady(_)),
                    "{}",
                    backend.as_str()
                );
            });
        }
        assert_eq!(engine.stats().driver.in_flight, 0);
    }
}

#[test]
fn a_new_watcher_gets_no_event_of_its_predecessor() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let ours = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let peer = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let fd = ours.as_raw_fd();
        for _ in 0..100 {
            engine.watchers().add(fd, Direction::Read);
            iterate(&mut engine, Duration::ZERO, |_, _| {
                panic!("nothing is readable")
            });
            assert!(
                engine
                    .watchers()
                    .remove(fd, Direction::Read)
                    .expect("unwatch")
            );
        }
        engine.watchers().add(fd, Direction::Read);
        peer.send_to(b"x", ours.local_addr().expect("address"))
            .expect("send");
        let mut fired = false;
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while !fired {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                fired |= matches!(event, EngineEvent::PollReady(_));
            });
        }
    }
}

#[test]
fn an_operation_completes_once_and_frees_its_key() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (reader, writer) = std::io::pipe().expect("pipe");
        uringcore_io::net::set_nonblocking(reader.as_raw_fd(), true).expect("nonblocking");
        let read = |engine: &mut uringcore_engine::Engine| {
            let key = engine.operations().reserve();
            assert!(engine.operations().start(key, |driver, token| {
                let request = FileRequest::Read {
                    fd: reader.as_raw_fd(),
                    target: ReadTarget::allocate(8),
                    offset: None,
                    kernel_thread: false,
                };
                driver.file(Box::new(request), token)
            }));
            key
        };
        let mut outcomes = Vec::new();
        let first = read(&mut engine);
        std::io::Write::write_all(&mut &writer, b"abc").expect("write");
        while outcomes.is_empty() {
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                if let EngineEvent::OpDone { op, outcome } = event {
                    outcomes.push((op, outcome));
                }
            });
        }
        let (key, outcome) = outcomes.pop().expect("an outcome");
        assert_eq!(key, first);
        assert!(matches!(read_of(outcome), (Ok(3), bytes) if bytes == b"abc\0\0\0\0\0"));
        assert_eq!(engine.stats().ops, 0);

        // An operation that is cancelled before it was started has no event. One that is cancelled later completes
        // with ECANCELED.
        let unstarted = engine.operations().reserve();
        assert!(engine.operations().cancel(unstarted));
        assert!(
            !engine
                .operations()
                .start(unstarted, |_, _| panic!("started"))
        );
        let second = read(&mut engine);
        assert_ne!(second, first);
        iterate(&mut engine, Duration::ZERO, |_, _| panic!("too early"));
        assert!(!engine.operations().cancel(second));
        while outcomes.is_empty() {
            iterate(&mut engine, Duration::from_millis(20), |_, event| {
                if let EngineEvent::OpDone { op, outcome } = event {
                    outcomes.push((op, outcome));
                }
            });
        }
        let (key, outcome) = outcomes.pop().expect("an outcome");
        assert_eq!(key, second);
        assert!(matches!(read_of(outcome), (Err(Errno::CANCELED), _)));
        assert_eq!(engine.stats().ops, 0);
    }
}

fn read_of(outcome: Outcome) -> (Result<u32, Errno>, Vec<u8>) {
    match outcome {
        Outcome::File(outcome) => match *outcome {
            FileOutcome::Read(result, target) => (result, *target.into_owner().downcast().unwrap()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
