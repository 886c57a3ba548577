//! A suspended driver: operations that were taken back from the kernel, and the idle epoll set, lose no data and no
//! event.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use uringcore_io::{Backend, Errno, Interest, OpId, Outcome};

both_backends!(
    a_suspended_driver_moves_to_another_thread_with_operations_in_flight,
    suspending_sends_queued_data,
    a_run_without_a_sleep_arms_nothing_and_misses_nothing,
    a_descriptor_number_reused_during_suspension_is_left_to_its_new_owner,
    a_suspended_operation_can_be_cancelled_and_its_driver_dropped,
    silent_operations_are_not_armed_again,
    events_in_the_idle_epoll_set_are_reported_in_the_first_iteration,
    an_event_in_the_idle_epoll_set_ends_a_sleep,
    operations_in_the_idle_epoll_set_end_as_in_the_ring,
    the_idle_epoll_set_holds_no_file_open,
    the_idle_epoll_set_moves_to_another_thread,
    an_eventfd_that_reuses_a_suspended_number_is_left_alone,
    random_suspensions_lose_no_byte,
);

fn a_suspended_driver_moves_to_another_thread_with_operations_in_flight(backend: Backend) {
    let mut rig = Rig::new(backend);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (ours, mut theirs) = tcp_pair();
    let (polled, mut pusher) = tcp_pair();
    let (readable, mut writer) = tcp_pair();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    let recv = rig.driver.recv(ours.as_raw_fd(), 2);
    let poll = rig.driver.poll(polled.as_raw_fd(), Interest::Read, 3);
    let read = rig.read(readable.as_raw_fd(), 4, None);
    // The send is larger than the socket's buffer, so that it is suspended half-way.
    let sent = pattern(8_000_000);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from(sent.clone()), 4);
    rig.iterate(Duration::ZERO);
    for round in 0..6u8 {
        rig.driver.suspend(Duration::from_secs(5));
        let mover = SentRig(rig);
        let run = move || {
            let mut rig = { mover }.0;
            let client = TcpStream::connect(address).unwrap();
            assert!(matches!(
                rig.next_of(accept).outcome,
                Outcome::Accepted(Ok(_))
            ));
            drop(client);
            rig.driver.suspend(Duration::from_secs(5));
            SentRig(rig)
        };
        // The driver moves to another thread and back.
        rig = if round % 2 == 0 {
            { thread::spawn(run).join().unwrap() }.0
        } else {
            run().0
        };
        let (mut theirs, want) = (theirs.try_clone().unwrap(), [round; 7]);
        theirs.write_all(&want).unwrap();
        assert_eq!(rig.read_exactly(recv, 7), want);
    }
    assert!(rig.take(poll).is_none() && rig.take(read).is_none());
    pusher.write_all(b"data").unwrap();
    assert_eq!(rig.result_of(poll), Ok(libc::POLLIN as u32));
    writer.write_all(b"data").unwrap();
    assert_eq!(rig.bytes_of(read), Ok(b"data".to_vec()));
    // The suspension has cut the send short at most once, and as many bytes arrive as it reports.
    let mut done = rig.take(send);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).unwrap();
        all
    });
    while done.is_none() {
        rig.iterate(Duration::from_millis(50));
        done = rig.take(send);
    }
    let Some(Outcome::Done(Ok(count))) = done.map(|done| done.outcome) else {
        panic!("the send failed");
    };
    let count = count as usize;
    assert!(count > 0);
    rig.close(ours);
    let arrived = reader.join().unwrap();
    assert_eq!(arrived.len(), count);
    assert!(arrived == sent[..count]);
}

fn suspending_sends_queued_data(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"last"), 2);
    rig.driver.suspend(Duration::from_secs(5));
    let mut four = [0; 4];
    theirs.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"last");
    assert_eq!(rig.result_of(send), Ok(4));
    assert!(rig.take(recv).is_none());
    // A second suspension before the driver resumes sends queued data, too.
    rig.driver.suspend(Duration::from_secs(5));
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"more"), 3);
    rig.driver.suspend(Duration::from_secs(5));
    theirs.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"more");
    assert_eq!(rig.result_of(send), Ok(4));
    assert!(rig.take(recv).is_none());
}

