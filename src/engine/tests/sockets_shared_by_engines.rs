//! Sockets that several engines share: connections and datagrams that one engine does not take stay for the others.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::common::{BACKENDS, engine, iterate, iterate_until};
use uringcore_engine::{
    Attempt, DatagramSize, Direction, Engine, EngineEvent, Key, OpQueueId, OpQueues, SharedState,
    SocketOp,
};
use uringcore_io::{Backend, Errno, Outcome};

const CLIENTS: usize = 10;

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.set_nonblocking(true).expect("nonblocking");
    listener
}

fn connect(listener: &TcpListener) -> TcpStream {
    TcpStream::connect(listener.local_addr().expect("address")).expect("connect")
}

/// Runs a loop iteration. Returns the number of connections that it accepts.
fn accepted_in_an_iteration(engine: &mut Engine) -> usize {
    let mut count = 0;
    iterate(engine, Duration::ZERO, |_, event| {
        count += usize::from(matches!(event, EngineEvent::Accepted { .. }));
    });
    count
}

fn iterate_until_accepted(engine: &mut Engine, wanted: usize) {
    let count = std::cell::Cell::new(0);
    iterate_until(
        engine,
        |_, event| {
            let is_one = matches!(event, EngineEvent::Accepted { .. });
            count.set(count.get() + usize::from(is_one));
        },
        |_| count.get() >= wanted,
    );
    assert_eq!(count.get(), wanted);
}

fn on_each_backend(test: impl Fn(Backend)) {
    for backend in BACKENDS {
        test(backend);
    }
}

#[test]
fn a_blocked_engine_does_not_delay_clients() {
    on_each_backend(|backend| {
        let listener = listener();
        let mut engines = [engine(backend), engine(backend)];
        for engine in &mut engines {
            engine.listeners().open_shared(listener.as_raw_fd());
            iterate(engine, Duration::ZERO, |_, _| {});
        }
        for busy in 0..2 {
            let _clients: Vec<_> = (0..CLIENTS).map(|_| connect(&listener)).collect();
            iterate_until_accepted(&mut engines[1 - busy], CLIENTS);
            assert_eq!(
                accepted_in_an_iteration(&mut engines[busy]),
                0,
                "others have them"
            );
        }
    });
}

#[test]
fn a_shared_listener_accepts_one_client_an_iteration() {
    on_each_backend(|backend| {
        let listener = listener();
        let mut engine = engine(backend);
        engine.listeners().open_shared(listener.as_raw_fd());
        let _clients: Vec<_> = (0..CLIENTS).map(|_| connect(&listener)).collect();
        let mut counts = Vec::new();
        while counts.iter().sum::<usize>() < CLIENTS {
            counts.push(accepted_in_an_iteration(&mut engine));
        }
        assert_eq!(counts.into_iter().max(), Some(1));
    });
}

#[test]
fn a_shared_listener_stopped_before_its_event_is_taken_accepts_no_client() {
    on_each_backend(|backend| {
        let listener = listener();
        let mut engine = engine(backend);
        let key = engine.listeners().open_shared(listener.as_raw_fd());
        let _client = connect(&listener);
        while engine.events_ready() == 0 {
            engine.flush(std::time::Instant::now());
            engine.enter(Some(Duration::from_secs(10))).expect("enter");
            engine.process(std::time::Instant::now());
        }
        engine.listeners().stop(key).expect("stop");
        assert!(engine.next_event().is_none());
        listener.accept().expect("the connection is still there");
        assert_eq!(engine.stats().listeners, 0);
    });
}

#[test]
fn a_listener_that_becomes_shared_loses_no_client() {
    on_each_backend(|backend| {
        let listener = listener();
        let mut busy = engine(backend);
        busy.listeners().open(listener.as_raw_fd());
        let _first = connect(&listener);
        iterate_until_accepted(&mut busy, 1);
        busy.share_sockets();
        for _ in 0..3 {
            iterate(&mut busy, Duration::ZERO, |_, _| {});
        }
        let mut other = engine(backend);
        other.listeners().open_shared(listener.as_raw_fd());
        let _clients: Vec<_> = (0..CLIENTS).map(|_| connect(&listener)).collect();
        iterate_until_accepted(&mut other, CLIENTS);
        let _last = connect(&listener);
        iterate_until_accepted(&mut busy, 1);
    });
}

