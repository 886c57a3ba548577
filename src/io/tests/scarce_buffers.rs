//! Buffers and queues that are too small: no byte is lost under load, and all buffers are returned.

mod common;

use std::io::Write;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use common::*;
use uringcore_io::{Backend, DriverConfig, Errno, OpId, Outcome, RecvBuf};

both_backends!(
    a_stream_without_free_buffers_loses_no_byte,
    small_receives_share_a_buffer,
    a_message_that_a_buffer_cuts_can_be_joined,
    many_starved_sockets_all_finish,
    starved_sockets_receive_in_turn,
    tiny_rings_overflow_and_lose_nothing,
    discarded_data_returns_its_buffer,
);

/// The driver has two small buffers, and the test holds both while megabytes arrive.
fn a_stream_without_free_buffers_loses_no_byte(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        stream_buffers: 2,
        stream_buffer_size: 512,
        ..DriverConfig::default()
    });
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 7);
    let sent = pattern(300_000);
    let copy = sent.clone();
    let writer = thread::spawn(move || theirs.write_all(&copy).unwrap());
    let mut got = Vec::new();
    let mut held = Vec::new();
    while got.len() < sent.len() {
        match rig.next_of(recv).outcome {
            Outcome::Received(Ok(piece)) => {
                assert!(!piece.is_empty());
                got.extend_from_slice(&piece);
                held.push(piece);
            }
            other => panic!("{other:?}"),
        }
        if held.len() == 2 {
            if got.len() < 10_000 {
                // While all buffers are held, `enter` must sleep until its time-out and not return at once.
                let enters = rig.driver.stats().enters;
                rig.iterate(Duration::from_millis(5));
                rig.iterate(Duration::from_millis(5));
                assert!(rig.driver.stats().enters <= enters + 2);
            }
            held.clear();
        }
    }
    writer.join().unwrap();
    assert!(got == sent);
    assert!(rig.driver.stats().enobufs > 0);
    assert!(rig.driver.stats().rearms > 0);
    assert_eq!(rig.read_to_end(recv), b"");
    held.clear();
    rig.close(ours);
    rig.assert_idle();
}

/// On kernels before 6.12 each receive takes a whole buffer. The driver is made to act in the same way.
#[test]
fn a_stream_arrives_through_unshared_buffers() {
    let config = DriverConfig {
        backend: Some(Backend::Uring),
        share_stream_buffers: false,
        stream_buffers: 8,
        ..DriverConfig::default()
    };
    let mut rig = Rig::with(config.clone());
    assert_eq!(
        rig.driver.stats().buffers_total,
        8 * 4 + u64::from(config.datagram_buffers)
    );
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 7);
    let sent = pattern(3 << 20);
    let copy = sent.clone();
    let writer = thread::spawn(move || theirs.write_all(&copy).unwrap());
    assert!(rig.read_exactly(recv, sent.len()) == sent);
    writer.join().unwrap();
    rig.close(ours);
    rig.assert_idle();
}

/// io_uring takes a buffer for the end of a stream. The driver must free it.
#[test]
fn the_end_of_a_stream_returns_its_buffer() {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(Backend::Uring),
        share_stream_buffers: false,
        stream_buffers: 2,
        stream_buffer_size: 64,
        ..DriverConfig::default()
    });
    for _ in 0..20 {
        let (ours, theirs) = tcp_pair();
        let recv = rig.driver.recv(ours.as_raw_fd(), 7);
        drop(theirs);
        assert_eq!(rig.read_to_end(recv), b"");
    }
    rig.assert_idle();
}

