//! Generates an endpoint's connection IDs. They are random, with two exceptions:
//!
//! - If several workers share a port, the first byte identifies the worker. The kernel steers a datagram by the first
//!   byte of its destination connection ID, modulo the number of workers
//!   (`uringcore_io::net::steer_by_connection_id`). An observer learns the worker from that byte and nothing else.
//! - If the application of a server has set a key for stateless resets, the last byte is the mark of that key
//!   (`tls::keys::stateless_reset_keys`). An endpoint without a server sets no mark, because a mark would link the
//!   paths of a client that migrates (RFC 9000 section 9.5).
//!
//! A packet with the ID of another worker may arrive here. If that worker is gone, the kernel steers its packets to
//! others, and the packet is answered with a stateless reset like any packet of an unknown connection. If that worker
//! lives, the packet has bypassed the kernel's steering (by a broadcast address, or another program's socket on the
//! port). It is dropped, because a reset would end the other worker's connection.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::Duration,
};

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};

use crate::{EmptyPlaces, Worker, tls};

/// Flags for the next connection ID, and the generated IDs. The endpoint and its generator share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct NextId(Arc<Flags>);

#[derive(Debug)]
struct Flags {
    is_next_workers: AtomicBool,
    is_applications: AtomicBool,
    /// The last byte of the next IDs, or [`NO_MARK`].
    mark: AtomicU16,
    /// The connection IDs that were generated since the last [`take_generated`](Self::take_generated). `None` if they
    /// are not recorded.
    made: Option<Mutex<Vec<ConnectionId>>>,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            is_next_workers: AtomicBool::default(),
            is_applications: AtomicBool::default(),
            mark: AtomicU16::new(NO_MARK),
            made: None,
        }
    }
}

impl NextId {
    /// With `remembers`, generated IDs are recorded for [`take_generated`](Self::take_generated).
    pub fn new(remembers: bool) -> Self {
        Self(Arc::new(Flags {
            made: remembers.then(Mutex::default),
            ..Flags::default()
        }))
    }

