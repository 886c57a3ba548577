//! Received DATAGRAM frames that wait for the program.

use std::collections::VecDeque;

use bytes::Bytes;

/// Keeps the newest: of data that may be lost they are worth most.
///
/// Bounds: so many bytes, an overhead for each frame counted in. When it is full the oldest make room and
/// are counted.
#[derive(Debug)]
pub(super) struct Datagrams {
    queue: VecDeque<Bytes>,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

impl Datagrams {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            bytes_max,
            dropped: 0,
        }
    }

    pub fn push(&mut self, data: Bytes) {
        self.bytes += cost(&data);
        self.queue.push_back(data);
        while self.bytes > self.bytes_max && self.pop().is_some() {
            self.dropped += 1;
        }
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        let data = self.queue.pop_front()?;
        self.bytes -= cost(&data);
        Some(data)
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Empty ones are not free.
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
    fn empty_ones_are_bounded_too() {
        let mut datagrams = Datagrams::new(10 * size_of::<Bytes>());
        (0..1_000).for_each(|_| datagrams.push(Bytes::new()));
        assert_eq!(datagrams.queue.len(), 10);
    }
}