/// A small receive must not use up a whole buffer, and a held `RecvBuf` must not block other receives.
fn small_receives_share_a_buffer(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        stream_buffers: 32,
        ..DriverConfig::default()
    });
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 7);
    let mut held = Vec::new();
    for number in 0..500u32 {
        theirs.write_all(&number.to_ne_bytes()).unwrap();
        let Outcome::Received(Ok(piece)) = rig.next_of(recv).outcome else {
            panic!()
        };
        held.push(piece);
    }
    for (number, piece) in held.iter().enumerate() {
        assert_eq!(**piece, (number as u32).to_ne_bytes());
    }
    let stats = rig.driver.stats();
    assert_eq!((stats.buffers_out, stats.enobufs), (1, 0));
    // `RecvBuf`s are dropped in random order while more data arrives. At most 20 are kept, so that some of the 32
    // buffers are always free.
    held.truncate(20);
    let mut state = 1;
    for _ in 0..2_000 {
        state = state * 5 % 499;
        drop(held.swap_remove(state % held.len()));
        let sent = pattern(1 + state * 3);
        theirs.write_all(&sent).unwrap();
        let got = rig.read_exactly(recv, sent.len());
        assert!(got == sent);
        theirs.write_all(&[1]).unwrap();
        let Outcome::Received(Ok(piece)) = rig.next_of(recv).outcome else {
            panic!()
        };
        held.push(piece);
    }
    held.clear();
    rig.close(ours);
    rig.next_of(recv);
    rig.assert_idle();
}

/// The rest of a message usually is in the adjacent buffer, and is appended without a copy.
fn a_message_that_a_buffer_cuts_can_be_joined(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        stream_buffers: 4,
        stream_buffer_size: 256,
        ..DriverConfig::default()
    });
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 7);
    let (mut cut, mut joined) = (0, 0);
    for number in 0..200u8 {
        let message: Vec<u8> = pattern(100).iter().map(|byte| byte ^ number).collect();
        theirs.write_all(&message).unwrap();
        let mut pieces = Vec::new();
        while pieces
            .iter()
            .map(|piece: &RecvBuf| piece.len())
            .sum::<usize>()
            < message.len()
        {
            match rig.next_of(recv).outcome {
                Outcome::Received(Ok(piece)) => pieces.push(piece),
                other => panic!("{other:?}"),
            }
        }
        let mut pieces = pieces.into_iter();
        let mut whole = pieces.next().expect("a piece");
        let mut copied = whole.to_vec();
        for next in pieces {
            cut += 1;
            assert!(whole.ends_its_buffer());
            copied.extend_from_slice(&next);
            match whole.append(next) {
                Ok(()) => {
                    joined += 1;
                    assert_eq!(*whole, message);
                    assert_eq!(rig.driver.stats().buffers_out, 2);
                }
                Err(next) => assert_eq!(*next, message[message.len() - next.len()..]),
            }
        }
        assert_eq!(copied, message);
    }
    if backend == Backend::Uring {
        assert!(joined > cut / 2, "{joined} of {cut}");
    }
    theirs.write_all(b"the buffers are free").unwrap();
    assert_eq!(rig.read_exactly(recv, 20), b"the buffers are free");
    rig.close(ours);
    rig.next_of(recv);
    rig.assert_idle();
}

fn many_starved_sockets_all_finish(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        stream_buffers: 4,
        stream_buffer_size: 1024,
        ..DriverConfig::default()
    });
    let pairs: Vec<_> = (0..100).map(|_| tcp_pair()).collect();
    let sent = pattern(20_000);
    let ops: Vec<OpId> = pairs
        .iter()
        .map(|(ours, _)| rig.driver.recv(ours.as_raw_fd(), 0))
        .collect();
    let mut streams = Vec::new();
    for (ours, mut theirs) in pairs {
        theirs.write_all(&sent).unwrap();
        streams.push(ours);
    }
    let mut got = vec![Vec::new(); ops.len()];
    let mut ended = 0;
    rig.until("the end of every stream", |rig| {
        while let Some(completion) = rig.done.pop_front() {
            let index = ops.iter().position(|&op| op == completion.op()).unwrap();
            match completion.outcome {
                Outcome::Received(Ok(piece)) if piece.is_empty() => ended += 1,
                Outcome::Received(Ok(piece)) => got[index].extend_from_slice(&piece),
                other => panic!("{other:?}"),
            }
        }
        ended == ops.len()
    });
    assert!(got.iter().all(|got| *got == sent));
    rig.assert_idle();
}

