//! Queues of operations on a host's sockets: their order, when a system call is tried, and when the host checks its
//! sockets.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::common::{BACKENDS, engine, iterate, tcp_pair};
use bytes::Bytes;
use uringcore_engine::{Engine, EngineEvent, Key, OpQueueId, OpQueues, SocketOp, Start};
use uringcore_io::{Backend, Errno, Outcome};

const FD: RawFd = 7;
const SOCKET: usize = 1;

fn key(index: u32) -> Key {
    Key {
        index,
        generation: 0,
    }
}

fn send(data: &'static [u8]) -> SocketOp {
    SocketOp::Send(Bytes::from_static(data))
}

/// The outcome of a receive without data. Only the driver can make one with data.
fn nothing() -> Outcome {
    Outcome::Received(Err(Errno::CANCELED))
}

/// The indexes of the keys whose operations are to be started.
fn starts(op_queues: &mut OpQueues) -> Vec<u32> {
    std::iter::from_fn(|| op_queues.take_start())
        .map(|start| start.key.index)
        .collect()
}

fn everyone(_: Key) -> bool {
    true
}

// Queues ----------------------------------------------------------------------------------------------

#[test]
fn directions_and_sockets_do_not_wait_for_each_other() {
    let mut op_queues = OpQueues::default();
    op_queues.join(key(1), FD, SOCKET, SocketOp::Recv(10));
    op_queues.join(key(2), FD, SOCKET, send(b"x"));
    op_queues.join(key(3), FD + 1, SOCKET + 1, SocketOp::Recv(10));
    assert_eq!(starts(&mut op_queues), [1, 2, 3]);
}

#[test]
fn operations_of_one_direction_start_one_by_one() {
    let mut op_queues = OpQueues::default();
    let ops = [
        SocketOp::Recv(1),
        SocketOp::RecvFrom(1),
        SocketOp::Accept,
        SocketOp::Recv(1),
    ];
    for (index, op) in (0..).zip(ops) {
        op_queues.join(key(index), FD, SOCKET, op);
    }
    for index in 0..4 {
        assert_eq!(starts(&mut op_queues), [index]);
        assert_eq!(
            op_queues.current(OpQueueId::read(FD)),
            Some((key(index), SOCKET))
        );
        op_queues.complete(OpQueueId::read(FD), key(index), &nothing(), everyone);
    }
    assert_eq!(starts(&mut op_queues), []);
    assert_eq!(op_queues.current(OpQueueId::read(FD)), None);
    assert!(op_queues.skip_iteration());
}

#[test]
fn a_cancelled_operation_is_skipped_in_its_queue() {
    let mut op_queues = OpQueues::default();
    for index in 0..5 {
        op_queues.join(key(index), FD, SOCKET, SocketOp::Recv(1));
    }
    assert_eq!(starts(&mut op_queues), [0]);
    let gone = HashSet::from([key(1), key(2), key(4)]);
    let is_wanted = |key| !gone.contains(&key);
    op_queues.complete(OpQueueId::read(FD), key(0), &nothing(), is_wanted);
    assert_eq!(starts(&mut op_queues), [3]);
    op_queues.complete(OpQueueId::read(FD), key(3), &nothing(), is_wanted);
    assert_eq!(op_queues.current(OpQueueId::read(FD)), None);
    assert!(op_queues.skip_iteration(), "those who went are counted out");
}

#[test]
fn a_cancelled_operation_does_not_free_the_queue_when_it_completes() {
    let mut op_queues = OpQueues::default();
    op_queues.join(key(0), FD, SOCKET, SocketOp::Recv(1));
    op_queues.leave(OpQueueId::read(FD), key(0), everyone);
    op_queues.join(key(1), FD, SOCKET + 1, SocketOp::Recv(1));
    op_queues.complete(OpQueueId::read(FD), key(0), &nothing(), everyone);
    op_queues.leave(OpQueueId::read(FD), key(0), everyone);
    assert_eq!(
        op_queues.current(OpQueueId::read(FD)),
        Some((key(1), SOCKET + 1)),
        "the number's new owner keeps it"
    );
    // The first operation was cancelled, so the host removes it instead of starting it.
    assert_eq!(starts(&mut op_queues), [0, 1]);
}

