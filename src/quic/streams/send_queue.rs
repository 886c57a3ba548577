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
    pieces: Pieces,
    /// Small writes that are being joined.
    tail: BytesMut,
    len: usize,
}

/// A single piece, which is all that most streams ever have at a time, is kept without an allocation.
#[derive(Debug)]
enum Pieces {
    /// A single piece. Empty if there is none.
    One(Bytes),
    Many(VecDeque<Bytes>),
}

impl Default for Pieces {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl Pieces {
    fn last(&self) -> Option<&Bytes> {
        match self {
            Self::One(piece) => Some(piece).filter(|piece| !piece.is_empty()),
            Self::Many(pieces) => pieces.back(),
        }
    }

    fn as_slice(&mut self) -> &mut [Bytes] {
        match self {
            Self::One(piece) if piece.is_empty() => &mut [],
            Self::One(piece) => std::slice::from_mut(piece),
            Self::Many(pieces) => pieces.make_contiguous(),
        }
    }

    fn push(&mut self, piece: Bytes) {
        match self {
            Self::One(first) if first.is_empty() => *first = piece,
            Self::One(first) => *self = Self::Many(VecDeque::from([std::mem::take(first), piece])),
            Self::Many(pieces) => pieces.push_back(piece),
        }
    }

    fn pop(&mut self) -> Option<Bytes> {
        match self {
            Self::One(piece) => Some(std::mem::take(piece)).filter(|piece| !piece.is_empty()),
            Self::Many(pieces) => pieces.pop_back(),
        }
    }

    /// Removes `count` pieces from the front.
    fn remove_first(&mut self, count: usize) {
        match self {
            Self::One(piece) if count > 0 => *piece = Bytes::new(),
            Self::One(_) => {}
            Self::Many(pieces) => drop(pieces.drain(..count)),
        }
    }

    fn into_many(self) -> VecDeque<Bytes> {
        match self {
            Self::One(piece) if piece.is_empty() => VecDeque::new(),
            Self::One(piece) => VecDeque::from([piece]),
            Self::Many(pieces) => pieces,
        }
    }
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
            self.pieces.push(data.split_to(PIECE_MAX));
        }
        if data.len() >= PIECE_MIN {
            self.pieces.push(data);
        } else if !self.tail.is_empty() {
            self.tail.extend_from_slice(&data);
        } else if self
            .pieces
            .last()
            .is_some_and(|last| last.len() < PIECE_MIN)
        {
            let last = self.pieces.pop().unwrap_or_default();
            self.tail.reserve((last.len() + data.len()) * 2);
            self.tail.extend_from_slice(&last);
            self.tail.extend_from_slice(&data);
        } else {
            // Often this is the only write of a loop iteration, with which nothing can be joined, so it is not copied.
            self.pieces.push(data);
        }
    }

    /// All queued data in pieces, of which the caller removes bytes from the front. Afterwards the caller passes the
    /// number of removed bytes to [`taken`](Self::taken).
    pub fn pieces(&mut self) -> &mut [Bytes] {
        self.complete_tail();
        self.pieces.as_slice()
    }

    /// Splits the piece that contains the byte at offset `bytes`, so that one piece ends at that offset.
    pub fn cut_at(&mut self, bytes: usize) {
        self.complete_tail();
        let mut before = 0;
        let mut pieces = std::mem::take(&mut self.pieces).into_many();
        for at in 0..pieces.len() {
            let piece = &mut pieces[at];
            if before >= bytes {
                break;
            }
            if before + piece.len() > bytes {
                let rest = piece.split_off(bytes - before);
                pieces.insert(at + 1, rest);
                break;
            }
            before += piece.len();
        }
        self.pieces = Pieces::Many(pieces);
    }

    /// Removes `pieces` whole pieces from the front. `bytes` is the number of all taken bytes, which includes those
    /// that the caller has cut off the next piece.
    pub fn taken(&mut self, pieces: usize, bytes: usize) {
        self.pieces.remove_first(pieces);
        self.len -= bytes;
    }

    /// Frees the queue's unused capacity.
    pub fn rest(&mut self) {
        if let Pieces::Many(pieces) = &mut self.pieces {
            pieces.shrink_to_fit();
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn complete_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(std::mem::take(&mut self.tail).freeze());
        }
    }
}

/// A write of at least this many bytes becomes a piece of its own and is not copied here. `py::capi::bytes_like_objects` decides
/// whether Python's object is copied before.
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
    fn a_piece_is_cut_where_the_caller_asks() {
        let mut queue = SendQueue::default();
        queue.push(Bytes::from(vec![1; 40_000]));
        queue.cut_at(40_000);
        assert_eq!(piece_sizes(&mut queue), [40_000]);
        queue.cut_at(30_000);
        queue.push(Bytes::from(vec![2; 20_000]));
        queue.cut_at(50_000);
        assert_eq!(piece_sizes(&mut queue), [30_000, 10_000, 10_000, 10_000]);
        queue.taken(1, 30_000);
        queue.taken(2, 20_000);
        assert_eq!(
            (piece_sizes(&mut queue), queue.len()),
            (vec![10_000], 10_000)
        );
        queue.taken(1, 10_000);
        queue.push(Bytes::from(vec![3; 20_000]));
        assert_eq!(piece_sizes(&mut queue), [20_000]);
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
