//! The connection IDs that an endpoint issues: random, and where several workers share a port, of a
//! kind that says whose they are.
//!
//! The kernel steers a datagram by the first byte of its destination connection ID, modulo the number
//! of workers (`uringcore_io::net::steer_by_connection_id`), so a worker's own IDs begin with a byte
//! that comes back to it. An observer learns the worker from that and nothing else.
//!
//! A packet with another worker's ID comes here only when that worker is gone and the kernel was told so:
//! it is answered with a reset like any other of a connection that nobody knows.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use quinn_proto::{ConnectionId, ConnectionIdGenerator, RandomConnectionIdGenerator};

use crate::quic::Worker;

/// What the next ID is to be, and which the last ones were.
#[derive(Debug, Clone, Default)]
pub(in crate::quic) struct NextId(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    is_neighbours: AtomicBool,
    is_named: AtomicBool,
    /// Those that were made since somebody asked, where somebody does.
    made: Option<Mutex<Vec<ConnectionId>>>,
}

impl NextId {
    /// `remembers`: somebody will ask which IDs were made.
    pub fn new(remembers: bool) -> Self {
        Self(Arc::new(Flags {
            made: remembers.then(Mutex::default),
            ..Flags::default()
        }))
    }

    /// The IDs that were made since the last call, in order.
    pub fn take_made(&self) -> Vec<ConnectionId> {
        let made = self.0.made.as_ref();
        let made = made.map(|made| made.lock().unwrap_or_else(PoisonError::into_inner));
        made.map(|mut made| std::mem::take(&mut *made))
            .unwrap_or_default()
    }

    fn made(&self, id: ConnectionId) {
        if let Some(made) = &self.0.made {
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            made.push(id);
        }
    }

    /// One of the next worker's: a client that is given it goes there.
    pub fn hand_over(&self, is_neighbours: bool) {
        self.0.is_neighbours.store(is_neighbours, Ordering::Relaxed);
    }

    /// The one that the host has named, if it has: also after a Retry or another beginning, for the
    /// host routes packets by it.
    pub fn is_named(&self) {
        self.0.is_named.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone)]
pub(in crate::quic) struct ConnectionIds {
    random: RandomConnectionIdGenerator,
    worker: Option<Worker>,
    next: NextId,
    /// What the host has named already.
    first: Option<ConnectionId>,
}

impl ConnectionIds {
    pub fn new(length: usize, worker: Option<Worker>, next: NextId) -> Self {
        Self {
            random: RandomConnectionIdGenerator::new(length),
            worker,
            next,
            first: None,
        }
    }

    /// The first ID is `first`, if there is one.
    pub fn beginning(mut self, first: Option<&[u8]>) -> Self {
        self.first = first.map(ConnectionId::new);
        self.next.is_named();
        self
    }
}

impl ConnectionIds {
    fn make(&mut self) -> ConnectionId {
        if let Some(first) = self.first
            && self.next.0.is_named.swap(false, Ordering::Relaxed)
        {
            return first;
        }
        let id = self.random.generate_cid();
        let (Some(worker), Some(&first)) = (self.worker, id.first()) else {
            return id;
        };
        let mut bytes = id.to_vec();
        let worker = match self.next.0.is_neighbours.load(Ordering::Relaxed) {
            true => worker.next(),
            false => worker,
        };
        bytes[0] = worker.mark(first);
        ConnectionId::new(&bytes)
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let id = self.make();
        self.next.made(id);
        id
    }

    fn cid_len(&self) -> usize {
        self.random.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_ids_come_back_to_it_and_use_all_bytes_that_do() {
        for count in [1, 2, 3, 4, 7, 100, 255] {
            for index in 0..count {
                let worker = Worker { index, count };
                let marked: std::collections::BTreeSet<u8> =
                    (0..=255).map(|random| worker.mark(random)).collect();
                let own = (0..=255_u8).filter(|byte| byte % count == index);
                assert!(marked.into_iter().eq(own), "{worker:?}");
                let next_id = NextId::default();
                let mut ids = ConnectionIds::new(8, Some(worker), next_id.clone());
                assert_eq!(ids.generate_cid()[0] % count, index);
                next_id.hand_over(true);
                let next = (u16::from(index) + 1) % u16::from(count);
                assert_eq!(u16::from(ids.generate_cid()[0] % count), next);
            }
        }
    }

    #[test]
    fn the_first_id_is_the_one_that_was_named_and_the_others_are_random() {
        let next_id = NextId::default();
        let mut ids = ConnectionIds::new(4, None, next_id.clone()).beginning(Some(b"abcd"));
        assert_eq!(&ids.generate_cid()[..], b"abcd");
        next_id.is_named();
        assert_eq!(&ids.generate_cid()[..], b"abcd");
        assert_ne!(ids.generate_cid(), ids.generate_cid());
    }
}