#[test]
fn the_next_operation_comes_from_the_queue_of_the_same_socket() {
    let mut op_queues = OpQueues::default();
    op_queues.join(key(0), FD, SOCKET, SocketOp::Recv(1));
    op_queues.join(key(1), FD, SOCKET + 1, SocketOp::Recv(1));
    op_queues.leave(OpQueueId::read(FD), key(0), everyone);
    assert_eq!(
        op_queues.current(OpQueueId::read(FD)),
        Some((key(1), SOCKET + 1))
    );
}

// Short sends ----------------------------------------------------------------------------------------

#[test]
fn a_short_send_continues_before_later_operations() {
    let mut op_queues = OpQueues::default();
    let queue_id = OpQueueId::write(FD);
    op_queues.join(key(0), FD, SOCKET, send(b"abcdef"));
    op_queues.join(key(1), FD, SOCKET, send(b"later"));
    assert_eq!(starts(&mut op_queues), [0]);
    let rest = op_queues.rest_of(queue_id, key(0), &Outcome::Done(Ok(4)));
    let rest = SocketOp::Send(rest.expect("two bytes"));
    op_queues.go_on(queue_id, key(2), rest);
    match op_queues.take_start() {
        Some(Start {
            key: again,
            op: SocketOp::Send(data),
            ..
        }) => assert_eq!((again, &data[..]), (key(2), &b"ef"[..])),
        _ => panic!("no send"),
    }
    assert_eq!(starts(&mut op_queues), [], "the next one waits still");
    assert_eq!(op_queues.current(queue_id), Some((key(2), SOCKET)));
    assert_eq!(
        op_queues.rest_of(queue_id, key(2), &Outcome::Done(Ok(2))),
        None
    );
    op_queues.complete(queue_id, key(2), &Outcome::Done(Ok(2)), everyone);
    assert_eq!(starts(&mut op_queues), [1]);
}

#[test]
fn complete_failed_and_datagram_sends_have_no_rest() {
    let mut op_queues = OpQueues::default();
    let queue_id = OpQueueId::write(FD);
    op_queues.join(key(0), FD, SOCKET, send(b"abc"));
    for outcome in [Outcome::Done(Ok(3)), Outcome::Done(Err(Errno(libc::EPIPE)))] {
        assert_eq!(op_queues.rest_of(queue_id, key(0), &outcome), None);
    }
    let short = Outcome::Done(Ok(1));
    assert_eq!(
        op_queues.rest_of(queue_id, key(9), &short),
        None,
        "another one's"
    );
    op_queues.leave(queue_id, key(0), everyone);
    assert_eq!(
        op_queues.rest_of(queue_id, key(0), &short),
        None,
        "it has left"
    );
    // A message is sent whole or not at all.
    let message = SocketOp::SendTo(Bytes::from_static(b"abc"), None);
    op_queues.join(key(1), FD, SOCKET, message);
    assert_eq!(op_queues.rest_of(queue_id, key(1), &short), None);
}

// Tries ----------------------------------------------------------------------------------------------

#[test]
fn a_system_call_is_tried_unless_that_direction_is_busy() {
    let mut op_queues = OpQueues::default();
    op_queues.join(key(0), FD, SOCKET, SocketOp::Recv(1));
    assert!(!op_queues.may_try(OpQueueId::read(FD)));
    assert!(op_queues.may_try(OpQueueId::write(FD)));
    op_queues.leave(OpQueueId::read(FD), key(0), everyone);
    assert!(op_queues.may_try(OpQueueId::read(FD)));
}

