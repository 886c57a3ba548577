//! Random operations, cancels, discards, closes and suspensions on many sockets.
//!
//! Invariants: an operation that is not discarded ends exactly once. A discarded operation is not reported any more. A
//! close ends after the other operations of its descriptor. At the end no operation is in flight and no buffer is held.

mod common;

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use uringcore_io::{Backend, DriverConfig, Interest, OpId, Outcome, SendMsg};

both_backends!(
    random_operations_end_exactly_once,
    random_operations_in_tiny_queues_end_exactly_once
);

fn random_operations_end_exactly_once(backend: Backend) {
    for seed in 1..=8 {
        chaos(
            DriverConfig {
                backend: Some(backend),
                ..DriverConfig::default()
            },
            seed,
        );
    }
}

fn random_operations_in_tiny_queues_end_exactly_once(backend: Backend) {
    for seed in 1..=8 {
        let config = DriverConfig {
            backend: Some(backend),
            ring_entries: 4,
            cq_entries: 4,
            stream_buffers: 2,
            stream_buffer_size: 128,
            share_stream_buffers: seed % 2 == 0,
            operations_max: 100,
            ..DriverConfig::default()
        };
        chaos(config, seed);
    }
}

struct Life {
    rig: Rig,
    seed: u64,
    next_token: u64,
    /// Operations that have not ended, by token: the identifier, and the number of the socket.
    owed: HashMap<u64, (OpId, usize)>,
    /// Closes that have not ended, by token: the number of the socket.
    closes: HashMap<u64, usize>,
    silenced: HashSet<u64>,
    ended: usize,
}

fn chaos(config: DriverConfig, seed: u64) {
    let mut life = Life {
        rig: Rig::with(config),
        seed,
        next_token: 1,
        owed: HashMap::new(),
        closes: HashMap::new(),
        silenced: HashSet::new(),
        ended: 0,
    };
    let mut dice = SeededRandom::new(seed);
    let mut generation = 0;
    let mut sockets: Vec<(TcpStream, TcpStream, usize)> = Vec::new();
    for _ in 0..4_000 {
        if sockets.len() < 12 {
            let (ours, theirs) = tcp_pair();
            theirs.set_nonblocking(true).unwrap();
            generation += 1;
            sockets.push((ours, theirs, generation));
        }
        let chosen = dice.below(sockets.len());
        let (ours, theirs, socket) = &mut sockets[chosen];
        let fd = ours.as_raw_fd();
        let token = life.next_token;
        let driver = &mut life.rig.driver;
        let op = match dice.below(15) {
            0 | 1 => Some(driver.recv(fd, token)),
            2 => Some(driver.send(fd, Bytes::from(pattern(dice.below(3_000))), token)),
            3 => Some(driver.send(fd, Bytes::from(vec![1; 1 << 20]), token)),
            4 => Some(driver.poll(fd, Interest::Read, token)),
            5 => Some(driver.poll(fd, Interest::Write, token)),
            6 => {
                let message = SendMsg {
                    data: Bytes::from_static(b"message"),
                    to: None,
                    segment_size: None,
                    ecn: None,
                    src_ip: None,
                };
                Some(driver.send_msg(fd, message, token))
            }
            7 => Some(driver.file(read_request(fd, 50, None), token)),
            8 => {
                let _ = theirs.write(&pattern(1 + dice.below(2_000)));
                None
            }
            9 => {
                let _ = theirs.read(&mut vec![0; dice.below(200_000)]);
                None
            }
            10 => {
                if let Some((&token, &(op, _))) =
                    life.owed.iter().nth(dice.below(life.owed.len() + 1))
                {
                    // An operation that found no slot has no identifier, so it cannot be discarded.
                    let named = op != OpId::NONE && !life.closes.contains_key(&token);
                    let silent = named && dice.below(3) == 0;
                    if silent {
                        driver.discard(op);
                        life.owed.remove(&token);
                        life.silenced.insert(token);
                    } else {
                        driver.cancel(op);
                    }
                }
                None
            }
            11 if dice.below(4) == 0 => {
                driver.cancel_fd(fd);
                None
            }
            12 if dice.below(3) == 0 => {
                let socket = *socket;
                let (ours, theirs, _) = sockets.swap_remove(chosen);
                let op = driver.close(OwnedFd::from(ours), token);
                life.closes.insert(token, socket);
                life.owed.insert(token, (op, socket));
                life.next_token += 1;
                // The peer closes before or after this end, at random.
                drop(theirs);
                None
            }
            13 if dice.below(3) == 0 => {
                driver.suspend(Duration::from_secs(5));
                None
            }
            _ => {
                driver
                    .enter(Some(Duration::from_micros(dice.below(3) as u64 * 50)))
                    .unwrap();
                life.collect();
                None
            }
        };
        if let Some(op) = op {
            life.owed.insert(token, (op, sockets[chosen].2));
            life.next_token += 1;
        }
    }
    for (ours, _, socket) in sockets {
        let token = life.next_token;
        let op = life.rig.driver.close(OwnedFd::from(ours), token);
        life.closes.insert(token, socket);
        life.owed.insert(token, (op, socket));
        life.next_token += 1;
    }
    for _ in 0..200 {
        life.rig
            .driver
            .enter(Some(Duration::from_millis(50)))
            .unwrap();
        life.collect();
        if life.owed.is_empty() && life.rig.driver.stats().in_flight == 0 {
            break;
        }
    }
    assert!(
        life.owed.is_empty(),
        "seed {seed}: never ended: {:?}",
        life.owed
    );
    assert!(
        life.ended > 500,
        "seed {seed}: only {} operations",
        life.ended
    );
    let stats = life.rig.driver.stats();
    assert_eq!((stats.in_flight, stats.buffers_out), (0, 0), "seed {seed}");
}

impl Life {
    fn collect(&mut self) {
        self.rig.driver.take_completions(&mut self.rig.done);
        for completion in self.rig.done.drain(..) {
            let (seed, token) = (self.seed, completion.token);
            assert!(
                !self.silenced.contains(&token),
                "seed {seed}: discarded, yet {completion:?}"
            );
            if completion.more() {
                assert!(
                    self.owed.contains_key(&token),
                    "seed {seed}: after the end: {completion:?}"
                );
                assert!(
                    matches!(completion.outcome, Outcome::Received(Ok(_))),
                    "seed {seed}"
                );
                continue;
            }
            let ended = self.owed.remove(&token);
            let (_, socket) = ended.unwrap_or_else(|| panic!("seed {seed}: twice: {completion:?}"));
            self.ended += 1;
            if self.closes.remove(&token).is_some() {
                let left = self.owed.values().find(|(_, of)| *of == socket);
                assert!(left.is_none(), "seed {seed}: closed before {left:?}");
                assert!(
                    matches!(completion.outcome, Outcome::Done(Ok(0))),
                    "seed {seed}: {completion:?}"
                );
            }
        }
    }
}
