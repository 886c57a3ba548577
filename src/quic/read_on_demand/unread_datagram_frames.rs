//! Received DATAGRAM frames that the program has not read yet.

use bytes::Bytes;
use uringcore_limits::memory_budget::Charge;

use crate::datagram_frame_queue::DatagramQueue;

/// Selects which datagrams are dropped when the queue is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest datagrams are dropped, because the newest real-time data is worth most.
    #[default]
    Oldest,
    /// New datagrams are dropped, so that the beginning of a sequence survives.
    Newest,
}

/// A bounded queue of received datagrams, which counts those that it drops. A small datagram that has to wait is
/// copied, because it would otherwise keep a receive buffer with many packets in memory.
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

    /// Charges the bytes of waiting datagrams to `charge`, a part of the memory budget.
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
        // If no other datagram waits, the program may take this datagram at once, so it is not copied.
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

    /// Drops all waiting datagrams, and adds them to the counter of dropped ones.
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

/// Datagrams of at least this many bytes fill half of their packet. So they are not copied out of the receive buffer
/// while they wait.
const SMALL: usize = 600;

/// The bytes that a waiting datagram needs besides its data: its heap allocation, and its share of the queue's spare
/// capacity.
const HEAP_OVERHEAD: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_its_oldest_datagrams() {
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
    fn with_overflow_newest_new_datagrams_are_dropped() {
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
    fn waiting_datagrams_are_charged_until_they_are_taken_or_dropped() {
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
