//! Data of one stream that waits to be passed to quinn-proto.
//!
//! quinn-proto keeps written data until it is acknowledged, in a list that it searches from the front for every
//! packet. So many small pieces make it slow (with 16 MB outstanding: 10.4 Gbit/s with pieces of 64 KiB, 1.6 with
//! 1,000 bytes). Therefore small writes are joined here. Large ones are never copied.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Pieces that get no more bytes. They are sent before `tail`.
    pieces: VecDeque<Bytes>,
    /// Small writes that are being joined.
    tail: BytesMut,
    len: usize,
}

impl SendQueue {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, mut data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.len += data.len();
        if data.len() >= PIECE_MIN || self.tail.len() + data.len() > PIECE_MAX {
            self.complete_tail();
        }
        while data.len() > PIECE_MAX {
            self.pieces.push_back(data.split_to(PIECE_MAX));
        }
        if data.len() >= PIECE_MIN {
            self.pieces.push_back(data);
        } else if !self.tail.is_empty() {
            self.tail.extend_from_slice(&data);
        } else if self
            .pieces
            .back()
            .is_some_and(|last| last.len() < PIECE_MIN)
        {
            let last = self.pieces.pop_back().unwrap_or_default();
            self.tail.reserve((last.len() + data.len()) * 2);
            self.tail.extend_from_slice(&last);
            self.tail.extend_from_slice(&data);
        } else {
            // Often this is the only write of a loop iteration, with which nothing can be joined, so it is not copied.
            self.pieces.push_back(data);
        }
    }

    /// All queued data in pieces, of which the caller removes bytes from the front. Afterwards the caller passes the
    /// number of removed bytes to [`taken`](Self::taken).
    pub fn pieces(&mut self) -> &mut [Bytes] {
        self.complete_tail();
        self.pieces.make_contiguous()
    }

    /// Splits the piece that contains the byte at offset `bytes`, so that one piece ends at that offset.
    pub fn cut_at(&mut self, bytes: usize) {
        self.complete_tail();
        let mut before = 0;
        for at in 0..self.pieces.len() {
            if before == bytes {
                return;
            }
            let piece = &mut self.pieces[at];
            if before + piece.len() > bytes {
                let rest = piece.split_off(bytes - before);
                self.pieces.insert(at + 1, rest);
                return;
            }
            before += piece.len();
        }
    }

    /// Removes `pieces` whole pieces from the front. `bytes` is the number of all taken bytes, which includes those
    /// that the caller has cut off the next piece.
    pub fn taken(&mut self, pieces: usize, bytes: usize) {
        self.pieces.drain(..pieces);
        self.len -= bytes;
    }

    /// Frees the queue's unused capacity.
    pub fn rest(&mut self) {
        self.pieces.shrink_to_fit();
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn complete_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces
                .push_back(std::mem::take(&mut self.tail).freeze());
        }
    }
}

/// A write of at least this many bytes becomes a piece of its own and is not copied.
const PIECE_MIN: usize = 16 << 10;
/// Small writes are joined to pieces of at most this many bytes. A larger write is cut into such pieces.
const PIECE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn piece_sizes(queue: &mut SendQueue) -> Vec<usize> {
        queue.pieces().iter().map(Bytes::len).collect()
    }

    #[test]
    fn small_writes_are_joined_and_large_ones_are_not_copied() {
        let mut queue = SendQueue::default();
        for _ in 0..200 {
            queue.push(Bytes::from_static(&[1; 1_000]));
        }
        let large = Bytes::from(vec![2; 100_000]);
        queue.push(large.clone());
        queue.push(Bytes::from_static(&[3; 10]));
        queue.push(Bytes::new());
        assert_eq!(queue.len(), 300_010);
        let sizes = piece_sizes(&mut queue);
        assert!(
            sizes.len() <= 8 && sizes.iter().all(|&size| size <= PIECE_MAX),
            "{sizes:?}"
        );
        assert_eq!(sizes.iter().sum::<usize>(), 300_010);
        let is_large = |piece: &&Bytes| large.as_ptr_range().contains(&piece.as_ptr());
        let found: usize = queue.pieces().iter().filter(is_large).map(Bytes::len).sum();
        assert_eq!(found, 100_000, "a large write is cut without a copy");
    }

    #[test]
    fn a_single_small_write_is_not_copied() {
        let mut queue = SendQueue::default();
        let write = Bytes::from(vec![1; 100]);
        queue.push(write.clone());
        assert_eq!(queue.pieces()[0].as_ptr(), write.as_ptr());
        let first = &mut queue.pieces()[0];
        *first = first.slice(40..);
        queue.taken(0, 40);
        assert_eq!(queue.len(), 60);
        queue.taken(1, 60);
        assert!(queue.is_empty());
    }
}