fn a_descriptor_number_reused_during_suspension_is_left_to_its_new_owner(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (mut ours, _theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    rig.driver.suspend(Duration::from_secs(5));
    let (other, mut pusher) = tcp_pair();
    // SAFETY: both descriptors are open and owned here; `ours` is another file afterwards.
    let given = unsafe { libc::dup2(other.as_raw_fd(), ours.as_raw_fd()) };
    assert_eq!(given, ours.as_raw_fd());
    pusher.write_all(b"data").unwrap();
    for _ in 0..3 {
        rig.iterate(Duration::from_millis(20));
    }
    assert!(rig.take(recv).is_none());
    ours.set_nonblocking(false).unwrap();
    let mut four = [0; 4];
    ours.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"data");
    rig.driver.cancel(recv);
    assert!(matches!(
        rig.next_of(recv).outcome,
        Outcome::Received(Err(Errno::CANCELED))
    ));
}

/// Repeats a run of two loop iterations that do not sleep, until there is a completion.
fn run_until_something(rig: &mut Rig) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while rig.done.is_empty() {
        assert!(Instant::now() < deadline, "no completion arrived");
        rig.iterate(Duration::ZERO);
        rig.iterate(Duration::ZERO);
        rig.driver.suspend(Duration::from_secs(5));
    }
}

fn a_run_without_a_sleep_arms_nothing_and_misses_nothing(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (listener, address) = listener();
    let (ours, mut theirs) = tcp_pair();
    let (polled, mut pusher) = tcp_pair();
    let (udp, udp_address) = udp_socket();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    let recv = rig.driver.recv(ours.as_raw_fd(), 2);
    let poll = rig.driver.poll(polled.as_raw_fd(), Interest::Read, 3);
    let recv_msg = rig.driver.recv_msg(udp.as_raw_fd(), 4);
    rig.iterate(Duration::ZERO);
    let limit = Duration::from_secs(5);
    rig.driver.suspend(limit);
    let rearms = rig.driver.stats().rearms;
    for _ in 0..10 {
        rig.iterate(Duration::ZERO);
        rig.iterate(Duration::ZERO);
        rig.driver.suspend(limit);
    }
    assert_eq!(rig.driver.stats().rearms, rearms);
    assert!(rig.done.is_empty());
    // Each kind of operation completes in runs that do not sleep.
    theirs.write_all(b"data").unwrap();
    run_until_something(&mut rig);
    assert_eq!(rig.read_exactly(recv, 4), b"data");
    rig.driver.suspend(limit);
    pusher.write_all(b"data").unwrap();
    run_until_something(&mut rig);
    assert_eq!(rig.result_of(poll), Ok(libc::POLLIN as u32));
    rig.driver.suspend(limit);
    let client = TcpStream::connect(address).unwrap();
    run_until_something(&mut rig);
    drop(rig.accepted(accept));
    rig.driver.suspend(limit);
    let (other, _) = udp_socket();
    other.send_to(b"data", udp_address).unwrap();
    run_until_something(&mut rig);
    let datagram = rig.next_of(recv_msg);
    assert!(
        matches!(&datagram.outcome, Outcome::Datagram(Ok(datagram)) if datagram.payload() == b"data")
    );
    // Cancels and closes during a suspension cause no error.
    rig.driver.suspend(limit);
    rig.driver.cancel(accept);
    rig.iterate(Duration::ZERO);
    assert!(matches!(
        rig.next_of(accept).outcome,
        Outcome::Accepted(Err(Errno::CANCELED))
    ));
    rig.driver.suspend(limit);
    rig.iterate(Duration::ZERO);
    rig.close(ours);
    let mut rest = Vec::new();
    theirs.read_to_end(&mut rest).unwrap();
    drop(client);
}

fn a_suspended_operation_can_be_cancelled_and_its_driver_dropped(backend: Backend) {
    let mut rig = Rig::new(backend);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (ours, mut theirs) = tcp_pair();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    rig.driver.recv(ours.as_raw_fd(), 2);
    rig.iterate(Duration::ZERO);
    rig.driver.suspend(Duration::from_secs(5));
    let mover = SentRig(rig);
    let elsewhere = move || {
        let mut rig = { mover }.0;
        rig.driver.cancel(accept);
        drop(listener);
        assert!(TcpStream::connect(address).is_err());
        // The send is queued while the driver is suspended. It is sent when the driver ends.
        rig.driver
            .send(ours.as_raw_fd(), Bytes::from_static(b"bye"), 3);
        drop(rig);
        ours
    };
    let ours = thread::spawn(elsewhere).join().unwrap();
    drop(ours);
    let mut all = Vec::new();
    theirs.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"bye");
}

