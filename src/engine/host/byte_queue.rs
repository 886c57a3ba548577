//! A queue of bytes in one contiguous buffer.
//!
//! A host's decoder (TLS with OpenSSL) reads from the front, while received bytes are added at the end.

/// A queue of bytes. Its memory is proportional to the bytes in it, not to the bytes that have passed through it.
#[derive(Debug, Default)]
pub struct ByteQueue {
    bytes: Vec<u8>,
    /// The number of bytes at the front of `bytes` that were removed.
    taken: usize,
}

impl ByteQueue {
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in the queue, the oldest first.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Adds a copy of `data`. If more than half of the buffer was removed, the remaining bytes are first moved to its
    /// front. So each byte is moved at most once on average.
    pub fn push(&mut self, data: &[u8]) {
        if self.taken > 0 && self.taken >= self.len() {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes.shrink_to(self.bytes.len() + data.len());
            }
        }
        self.bytes.extend_from_slice(data);
    }

    /// Removes `count` bytes from the front, or all bytes if there are fewer.
    pub fn advance(&mut self, count: usize) {
        self.taken += count.min(self.len());
        if self.is_empty() {
            self.taken = 0;
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        }
    }
}

/// The maximum capacity in bytes that an empty queue keeps.
const KEPT_BYTES_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_of_their_arrival() {
        let mut queue = ByteQueue::default();
        let (mut pushed, mut taken) = (Vec::new(), Vec::new());
        for (byte, step) in (0..=u8::MAX).cycle().zip(0..10_000) {
            let piece = vec![byte; step % 7];
            queue.push(&piece);
            pushed.extend(piece);
            let count = (step % 5).min(queue.len());
            taken.extend_from_slice(&queue.bytes()[..count]);
            queue.advance(count);
        }
        taken.extend_from_slice(queue.bytes());
        assert_eq!(taken, pushed);
        queue.advance(usize::MAX);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_queue_frees_the_memory_of_read_bytes() {
        let mut queue = ByteQueue::default();
        let piece = [7; 100_003];
        queue.push(&[1; 5]);
        for _ in 0..1000 {
            queue.push(&piece);
            // In each round a part of a record stays in the queue, so the queue is never empty.
            queue.advance(piece.len());
        }
        assert_eq!(queue.len(), 5);
        assert!(queue.bytes.capacity() < 1 << 20);
        queue.advance(5);
        assert_eq!(queue.bytes.capacity(), 0);
    }
}
