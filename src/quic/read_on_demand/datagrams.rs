//! Received DATAGRAM frames that wait for the program.

use bytes::Bytes;
use uringcore_limits::memory_budget::Charge;

use crate::datagram_queue::DatagramQueue;

/// The choice of datagrams to drop when the queue is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Drop the oldest: the newest real-time data is worth most.
    #[default]
    Oldest,
    /// Drop those that arrive, so that the order and the beginning of a sequence survive.
    Newest,
}

/// A bounded queue of datagrams, which counts those that it drops. Small datagrams are copied when they have to wait,
/// because their receive buffer may hold many packets.
#[derive(Debug)]
pub struct Datagrams {
    queue: DatagramQueue,
    overflow: Overflow,
    charge: Charge,
}

impl Datagrams {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            queue: DatagramQueue::new(bytes_max),
            overflow: Overflow::default(),
            charge: Charge::default(),
        }
    }

    /// Charges the waiting bytes to `charge`.
    pub fn set_charge(&mut self, charge: Charge) {
        self.charge = charge;
        self.recharge();
    }

    pub fn set_overflow(&mut self, overflow: Overflow) {
        self.overflow = overflow;
    }

    pub fn push(&mut self, mut data: Bytes) {
        if self.overflow == Overflow::Newest && !self.queue.has_room(&data) {
            self.queue.count_dropped(1);
            return;
        }
        // A datagram that is taken at once is not copied.
        if !self.queue.is_empty() && data.len() < SMALL {
            data = Bytes::copy_from_slice(&data);
        }
        self.queue.push(data);
        self.recharge();
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        let data = self.queue.pop()?;
        self.recharge();
        Some(data)
    }

    /// Drops all datagrams; the program will not read them.
    pub fn clear(&mut self) {
        self.queue.count_dropped(self.queue.len() as u64);
        self.queue.clear();
        self.recharge();
    }

    fn recharge(&mut self) {
        self.charge
            .set(self.queue.bytes() + self.queue.len() * HEAP_OVERHEAD);
    }

    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }
}

/// Larger datagrams are at least half as long as their packet, so they are not copied.
const SMALL: usize = 600;

/// Overhead of a small datagram: its heap allocation, and its share of the queue's spare capacity.
const HEAP_OVERHEAD: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_it_is_full_the_oldest_make_room() {
        let mut datagrams = Datagrams::new(3 * (100 + size_of::<Bytes>()));
        for number in 0..5 {
            datagrams.push(Bytes::from(vec![number; 100]));
        }
        assert_eq!(datagrams.dropped(), 2);
        let kept: Vec<u8> = std::iter::from_fn(|| datagrams.pop())
            .map(|data| data[0])
            .collect();
        assert_eq!(kept, [2, 3, 4]);
        assert_eq!(datagrams.queue.bytes(), 0);
    }

    #[test]
    fn the_newest_are_dropped_where_that_is_wanted() {
        let mut datagrams = Datagrams::new(3 * (100 + size_of::<Bytes>()));
        datagrams.set_overflow(Overflow::Newest);
        for number in 0..5 {
            datagrams.push(Bytes::from(vec![number; 100]));
        }
        assert_eq!(datagrams.dropped(), 2);
        assert_eq!(datagrams.pop().map(|data| data[0]), Some(0));
        datagrams.push(Bytes::from(vec![5; 100]));
        let kept: Vec<u8> = std::iter::from_fn(|| datagrams.pop())
            .map(|data| data[0])
            .collect();
        assert_eq!(kept, [1, 2, 5]);
    }

    #[test]
    fn waiting_datagrams_are_charged_and_what_is_cleared_is_dropped() {
        let mut datagrams = Datagrams::new(1_000);
        let queued = std::sync::Arc::<uringcore_limits::memory_budget::Queued>::default();
        datagrams.push(Bytes::from(vec![0; 100]));
        datagrams.set_charge(Charge::new(queued.clone()));
        let each = 100 + size_of::<Bytes>() + HEAP_OVERHEAD;
        assert_eq!(queued.bytes(), each);
        datagrams.push(Bytes::from(vec![1; 100]));
        assert_eq!(queued.bytes(), 2 * each);
        datagrams.clear();
        assert_eq!((queued.bytes(), datagrams.dropped()), (0, 2));
    }
}