/// A run of the loop that sleeps once.
fn run(rig: &mut Rig) {
    rig.iterate(Duration::ZERO);
    rig.iterate(Duration::from_millis(1));
    rig.driver.suspend(LIMIT);
}

/// Repeats runs until no operation is armed in the ring.
fn run_until_silent(rig: &mut Rig) {
    for _ in 0..3 {
        run(rig);
    }
}

fn silent_operations_are_not_armed_again(backend: Backend) {
    let mut rig = Rig::new(backend);
    let pairs: Vec<_> = (0..200).map(|_| tcp_pair()).collect();
    let (listener, address) = listener();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    for (ours, _) in &pairs {
        rig.driver.recv(ours.as_raw_fd(), 2);
    }
    run_until_silent(&mut rig);
    let before = rig.driver.stats();
    for _ in 0..10 {
        run(&mut rig);
    }
    let after = rig.driver.stats();
    assert_eq!(after.rearms, before.rearms);
    assert!(after.syscalls - before.syscalls < 100, "{after:?}");
    // An operation moves from the idle epoll set to the ring only when it has a completion again.
    for round in 0..5 {
        let client = TcpStream::connect(address).unwrap();
        drop(rig.accepted(accept));
        rig.driver.suspend(LIMIT);
        drop(client);
        assert!(rig.driver.stats().rearms - after.rearms <= 1 + round);
    }
    assert!(rig.done.is_empty());
}

fn events_in_the_idle_epoll_set_are_reported_in_the_first_iteration(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (listener, address) = listener();
    let (ours, mut theirs) = tcp_pair();
    let (polled, mut pusher) = tcp_pair();
    let (udp, udp_address) = udp_socket();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    let recv = rig.driver.recv(ours.as_raw_fd(), 2);
    let poll = rig.driver.poll(polled.as_raw_fd(), Interest::Read, 3);
    let recv_msg = rig.driver.recv_msg(udp.as_raw_fd(), 4);
    run_until_silent(&mut rig);
    let client = TcpStream::connect(address).unwrap();
    let (other, _) = udp_socket();
    other.send_to(b"data", udp_address).unwrap();
    theirs.write_all(b"data").unwrap();
    pusher.write_all(b"data").unwrap();
    assert!(rig.driver.needs_enter());
    rig.iterate(Duration::ZERO);
    assert!(matches!(
        rig.take(accept).unwrap().outcome,
        Outcome::Accepted(Ok(_))
    ));
    assert!(matches!(
        rig.take(recv_msg).unwrap().outcome,
        Outcome::Datagram(Ok(datagram)) if datagram.payload() == b"data"
    ));
    assert!(matches!(
        rig.take(recv).unwrap().outcome,
        Outcome::Received(Ok(data)) if &data[..] == b"data"
    ));
    assert_eq!(rig.result_of(poll), Ok(libc::POLLIN as u32));
    assert!(rig.done.is_empty());
    drop(client);
}

fn an_event_in_the_idle_epoll_set_ends_a_sleep(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let (polled, mut pusher) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 2);
    let mut poll = rig.driver.poll(polled.as_raw_fd(), Interest::Read, 3);
    for round in 0..3u8 {
        run_until_silent(&mut rig);
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            theirs.write_all(&[round; 3]).unwrap();
            thread::sleep(Duration::from_millis(20));
            pusher.write_all(&[round]).unwrap();
            (theirs, pusher)
        });
        assert_eq!(rig.read_exactly(recv, 3), [round; 3]);
        assert_eq!(rig.result_of(poll), Ok(libc::POLLIN as u32));
        assert_eq!((&polled).read(&mut [0; 10]).unwrap(), 1);
        poll = rig.driver.poll(polled.as_raw_fd(), Interest::Read, 3);
        (theirs, pusher) = writer.join().unwrap();
    }
}