#[test]
fn repeated_immediate_results_wait_for_the_next_iteration() {
    let mut op_queues = OpQueues::default();
    let answers = |op_queues: &mut OpQueues| {
        let tries = (0..100).filter(|_| op_queues.may_try(OpQueueId::read(FD)));
        tries.count()
    };
    assert_eq!(answers(&mut op_queues), 16);
    assert!(
        !op_queues.may_try(OpQueueId::write(FD)),
        "of one descriptor"
    );
    assert!(op_queues.may_try(OpQueueId::read(FD + 1)));
    assert!(op_queues.skip_iteration());
    assert_eq!(answers(&mut op_queues), 16);
    op_queues.begin_iteration(Instant::now);
    assert_eq!(answers(&mut op_queues), 16);
}

/// Returns the number of receives that are queued in the ring before a receive is tried by a system call again.
fn operations_before_a_try(op_queues: &mut OpQueues) -> u32 {
    let queue_id = OpQueueId::read(FD);
    let mut count = 0;
    loop {
        op_queues.begin_iteration(Instant::now);
        if op_queues.may_try(queue_id) {
            return count;
        }
        op_queues.join(key(count), FD, SOCKET, SocketOp::Recv(10));
        op_queues.complete(queue_id, key(count), &nothing(), everyone);
        count += 1;
        assert!(count < 1000, "never tried again");
    }
}

#[test]
fn failed_tries_become_rarer_until_one_succeeds() {
    let mut op_queues = OpQueues::default();
    let mut pauses = Vec::new();
    for _ in 0..7 {
        op_queues.tried(FD, false);
        pauses.push(operations_before_a_try(&mut op_queues));
    }
    assert_eq!(pauses, [1, 3, 7, 15, 31, 31, 31]);
    assert!(
        op_queues.may_try(OpQueueId::write(FD)),
        "sends are tried all along"
    );
    op_queues.tried(FD, true);
    op_queues.tried(FD, false);
    assert_eq!(operations_before_a_try(&mut op_queues), 1);
}

// Checks ---------------------------------------------------------------------------------------------

#[test]
fn sockets_are_checked_periodically_and_once_before_a_long_wait() {
    let mut op_queues = OpQueues::default();
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    op_queues.join(key(0), FD, SOCKET, SocketOp::Recv(1));
    op_queues.join(key(1), FD, SOCKET, SocketOp::Recv(1));
    op_queues.join(key(2), FD, SOCKET, send(b"x"));
    assert_eq!(op_queues.begin_iteration(|| at(0)), []);
    assert_eq!(op_queues.next_check(), Some(at(100)));
    assert_eq!(op_queues.begin_iteration(|| at(99)), []);
    let (read, write) = (OpQueueId::read(FD), OpQueueId::write(FD));
    let all = [(key(0), read), (key(1), read), (key(2), write)];
    assert_eq!(op_queues.begin_iteration(|| at(100)), all);
    // No callback has run since the last check, so the program has closed no socket.
    assert_eq!(op_queues.next_check(), None);
    assert_eq!(op_queues.begin_iteration(|| at(150)), []);
    assert_eq!(op_queues.next_check(), Some(at(200)));
    assert_eq!(op_queues.begin_iteration(|| at(5000)), all);
}

#[test]
fn without_operations_the_clock_is_not_read() {
    let mut op_queues = OpQueues::default();
    let nobody = || -> Instant { panic!("the clock was read") };
    assert_eq!(op_queues.begin_iteration(nobody), []);
    op_queues.join(key(0), FD, SOCKET, SocketOp::Recv(1));
    op_queues.begin_iteration(Instant::now);
    op_queues.leave(OpQueueId::read(FD), key(0), everyone);
    assert_eq!(op_queues.begin_iteration(nobody), []);
    assert_eq!(op_queues.next_check(), None);
}