#[test]
fn a_shared_datagram_socket_receives_one_datagram_an_iteration() {
    on_each_backend(|backend| {
        for size in [DatagramSize::Buffer, DatagramSize::Large] {
            let mut engine = engine(backend);
            let ours = UdpSocket::bind("127.0.0.1:0").expect("bind");
            ours.set_nonblocking(true).expect("nonblocking");
            let address = ours.local_addr().expect("address");
            let peer = UdpSocket::bind("127.0.0.1:0").expect("bind");
            for number in 0..4 {
                peer.send_to(&[number], address).expect("send");
            }
            let key =
                engine
                    .transports()
                    .open_datagram(ours.as_raw_fd(), size, SharedState::default());
            engine.transports().share_datagrams(key);
            engine.transports().start(key);
            let mut got = Vec::new();
            while got.len() < 2 {
                let before = got.len();
                iterate(&mut engine, Duration::from_secs(10), |_, event| {
                    if let EngineEvent::DatagramReceived { datagram, .. } = event {
                        assert_eq!(datagram.remote(), peer.local_addr().ok());
                        got.push(datagram.payload().to_vec());
                    }
                });
                assert!(got.len() <= before + 1);
            }
            // The socket becomes readable again, and is closed before the host takes the event.
            while engine.events_ready() == 0 {
                engine.flush(std::time::Instant::now());
                engine.enter(Some(Duration::from_secs(10))).expect("enter");
                engine.process(std::time::Instant::now());
            }
            engine.transports().close(key);
            iterate(&mut engine, Duration::ZERO, |engine, event| {
                assert!(!matches!(event, EngineEvent::DatagramReceived { .. }));
                if let EngineEvent::Lost { .. } = event {
                    engine.transports().release(key, None);
                }
            });
            assert_eq!(got, [[0], [1]]);
            let mut rest = [0; 2];
            assert_eq!(ours.recv(&mut rest).expect("the third"), 1);
            assert_eq!(rest[0], 2);
        }
    });
}

#[test]
fn a_failed_attempt_keeps_its_place_in_the_queue() {
    let listener = listener();
    let queue_id = OpQueueId::new(listener.as_raw_fd(), Direction::Read);
    let key = |index| Key {
        index,
        generation: 0,
    };
    let readable = Outcome::Done(Ok(libc::POLLIN as u32));
    let mut op_queues = OpQueues::default();
    op_queues.join(key(0), queue_id.fd, 1, SocketOp::Accept);
    op_queues.join(key(1), queue_id.fd, 1, SocketOp::RecvFrom(10));
    assert_eq!(op_queues.take_start().expect("the first").key, key(0));
    assert!(op_queues.attempt_of(queue_id, key(1), &readable).is_none());
    let failed = Outcome::Done(Err(Errno::CANCELED));
    assert!(op_queues.attempt_of(queue_id, key(0), &failed).is_none());
    let attempt = op_queues
        .attempt_of(queue_id, key(0), &readable)
        .expect("an attempt");
    assert!(matches!(attempt, Attempt::Connection));
    assert!(
        attempt.make(queue_id.fd).is_none(),
        "another engine was faster"
    );
    op_queues.go_on(queue_id, key(2), attempt.into_op());
    let again = op_queues.take_start().expect("it waits again");
    assert!(again.key == key(2) && matches!(again.op, SocketOp::Accept));
    assert!(
        op_queues.take_start().is_none(),
        "the other engine is in the queue"
    );
    let client = connect(&listener);
    let Some(Outcome::AcceptedFrom(Ok((_, from)))) = attempt.make(queue_id.fd) else {
        panic!("no connection");
    };
    assert_eq!(from.address().as_socket(), client.local_addr().ok());
}

#[test]
fn one_accept_an_iteration_is_tried_at_once() {
    let queue_id = OpQueueId::read(7);
    let mut op_queues = OpQueues::default();
    assert!(op_queues.may_accept(queue_id));
    op_queues.tried(queue_id.fd, true);
    assert!(!op_queues.may_accept(queue_id));
    assert!(op_queues.skip_iteration());
    assert!(op_queues.may_accept(queue_id));
}
