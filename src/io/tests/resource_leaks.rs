//! No descriptor, slot or buffer is leaked. One test runs at a time, because each counts the process's descriptors.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use uringcore_io::{Backend, Errno, Outcome};

both_backends!(
    thousands_of_connections_leave_no_resource,
    discarded_accepts_are_closed,
    unreported_accepts_are_closed_with_the_driver,
    a_pending_close_is_done_when_the_driver_ends,
    many_drivers_leave_no_descriptor,
);

/// Waits until no other test of this file runs, and until the kernel has closed the descriptors of the previous one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut before = open_descriptors();
    loop {
        thread::sleep(Duration::from_millis(50));
        match open_descriptors() {
            now if now == before => return alone,
            now => before = now,
        }
    }
}

fn thousands_of_connections_leave_no_resource(backend: Backend) {
    let _alone = alone();
    let mut rig = Rig::new(backend);
    let (listener, address) = listener();
    let accept = rig.driver.accept(listener.as_raw_fd(), 1);
    let rounds = 3_000;
    let before = open_descriptors();
    let client = thread::spawn(move || {
        for _ in 0..rounds {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"ping").unwrap();
            let mut pong = [0; 4];
            stream.read_exact(&mut pong).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
    });
    for _ in 0..rounds {
        let connection = rig.accepted(accept);
        let recv = rig.driver.recv(connection.as_raw_fd(), 2);
        let data = rig.read_exactly(recv, 4);
        let send = rig
            .driver
            .send(connection.as_raw_fd(), Bytes::from(data), 3);
        assert_eq!(rig.result_of(send), Ok(4));
        rig.close(connection);
        assert!(matches!(
            rig.next_of(recv).outcome,
            Outcome::Received(Err(Errno::CANCELED))
        ));
    }
    client.join().unwrap();
    assert_eq!(rig.driver.stats().in_flight, 1);
    assert!(rig.driver.stats().slots_capacity < 10);
    assert!(
        open_descriptors() <= before + 2,
        "{} then {before}",
        open_descriptors()
    );
    rig.close(listener);
    rig.assert_idle();
}

fn discarded_accepts_are_closed(backend: Backend) {
    let _alone = alone();
    let mut rig = Rig::new(backend);
    let (listener, address) = listener();
    let before = open_descriptors();
    for settle in [true, false] {
        let accept = rig.driver.accept(listener.as_raw_fd(), 1);
        if settle {
            rig.iterate(Duration::ZERO);
        }
        let mut client = TcpStream::connect(address).unwrap();
        rig.driver.discard(accept);
        rig.assert_idle();
        assert!(rig.done.is_empty());
        drop(listener_backlog(&listener));
        let _ = client.set_read_timeout(Some(Duration::from_secs(5)));
        // A connection that was accepted is closed, and one that was not is reset with the listener.
        assert!(matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
    assert_eq!(open_descriptors(), before);
}

/// Accepts the connections that the driver has not accepted.
fn listener_backlog(listener: &std::net::TcpListener) -> Vec<TcpStream> {
    std::iter::from_fn(|| listener.accept().ok().map(|(stream, _)| stream)).collect()
}

fn unreported_accepts_are_closed_with_the_driver(backend: Backend) {
    let _alone = alone();
    let (listener, address) = listener();
    let before = open_descriptors();
    let mut rig = Rig::new(backend);
    rig.driver.accept(listener.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    let clients: Vec<_> = (0..10)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    rig.driver.enter(Some(Duration::from_secs(1))).unwrap();
    drop(rig);
    drop(clients);
    drop(listener_backlog(&listener));
    assert_eq!(open_descriptors(), before);
}

fn a_pending_close_is_done_when_the_driver_ends(backend: Backend) {
    let _alone = alone();
    let before = open_descriptors();
    for entered in [false, true] {
        let mut rig = Rig::new(backend);
        let (ours, mut theirs) = tcp_pair();
        if entered {
            rig.driver.recv(ours.as_raw_fd(), 1);
            rig.iterate(Duration::ZERO);
        }
        rig.driver.close(OwnedFd::from(ours), 2);
        drop(rig);
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
    }
    assert_eq!(open_descriptors(), before);
}

fn many_drivers_leave_no_descriptor(backend: Backend) {
    let _alone = alone();
    let before = open_descriptors();
    // There are more drivers than a thread's table of registered rings has entries, and several live at a time.
    for _ in 0..8 {
        let mut rigs: Vec<Rig> = (0..20).map(|_| Rig::new(backend)).collect();
        for rig in &mut rigs {
            rig.iterate(Duration::ZERO);
        }
        let (ours, mut theirs) = unix_pair();
        for rig in &mut rigs {
            let recv = rig.driver.recv(ours.as_raw_fd(), 0);
            theirs.write_all(b"x").unwrap();
            assert_eq!(rig.read_exactly(recv, 1), b"x");
            rig.driver.cancel(recv);
            rig.next_of(recv);
        }
    }
    assert_eq!(open_descriptors(), before);
}