fn operations_in_the_idle_epoll_set_end_as_in_the_ring(backend: Backend) {
    let mut rig = Rig::new(backend);
    for at_rest in [true, false] {
        let (cancelled, mut theirs) = tcp_pair();
        let (closed, mut peer) = tcp_pair();
        let recv = rig.driver.recv(cancelled.as_raw_fd(), 1);
        let other = rig.driver.recv(closed.as_raw_fd(), 2);
        run_until_silent(&mut rig);
        if !at_rest {
            rig.iterate(Duration::from_millis(1));
        }
        rig.driver.cancel(recv);
        assert!(matches!(
            rig.next_of(recv).outcome,
            Outcome::Received(Err(Errno::CANCELED))
        ));
        // The descriptor can be used for another operation afterwards.
        theirs.write_all(b"data").unwrap();
        let again = rig.driver.recv(cancelled.as_raw_fd(), 3);
        assert_eq!(rig.read_exactly(again, 4), b"data");
        rig.driver.close(OwnedFd::from(closed), 4);
        assert!(matches!(
            rig.next_of(other).outcome,
            Outcome::Received(Err(Errno::CANCELED))
        ));
        rig.until("the close", |rig| {
            rig.done.iter().any(|done| done.token == 4)
        });
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
        rig.done.clear();
        rig.driver.discard(again);
        rig.iterate(Duration::from_millis(1));
        assert!(rig.done.is_empty());
    }
    rig.assert_idle();
}

fn the_idle_epoll_set_holds_no_file_open(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let (listener, address) = listener();
    rig.driver.recv(ours.as_raw_fd(), 1);
    rig.driver.accept(listener.as_raw_fd(), 2);
    run_until_silent(&mut rig);
    // Both descriptors are closed while their operations are in the idle epoll set.
    rig.iterate(Duration::from_millis(1));
    drop(ours);
    drop(listener);
    assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
    assert!(TcpStream::connect(address).is_err());
    run(&mut rig);
    assert!(rig.done.is_empty());
}

fn the_idle_epoll_set_moves_to_another_thread(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, theirs) = tcp_pair();
    let (used, user) = tcp_pair();
    let silent = rig.driver.recv(ours.as_raw_fd(), 1);
    let busy = rig.driver.recv(used.as_raw_fd(), 2);
    for round in 0..4u8 {
        let mut user = user.try_clone().unwrap();
        let mut theirs = theirs.try_clone().unwrap();
        let mover = SentRig(rig);
        let elsewhere = move || {
            let mut rig = { mover }.0;
            for _ in 0..3 {
                user.write_all(b"data").unwrap();
                assert_eq!(rig.read_exactly(busy, 4), b"data");
                rig.driver.suspend(LIMIT);
            }
            run_until_silent(&mut rig);
            if round % 2 == 1 {
                theirs.write_all(&[round; 2]).unwrap();
            }
            SentRig(rig)
        };
        rig = { thread::spawn(elsewhere).join().unwrap() }.0;
        if round % 2 == 1 {
            assert_eq!(rig.read_exactly(silent, 2), [round; 2]);
            rig.driver.suspend(LIMIT);
        }
    }
    assert!(rig.done.is_empty());
}

/// This tests io_uring's idle epoll set. `polls_pipes_and_wakes.rs` tests duplicates on both backends.
#[test]
fn a_duplicate_of_a_closed_member_of_the_idle_epoll_set_causes_no_event() {
    let mut rig = Rig::new(Backend::Uring);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    run_until_silent(&mut rig);
    // A duplicate, as a forked child has it, keeps the file in the set after its descriptor is closed.
    let duplicate = ours.try_clone().unwrap();
    let (other, mut pusher) = tcp_pair();
    // SAFETY: both descriptors are open and owned here; `ours` is another file afterwards.
    unsafe { libc::dup2(other.as_raw_fd(), ours.as_raw_fd()) };
    let next = rig.driver.recv(ours.as_raw_fd(), 2);
    theirs.write_all(b"old").unwrap();
    let enters = rig.driver.stats().enters;
    for _ in 0..10 {
        run(&mut rig);
    }
    assert!(rig.done.is_empty());
    assert!(rig.driver.stats().enters - enters < 60);
    pusher.write_all(b"new").unwrap();
    assert_eq!(rig.read_exactly(next, 3), b"new");
    rig.driver.cancel(recv);
    assert!(matches!(
        rig.next_of(recv).outcome,
        Outcome::Received(Err(Errno::CANCELED))
    ));
    run_until_silent(&mut rig);
    pusher.write_all(b"new").unwrap();
    assert_eq!(rig.read_exactly(next, 3), b"new");
    drop(duplicate);
}

