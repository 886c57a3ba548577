//! The connection IDs that an endpoint issues: random, and where several workers share a port, of a
//! kind that says whose they are.
//!
//! The kernel steers a datagram by the first byte of its destination connection ID, modulo the number
//! of workers (`uringcore_io::net::steer_by_connection_id`), so a worker's own IDs begin with a byte
//! that comes back to it. An observer learns the worker from that and nothing else.

use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};

/// One of several workers on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// From 0.
    pub index: u8,
    /// From 1.
    pub count: u8,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionIds {
    random: RandomConnectionIdGenerator,
    worker: Option<Worker>,
    /// What the host has named already.
    first: Option<ConnectionId>,
}

impl ConnectionIds {
    pub fn new(length: usize, worker: Option<Worker>) -> Self {
        Self {
            random: RandomConnectionIdGenerator::new(length),
            worker,
            first: None,
        }
    }

    /// The first ID is `first`, if there is one.
    pub fn beginning(mut self, first: Option<&[u8]>) -> Self {
        self.first = first.map(ConnectionId::new);
        self
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        if let Some(first) = self.first.take() {
            return first;
        }
        let id = self.random.generate_cid();
        let (Some(worker), Some(&first)) = (self.worker, id.first()) else {
            return id;
        };
        let mut bytes = id.to_vec();
        bytes[0] = worker.mark(first);
        ConnectionId::new(&bytes)
    }

    /// A datagram for another worker that came here all the same, while the port was being set up,
    /// must not be answered with a reset: the connection lives, next door.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match (self.worker, id.first()) {
            (Some(worker), Some(first)) if first % worker.count != worker.index => Err(InvalidCid),
            _ => Ok(()),
        }
    }

    fn cid_len(&self) -> usize {
        self.random.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

impl Worker {
    /// A byte that is this worker's, as random as `random`.
    fn mark(self, random: u8) -> u8 {
        let choices = (u8::MAX - self.index) / self.count;
        let choice = match choices {
            u8::MAX => random,
            _ => random % (choices + 1),
        };
        choice * self.count + self.index
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
                let mut ids = ConnectionIds::new(8, Some(worker));
                assert!(ids.generate_cid()[0] % count == index);
            }
        }
    }

    #[test]
    fn the_first_id_is_the_one_that_was_named_and_the_others_are_random() {
        let mut ids = ConnectionIds::new(4, None).beginning(Some(b"abcd"));
        assert_eq!(&ids.generate_cid()[..], b"abcd");
        assert_ne!(ids.generate_cid(), ids.generate_cid());
    }

    #[test]
    fn an_id_of_another_worker_is_not_ours_to_reset() {
        let ids = |index| ConnectionIds::new(8, Some(Worker { index, count: 4 }));
        let id = ids(2).generate_cid();
        assert!(ids(2).validate(&id).is_ok());
        assert!(ids(1).validate(&id).is_err());
        assert!(ConnectionIds::new(8, None).validate(&id).is_ok());
    }
}
