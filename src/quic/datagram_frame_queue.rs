//! A bounded queue of DATAGRAM frames: of frames to send (`connection::datagram_frame_sender`), and of received ones
//! (`read_on_demand::unread_datagram_frames`).

use std::collections::{VecDeque, vec_deque::Iter};

use bytes::Bytes;

/// A queue that is bounded in bytes. Each datagram counts with an overhead, so that empty datagrams are bounded, too.
#[derive(Debug)]
pub(crate) struct DatagramQueue {
    queue: VecDeque<Bytes>,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

impl DatagramQueue {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            bytes_max,
            dropped: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The bytes of all queued datagrams, with their overhead.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The queued datagrams, the oldest first.
    pub fn iter(&self) -> Iter<'_, Bytes> {
        self.queue.iter()
    }

    pub fn first(&self) -> Option<&Bytes> {
        self.queue.front()
    }

    /// True if the datagram has room without dropping another one.
    pub fn has_room(&self, data: &Bytes) -> bool {
        self.bytes + cost(data) <= self.bytes_max
    }

    /// Adds a datagram at the end. If the queue is full, its oldest datagrams are dropped.
    pub fn push(&mut self, data: Bytes) {
        self.bytes += cost(&data);
        self.queue.push_back(data);
        self.keep_to_bound();
    }

    /// Adds datagrams at the front, in their order. If there is no room, the oldest ones are dropped.
    pub fn push_all_first(&mut self, datagrams: impl DoubleEndedIterator<Item = Bytes>) {
        datagrams.rev().for_each(|data| self.put_back(data));
        self.keep_to_bound();
    }

    /// Puts the datagram that [`pop`](Self::pop) has returned back at the front, because it could not be sent.
    pub fn put_back(&mut self, data: Bytes) {
        self.bytes += cost(&data);
        self.queue.push_front(data);
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        let data = self.queue.pop_front()?;
        self.bytes -= cost(&data);
        Some(data)
    }

    fn keep_to_bound(&mut self) {
        while self.bytes > self.bytes_max && self.pop().is_some() {
            self.dropped += 1;
        }
    }

    /// Drops all datagrams and frees the queue's memory.
    pub fn clear(&mut self) {
        self.queue = VecDeque::new();
        self.bytes = 0;
    }

    /// Frees the queue's unused capacity.
    pub fn rest(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Adds datagrams that were dropped before they were queued to the counter.
    pub fn count_dropped(&mut self, count: u64) {
        self.dropped += count;
    }

    /// The number of datagrams that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The number of bytes by which a datagram fills the queue: its data and its entry.
pub(crate) fn cost(data: &Bytes) -> usize {
    data.len() + size_of::<Bytes>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(byte: u8) -> Bytes {
        Bytes::from(vec![byte; 100])
    }

    fn first_bytes(queue: &DatagramQueue) -> Vec<u8> {
        queue.iter().map(|data| data[0]).collect()
    }

    fn of_three() -> DatagramQueue {
        DatagramQueue::new(3 * cost(&datagram(0)))
    }

    #[test]
    fn a_full_queue_drops_its_oldest_datagrams() {
        let mut queue = of_three();
        for byte in 0..3 {
            assert!(queue.has_room(&datagram(byte)));
            queue.push(datagram(byte));
        }
        assert!(!queue.has_room(&Bytes::new()));
        (3..5).for_each(|byte| queue.push(datagram(byte)));
        assert_eq!((first_bytes(&queue), queue.dropped()), (vec![2, 3, 4], 2));
        assert_eq!(queue.pop(), Some(datagram(2)));
        queue.put_back(datagram(2));
        assert_eq!((queue.len(), queue.bytes()), (3, queue.bytes_max()));
        queue.clear();
        assert_eq!((queue.len(), queue.bytes(), queue.dropped()), (0, 0, 2));
        assert!(queue.pop().is_none() && queue.is_empty());
    }

    #[test]
    fn datagrams_that_are_put_back_come_first() {
        let mut queue = of_three();
        (3..5).for_each(|byte| queue.push(datagram(byte)));
        queue.push_all_first((0..3).map(datagram));
        assert_eq!((first_bytes(&queue), queue.dropped()), (vec![2, 3, 4], 2));
    }

    #[test]
    fn empty_datagrams_are_bounded_too() {
        let mut queue = DatagramQueue::new(10 * size_of::<Bytes>());
        (0..1_000).for_each(|_| queue.push(Bytes::new()));
        assert_eq!(queue.len(), 10);
    }
}