fn eventfd() -> OwnedFd {
    // SAFETY: no pointers; a fresh descriptor that nothing else owns.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// All eventfds have the same inode number. So the driver cannot detect that the descriptor's number belongs to another
/// eventfd now.
fn an_eventfd_that_reuses_a_suspended_number_is_left_alone(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, _theirs) = tcp_pair();
    let (watched, other) = (eventfd(), eventfd());
    rig.driver.recv(ours.as_raw_fd(), 1);
    let poll = rig.driver.poll(watched.as_raw_fd(), Interest::Read, 2);
    rig.iterate(Duration::from_millis(1));
    rig.driver.suspend(LIMIT);
    // SAFETY: both descriptors are open and owned here; eight readable bytes.
    unsafe {
        libc::dup2(other.as_raw_fd(), watched.as_raw_fd());
        libc::write(other.as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8);
    }
    for _ in 0..5 {
        run(&mut rig);
    }
    assert!(rig.done.is_empty());
    rig.driver.cancel(poll);
    assert_eq!(rig.result_of(poll), Err(libc::ECANCELED));
}

/// A connection of the random test.
struct Connection {
    ours: TcpStream,
    theirs: TcpStream,
    recv: OpId,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    fn new(rig: &mut Rig, token: u64) -> Connection {
        let (ours, theirs) = tcp_pair();
        Connection {
            recv: rig.driver.recv(ours.as_raw_fd(), token),
            ours,
            theirs,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }
}

/// Passes each completion to its connection, found by the operation. A cancelled receive is started again.
fn deliver(rig: &mut Rig, connections: &mut [Connection]) {
    for done in std::mem::take(&mut rig.done) {
        let Some(connection) = connections
            .iter_mut()
            .find(|connection| connection.recv == done.op())
        else {
            continue;
        };
        match done.outcome {
            Outcome::Received(Ok(data)) => connection.received.extend_from_slice(&data),
            Outcome::Received(Err(Errno::CANCELED)) => {
                connection.recv = rig.driver.recv(connection.ours.as_raw_fd(), done.token);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Some connections are used all the time, most of them only sometimes. At random the driver sleeps, spins, is
/// suspended, and is moved to another thread. Each byte must arrive once, in order, on its connection.
fn random_suspensions_lose_no_byte(backend: Backend) {
    for seed in 1..=4u64 {
        let mut rig = Rig::new(backend);
        let mut dice = SeededRandom::new(seed);
        let mut next: u64 = 0;
        let mut connections: Vec<_> = (0..24)
            .map(|token| Connection::new(&mut rig, token))
            .collect();
        for _ in 0..3_000 {
            let hot = dice.below(2) == 0;
            let chosen = dice.below(if hot { 3 } else { connections.len() });
            match dice.below(16) {
                0..=4 => {
                    let text = next.to_be_bytes();
                    next += 1;
                    connections[chosen].theirs.write_all(&text).unwrap();
                    connections[chosen].sent.extend(text);
                }
                5..=7 => rig.driver.suspend(LIMIT),
                8 if dice.below(4) == 0 => rig.driver.cancel(connections[chosen].recv),
                9 if dice.below(8) == 0 => {
                    // The next connection gets the descriptor's number.
                    let token = connections[chosen].sent.len() as u64;
                    let connection = Connection::new(&mut rig, token);
                    let old = std::mem::replace(&mut connections[chosen], connection);
                    rig.driver.discard(old.recv);
                    rig.close(old.ours);
                }
                10 if dice.below(4) == 0 => {
                    rig.driver.suspend(LIMIT);
                    let mover = SentRig(rig);
                    let elsewhere = move || {
                        let mut rig = { mover }.0;
                        rig.iterate(Duration::from_micros(100));
                        rig.driver.suspend(LIMIT);
                        SentRig(rig)
                    };
                    rig = { thread::spawn(elsewhere).join().unwrap() }.0;
                }
                11..=12 => rig.iterate(Duration::from_micros(50)),
                _ => rig.iterate(Duration::ZERO),
            }
            deliver(&mut rig, &mut connections);
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while connections
            .iter()
            .any(|connection| connection.received.len() < connection.sent.len())
        {
            assert!(Instant::now() < deadline, "seed {seed}: bytes are missing");
            rig.iterate(Duration::from_millis(50));
            deliver(&mut rig, &mut connections);
        }
        assert!(
            connections
                .iter()
                .all(|connection| connection.received == connection.sent),
            "seed {seed}"
        );
    }
}

const LIMIT: Duration = Duration::from_secs(5);