    /// The connection IDs that were generated since the last call, oldest first.
    pub fn take_generated(&self) -> Vec<ConnectionId> {
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

    /// If true, the next connection IDs contain the place of the next worker, so that the kernel steers packets with
    /// them to that worker.
    pub fn use_next_worker(&self, is_next_workers: bool) {
        self.0
            .is_next_workers
            .store(is_next_workers, Ordering::Relaxed);
    }

    /// Sets the last byte of the next connection IDs to `mark`, or to a random byte if `mark` is `None`. The mark
    /// selects a stateless reset key.
    pub fn set_mark(&self, mark: Option<u8>) {
        let mark = mark.map_or(NO_MARK, u16::from);
        self.0.mark.store(mark, Ordering::Relaxed);
    }

    /// Makes the next ID the one that the application has set, if there is one. Called again after a Retry and after a
    /// restart, because the application routes packets by this ID.
    pub fn use_application_id(&self) {
        self.0.is_applications.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct EndpointConnectionIds {
    random: RandomConnectionIdGenerator,
    worker: Option<Worker>,
    empty_places: Option<Arc<dyn EmptyPlaces>>,
    next: NextId,
    /// The ID that the application has set for the next connection.
    first: Option<ConnectionId>,
}

impl EndpointConnectionIds {
    pub fn new(length: usize, worker: Option<Worker>, next: NextId) -> Self {
        Self {
            random: RandomConnectionIdGenerator::new(length),
            worker,
            empty_places: None,
            next,
            first: None,
        }
    }

    /// Makes `first` the next connection ID. With `None` that ID is random, too.
    pub fn with_first_id(mut self, first: Option<&[u8]>) -> Self {
        self.first = first.map(ConnectionId::new);
        self.next.use_application_id();
        self
    }

    /// Sets the places without a worker. This worker also accepts packets whose connection IDs belong to them.
    pub fn answering_for(mut self, places: Option<Arc<dyn EmptyPlaces>>) -> Self {
        self.empty_places = places;
        self
    }
}

impl EndpointConnectionIds {
    fn make(&mut self) -> ConnectionId {
        if let Some(first) = self.first
            && self.next.0.is_applications.swap(false, Ordering::Relaxed)
        {
            return first;
        }
        let mut id = self.random.generate_cid();
        if let (Some(worker), Some(first)) = (self.worker, id.first_mut()) {
            let worker = match self.next.0.is_next_workers.load(Ordering::Relaxed) {
                true => worker.next(),
                false => worker,
            };
            *first = worker.mark(*first);
        }
        if let Ok(mark) = u8::try_from(self.next.0.mark.load(Ordering::Relaxed))
            && tls::mark_of(&id).is_some()
            && let Some(last) = id.last_mut()
        {
            *last = mark;
        }
        id
    }
}

impl ConnectionIdGenerator for EndpointConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let id = self.make();
        self.next.made(id);
        id
    }

    /// quinn-proto calls this for a packet of an unknown connection, before it answers with a stateless reset.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let (Some(worker), Some(&first)) = (self.worker, id.first()) else {
            return Ok(());
        };
        let place = worker.place_of(first);
        let stands_in = |places: &Arc<dyn EmptyPlaces>| places.is_empty(place);
        match place == worker.index || self.empty_places.as_ref().is_some_and(stands_in) {
            true => Ok(()),
            // RFC 9000 section 21.11: the connection may be alive at the other worker, so there must be no reset.
            false => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        self.random.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Stands for no mark. No byte has this value.
const NO_MARK: u16 = 0x100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_of_a_long_enough_id_is_the_mark() {
        let next_id = NextId::default();
        next_id.set_mark(Some(7));
        for (length, is_marked) in [(0, false), (4, false), (7, false), (8, true), (20, true)] {
            let mut ids = EndpointConnectionIds::new(length, None, next_id.clone());
            let all = (0..100).all(|_| ids.generate_cid().last() == Some(&7));
            assert_eq!(all, is_marked, "{length}");
        }
        let worker = Worker { index: 1, count: 4 };
        let mut ids = EndpointConnectionIds::new(8, Some(worker), next_id.clone());
        let id = ids.generate_cid();
        assert_eq!((id[0] % 4, id[7]), (1, 7));
        next_id.set_mark(None);
        assert!((0..100).any(|_| ids.generate_cid()[7] != 7));
    }

    #[test]
    fn a_workers_ids_begin_with_every_byte_that_maps_to_it() {
        for count in [1, 2, 3, 4, 7, 100, 255] {
            for index in 0..count {
                let worker = Worker { index, count };
                let marked: std::collections::BTreeSet<u8> =
                    (0..=255).map(|random| worker.mark(random)).collect();
                let own = (0..=255_u8).filter(|byte| byte % count == index);
                assert!(marked.into_iter().eq(own), "{worker:?}");
                let next_id = NextId::default();
                let mut ids = EndpointConnectionIds::new(8, Some(worker), next_id.clone());
                assert_eq!(ids.generate_cid()[0] % count, index);
                next_id.use_next_worker(true);
                let next = (u16::from(index) + 1) % u16::from(count);
                assert_eq!(u16::from(ids.generate_cid()[0] % count), next);
            }
        }
    }

    #[derive(Debug)]
    struct Empty(u8);

    impl EmptyPlaces for Empty {
        fn is_empty(&self, index: u8) -> bool {
            index == self.0
        }
    }

    #[test]
    fn a_worker_accepts_its_own_ids_and_those_of_places_without_a_worker() {
        let worker = Worker { index: 1, count: 4 };
        let ids = EndpointConnectionIds::new(8, Some(worker), NextId::default());
        let answering_for = ids.clone().answering_for(Some(Arc::new(Empty(2))));
        let alone = EndpointConnectionIds::new(8, None, NextId::default());
        for first in 0..=255_u8 {
            let id = ConnectionId::new(&[first, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(ids.validate(&id).is_ok(), first % 4 == 1);
            assert_eq!(
                answering_for.validate(&id).is_ok(),
                matches!(first % 4, 1 | 2)
            );
            assert!(alone.validate(&id).is_ok());
        }
    }

    #[test]
    fn the_first_id_is_the_applications_and_later_ones_are_random() {
        let next_id = NextId::default();
        let mut ids =
            EndpointConnectionIds::new(4, None, next_id.clone()).with_first_id(Some(b"abcd"));
        assert_eq!(&ids.generate_cid()[..], b"abcd");
        next_id.use_application_id();
        assert_eq!(&ids.generate_cid()[..], b"abcd");
        assert_ne!(ids.generate_cid(), ids.generate_cid());
    }
}