/// Sockets that always have more data do not take all buffers from the other sockets.
fn starved_sockets_receive_in_turn(backend: Backend) {
    const SOCKETS: usize = 40;
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        stream_buffers: 4,
        stream_buffer_size: 1024,
        ..DriverConfig::default()
    });
    let mut pairs: Vec<_> = (0..SOCKETS).map(|_| tcp_pair()).collect();
    let ops: Vec<OpId> = pairs
        .iter()
        .map(|(ours, _)| rig.driver.recv(ours.as_raw_fd(), 0))
        .collect();
    let message = pattern(700);
    for (_, theirs) in &mut pairs {
        theirs.write_all(&message).unwrap();
    }
    let (mut bytes, mut rounds) = ([0; SOCKETS], [0; SOCKETS]);
    rig.until("many rounds of each", |rig| {
        while let Some(completion) = rig.done.pop_front() {
            let index = ops.iter().position(|&op| op == completion.op()).unwrap();
            let Outcome::Received(Ok(piece)) = completion.outcome else {
                panic!()
            };
            bytes[index] += piece.len();
            if bytes[index] == (rounds[index] + 1) * message.len() {
                rounds[index] += 1;
                // The next message arrives before the driver receives again.
                pairs[index].1.write_all(&message).unwrap();
            }
        }
        let least = *rounds.iter().min().unwrap();
        let most = *rounds.iter().max().unwrap();
        assert!(most <= 2 * least + 10, "{rounds:?}");
        least >= 100
    });
    for (ours, _) in pairs {
        rig.close(ours);
    }
    for op in ops {
        while !matches!(rig.next_of(op).outcome, Outcome::Received(Err(_))) {}
    }
    rig.assert_idle();
}

/// The ring's queues are far smaller than the load. So the driver must submit a full queue at once, handle an
/// overflow of completions, and arm operations again.
fn tiny_rings_overflow_and_lose_nothing(backend: Backend) {
    let mut rig = Rig::with(DriverConfig {
        backend: Some(backend),
        ring_entries: 2,
        cq_entries: 2,
        ..DriverConfig::default()
    });
    let pairs: Vec<_> = (0..64).map(|_| tcp_pair()).collect();
    let sent = pattern(5_000);
    // In the first round the ring is not enabled yet, so a full queue cannot be submitted. In the second round it can.
    for round in 0..2 {
        let ops: Vec<OpId> = pairs
            .iter()
            .map(|(ours, _)| rig.driver.recv(ours.as_raw_fd(), round))
            .collect();
        for (_, theirs) in &pairs {
            (&*theirs).write_all(&sent).unwrap();
        }
        for &op in &ops {
            assert!(rig.read_exactly(op, sent.len()) == sent);
        }
        for &op in &ops {
            rig.driver.cancel(op);
        }
        for &op in &ops {
            assert!(matches!(
                rig.next_of(op).outcome,
                Outcome::Received(Err(Errno::CANCELED))
            ));
        }
        rig.assert_idle();
    }
    let closes: Vec<OpId> = pairs
        .into_iter()
        .map(|(ours, _)| rig.driver.close(ours.into(), 0))
        .collect();
    for close in closes {
        assert_eq!(rig.result_of(close), Ok(0));
    }
    rig.assert_idle();
}

fn discarded_data_returns_its_buffer(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    theirs.write_all(b"nobody listens").unwrap();
    rig.driver.enter(Some(Duration::from_secs(1))).unwrap();
    rig.driver.discard(recv);
    rig.assert_idle();
    assert!(rig.done.is_empty());
    rig.close(ours);
}
