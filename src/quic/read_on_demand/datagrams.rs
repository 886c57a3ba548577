//! Received DATAGRAM frames that wait for the program.

use std::collections::VecDeque;

use bytes::Bytes;
use uringcore_limits::budget::Charge;

/// Which datagrams are dropped when the queue is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Drop the oldest: the newest real-time data is worth most.
    #[default]
    Oldest,
    /// Drop those that arrive, so that the order and the beginning of a sequence survive.
    Newest,
}

/// A bounded queue of datagrams.
///
/// The bound is a number of bytes, including an overhead for each frame. Dropped datagrams are counted. Small
/// datagrams are copied when they have to wait, because their receive buffer may hold many packets.
#[derive(Debug)]
pub struct Datagrams {
    queue: VecDeque<Bytes>,
    bytes: usize,
    bytes_max: usize,
    overflow: Overflow,
    dropped: u64,
    charge: Charge,
}

impl Datagrams {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            bytes_max,
            overflow: Overflow::default(),
            dropped: 0,
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
        if self.overflow == Overflow::Newest && self.bytes + cost(&data) > self.bytes_max {
            self.dropped += 1;
            return;
        }
        // A datagram that is taken at once is not copied.
        if !self.queue.is_empty() && data.len() < SMALL {
            data = Bytes::copy_from_slice(&data);
        }
        self.bytes += cost(&data);
        self.queue.push_back(data);
        while self.bytes > self.bytes_max && self.pop().is_some() {
            self.dropped += 1;
        }
        self.recharge();
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        let data = self.queue.pop_front()?;
        self.bytes -= cost(&data);
        self.recharge();
        Some(data)
    }

    /// Drops all datagrams; the program will not read them.
    pub fn clear(&mut self) {
        self.dropped += self.queue.len() as u64;
        self.queue = VecDeque::new();
        self.bytes = 0;
        self.recharge();
    }

    fn recharge(&mut self) {
        self.charge
            .set(self.bytes + self.queue.len() * HEAP_OVERHEAD);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Larger datagrams are at least half as long as their packet, so they are not copied.
const SMALL: usize = 600;

/// Overhead of a small datagram: its heap allocation, and its share of the queue's spare capacity.
const HEAP_OVERHEAD: usize = 48;

/// Empty datagrams cost their entry.
fn cost(data: &Bytes) -> usize {
    data.len() + size_of::<Bytes>()
}

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
        assert_eq!(datagrams.bytes, 0);
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
    fn empty_ones_are_bounded_too() {
        let mut datagrams = Datagrams::new(10 * size_of::<Bytes>());
        (0..1_000).for_each(|_| datagrams.push(Bytes::new()));
        assert_eq!(datagrams.queue.len(), 10);
    }
}
