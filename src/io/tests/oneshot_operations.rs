//! One-shot receives and connects: their results, and the handling of cancelled ones.

mod common;

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use bytes::Bytes;
use common::{Rig, listener, pattern, tcp_pair};
use uringcore_io::{Backend, Errno, Outcome, SendMsg, net};

both_backends!(
    a_receive_returns_at_most_the_requested_bytes,
    the_end_of_a_stream_is_an_empty_result,
    a_cancelled_receive_consumes_nothing,
    cancels_that_race_with_data_lose_nothing,
    a_discarded_receive_returns_its_buffer,
    a_connect_that_is_already_in_progress_completes,
    unix_datagrams_to_a_full_receiver_arrive_whole,
);

fn received(rig: &mut Rig, op: uringcore_io::OpId) -> Result<Vec<u8>, Errno> {
    let completion = rig.next_of(op);
    assert!(!completion.more());
    match completion.outcome {
        Outcome::Received(result) => result.map(|data| data.to_vec()),
        other => panic!("{other:?}"),
    }
}

fn a_receive_returns_at_most_the_requested_bytes(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let op = rig.driver.recv_once(ours.as_raw_fd(), 3, 0);
    rig.iterate(Duration::ZERO);
    theirs.write_all(b"abcdef").unwrap();
    assert_eq!(received(&mut rig, op).unwrap(), b"abc");
    let op = rig.driver.recv_once(ours.as_raw_fd(), 1000, 0);
    assert_eq!(received(&mut rig, op).unwrap(), b"def");
    rig.assert_idle();
}

fn the_end_of_a_stream_is_an_empty_result(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, theirs) = tcp_pair();
    drop(theirs);
    for _ in 0..2 {
        let op = rig.driver.recv_once(ours.as_raw_fd(), 10, 0);
        assert_eq!(received(&mut rig, op).unwrap(), b"");
    }
    rig.assert_idle();
}

fn a_cancelled_receive_consumes_nothing(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let op = rig.driver.recv_once(ours.as_raw_fd(), 10, 0);
    rig.iterate(Duration::ZERO);
    rig.driver.cancel(op);
    // Data that arrives between the cancel and the next entry into the kernel stays in the socket.
    theirs.write_all(b"later").unwrap();
    assert_eq!(received(&mut rig, op), Err(Errno::CANCELED));
    let op = rig.driver.recv_once(ours.as_raw_fd(), 10, 0);
    assert_eq!(received(&mut rig, op).unwrap(), b"later");
    rig.assert_idle();
}

fn cancels_that_race_with_data_lose_nothing(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let data = pattern(300_000);
    let sent = data.clone();
    let sender = std::thread::spawn(move || {
        for piece in sent.chunks(97) {
            theirs.write_all(piece).unwrap();
            // Data arrives before the receive in some rounds, and after it in others.
            std::thread::yield_now();
        }
    });
    let mut got = Vec::new();
    let mut round = 0_u32;
    while got.len() < data.len() {
        round += 1;
        let op = rig.driver.recv_once(ours.as_raw_fd(), 1 + round % 500, 0);
        if round.is_multiple_of(3) {
            rig.iterate(Duration::ZERO);
        }
        if round.is_multiple_of(2) {
            rig.driver.cancel(op);
        }
        match received(&mut rig, op) {
            Ok(piece) => got.extend_from_slice(&piece),
            Err(errno) => assert_eq!(errno, Errno::CANCELED),
        }
    }
    sender.join().unwrap();
    assert!(got == data, "the bytes differ");
    rig.assert_idle();
}

fn a_discarded_receive_returns_its_buffer(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    for _ in 0..500 {
        theirs.write_all(b"x").unwrap();
        let op = rig.driver.recv_once(ours.as_raw_fd(), 10, 0);
        rig.iterate(Duration::ZERO);
        rig.driver.discard(op);
        rig.iterate(Duration::ZERO);
        rig.done.clear();
    }
    rig.assert_idle();
}

fn a_connect_that_is_already_in_progress_completes(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (_listener, address) = listener();
    for _ in 0..20 {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let begun = net::connect(socket.as_raw_fd(), &address.into());
        assert!(begun.is_ok() || begun.unwrap_err().raw_os_error() == Some(libc::EINPROGRESS));
        let op = rig.driver.connect(socket.as_raw_fd(), address.into(), 0);
        assert_eq!(rig.result_of(op), Ok(0));
        assert!(net::peer_addr(socket.as_raw_fd()).is_ok());
    }
    rig.assert_idle();
}

/// The driver waits for room itself. If io_uring waited for room, it would send an empty datagram
/// (`uring::queue_entries`).
fn unix_datagrams_to_a_full_receiver_arrive_whole(backend: Backend) {
    let mut rig = Rig::new(backend);
    let folder = std::env::temp_dir().join(format!(
        "uringcore-once-{}-{}",
        std::process::id(),
        backend.as_str()
    ));
    let receiver = UnixDatagram::bind(&folder).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    sender.set_nonblocking(true).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let mut got = 0_u32;
    for number in 0..200_u32 {
        let message = SendMsg {
            data: Bytes::copy_from_slice(&number.to_be_bytes()),
            to: None,
            segment_size: None,
            ecn: None,
            src_ip: None,
        };
        let op = rig.driver.send_msg(sender.as_raw_fd(), message, 0);
        rig.iterate(Duration::ZERO);
        let mut buffer = [0; 16];
        while rig.take(op).is_none() {
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], got.to_be_bytes());
            got += 1;
            rig.iterate(Duration::from_millis(50));
        }
    }
    rig.assert_idle();
}