#[test]
fn a_host_that_was_stopped_checks_its_sockets_at_once() {
    let mut op_queues = OpQueues::default();
    let start = Instant::now();
    op_queues.join(key(0), FD, SOCKET, SocketOp::Recv(1));
    assert_eq!(op_queues.begin_iteration(|| start), []);
    op_queues.check_now(start);
    assert_eq!(
        op_queues.begin_iteration(|| start),
        [(key(0), OpQueueId::read(FD))],
        "a number may have changed its owner"
    );
}

// Memory ---------------------------------------------------------------------------------------------

#[test]
fn a_high_descriptor_number_takes_the_memory_of_one_entry() {
    let mut op_queues = OpQueues::default();
    for fd in [1_000_000, RawFd::MAX, -1] {
        assert!(op_queues.may_try(OpQueueId::read(fd)));
        op_queues.tried(fd, false);
        op_queues.join(key(0), fd, SOCKET, SocketOp::Recv(1));
        assert_eq!(starts(&mut op_queues), [0]);
        op_queues.leave(OpQueueId::read(fd), key(0), everyone);
    }
    assert_eq!(op_queues.descriptors(), 3);
}

#[test]
fn unused_descriptors_are_forgotten() {
    let mut op_queues = OpQueues::default();
    let mut peak = 0;
    // One operation waits all the time. Each of the other descriptors is used in only one loop iteration.
    op_queues.join(key(0), 0, SOCKET, SocketOp::Recv(1));
    for fd in 1..100_000 {
        op_queues.may_try(OpQueueId::read(fd));
        op_queues.begin_iteration(Instant::now);
        peak = peak.max(op_queues.descriptors());
    }
    assert!(peak < 2_000, "{peak}");
    assert_eq!(
        op_queues.current(OpQueueId::read(0)),
        Some((key(0), SOCKET))
    );
    op_queues.leave(OpQueueId::read(0), key(0), everyone);
    assert_eq!(starts(&mut op_queues), [0]);
    // Loop iterations without work remove the entries of unused descriptors, too.
    for _ in 0..2_000 {
        if !op_queues.skip_iteration() {
            op_queues.begin_iteration(Instant::now);
        }
    }
    assert_eq!(op_queues.descriptors(), 0);
    assert!(op_queues.skip_iteration());
}

#[test]
fn cancelled_operations_are_removed_from_the_queue() {
    let mut op_queues = OpQueues::default();
    op_queues.join(key(0), FD, SOCKET, SocketOp::Recv(1));
    for index in 1..1000 {
        op_queues.join(key(index), FD, SOCKET, SocketOp::Recv(1));
    }
    let start = Instant::now();
    op_queues.begin_iteration(|| start);
    assert_eq!(
        op_queues
            .begin_iteration(|| start + Duration::from_secs(1))
            .len(),
        1000
    );
    op_queues.drop_unwanted(|key| [0, 500].contains(&key.index));
    let looked_at = op_queues.begin_iteration(|| start + Duration::from_secs(2));
    assert_eq!(looked_at.len(), 2);
    assert_eq!(starts(&mut op_queues), [0]);
    op_queues.complete(OpQueueId::read(FD), key(0), &nothing(), everyone);
    assert_eq!(starts(&mut op_queues), [500]);
    op_queues.leave(OpQueueId::read(FD), key(500), everyone);
    assert!(op_queues.skip_iteration(), "those who went are counted out");
}

// Tests with sockets ---------------------------------------------------------------------------------

/// A host that waits for the results of its operations and sends the rest after short sends.
struct Host {
    engine: Engine,
    op_queues: OpQueues,
    done: Vec<(Key, Outcome)>,
}

impl Host {
    fn new(backend: Backend) -> Self {
        Self {
            engine: engine(backend),
            op_queues: OpQueues::default(),
            done: Vec::new(),
        }
    }

    fn ask(&mut self, fd: RawFd, op: SocketOp) -> Key {
        let key = self.engine.operations().reserve();
        self.op_queues.join(key, fd, SOCKET, op);
        key
    }

    /// Runs loop iterations until `count` operations have completed.
    fn iterate_until(&mut self, queue_id: OpQueueId, count: usize) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.done.len() < count {
            assert!(Instant::now() < end, "nothing happened for ten seconds");
            self.iterate(queue_id);
        }
    }

    fn iterate(&mut self, queue_id: OpQueueId) {
        self.op_queues.begin_iteration(Instant::now);
        while let Some(Start { key, queue_id, op }) = self.op_queues.take_start() {
            let queue = |driver: &mut _, token| op.queue(driver, queue_id.fd, token);
            assert!(self.engine.operations().start(key, queue));
        }
        let (op_queues, done) = (&mut self.op_queues, &mut self.done);
        iterate(
            &mut self.engine,
            Duration::from_millis(20),
            |engine, event| {
                let EngineEvent::OpDone { op: key, outcome } = event else {
                    panic!("an unexpected event");
                };
                match op_queues.rest_of(queue_id, key, &outcome) {
                    Some(rest) => {
                        let rest = SocketOp::Send(rest);
                        op_queues.go_on(queue_id, engine.operations().reserve(), rest);
                    }
                    None => {
                        op_queues.complete(queue_id, key, &outcome, everyone);
                        done.push((key, outcome));
                    }
                }
            },
        );
    }
}

#[test]
fn sends_arrive_whole_and_in_order_through_a_full_socket() {
    for backend in BACKENDS {
        let mut host = Host::new(backend);
        let (ours, mut peer) = tcp_pair();
        let queue_id = OpQueueId::write(ours.as_raw_fd());
        let first: Bytes = (0..8_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut expected = first.to_vec();
        expected.extend_from_slice(b"and then this");
        let length = expected.len();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; length];
            peer.read_exact(&mut got).map(|()| got)
        });
        host.ask(queue_id.fd, SocketOp::Send(first));
        host.ask(queue_id.fd, send(b"and then this"));
        host.iterate_until(queue_id, 2);
        let got = reader.join().expect("reader").expect("all of it");
        assert!(got == expected, "{}", backend.as_str());
    }
}

#[test]
fn receives_get_the_bytes_in_the_order_of_their_start() {
    for backend in BACKENDS {
        let mut host = Host::new(backend);
        let (ours, mut peer) = tcp_pair();
        let queue_id = OpQueueId::read(ours.as_raw_fd());
        let keys: Vec<_> = (0..5)
            .map(|_| host.ask(queue_id.fd, SocketOp::Recv(2)))
            .collect();
        peer.write_all(b"aabbccddee").expect("write");
        host.iterate_until(queue_id, keys.len());
        for ((key, pair), (done, outcome)) in keys.iter().zip(b"abcde").zip(&host.done) {
            assert_eq!(done, key);
            assert!(
                matches!(outcome, Outcome::Received(Ok(data)) if data[..] == [*pair; 2]),
                "{}: {outcome:?}",
                backend.as_str()
            );
        }
    }
}

#[test]
fn a_full_receive_is_followed_by_an_immediate_try() {
    for (most, is_worth_it) in [(4, true), (5, false)] {
        for backend in BACKENDS {
            let mut host = Host::new(backend);
            let (ours, mut peer) = tcp_pair();
            let queue_id = OpQueueId::read(ours.as_raw_fd());
            for _ in 0..3 {
                host.op_queues.tried(queue_id.fd, false);
            }
            assert!(!host.op_queues.may_try(queue_id));
            host.ask(queue_id.fd, SocketOp::Recv(most));
            peer.write_all(b"four").expect("write");
            host.iterate_until(queue_id, 1);
            assert_eq!(
                host.op_queues.may_try(queue_id),
                is_worth_it,
                "{}",
                backend.as_str()
            );
        }
    }
}
