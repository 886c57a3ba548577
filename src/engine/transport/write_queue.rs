//! The write queue of a stream: pieces in order, and after them small writes that are gathered in a block.
//!
//! Pieces at the front may be in flight. They stay in the queue, because after a short send their rest is sent again.
//! `stream` decides when the queue is sent.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use bytes::{Buf, Bytes};
use uringcore_io::{Driver, Errno, OpId, Token, net};

use super::write_coalescer::{BLOCK_BYTES, Blocks, WriteCoalescer};

#[derive(Default)]
pub(crate) struct WriteQueue {
    pieces: VecDeque<Bytes>,
    /// The last small writes, after all pieces. None of them is in flight.
    coalescer: WriteCoalescer,
    /// The number of system calls that bypassed the driver since `take_direct_sends`.
    direct_sends: u32,
    /// The number of pieces in flight.
    in_flight: u16,
}

impl WriteQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.coalescer.is_empty()
    }

    /// True if the queue has bytes that no send in flight contains.
    pub(crate) fn has_waiting(&self) -> bool {
        self.pieces.len() > usize::from(self.in_flight) || !self.coalescer.is_empty()
    }

    pub(crate) fn push(&mut self, data: Bytes) {
        self.seal();
        self.pieces.push_back(data);
    }

    /// Adds a copy of `data`, which is shorter than a block.
    pub(crate) fn push_copy(&mut self, data: &[u8], blocks: &mut Blocks) {
        debug_assert!(
            data.len() <= BLOCK_BYTES,
            "the data does not fit in a block"
        );
        if !self.coalescer.has_room(data.len()) {
            self.seal();
        }
        self.coalescer.push(data, blocks);
    }

    /// Makes a piece of the gathered bytes.
    fn seal(&mut self) {
        self.pieces.extend(self.coalescer.cut());
    }

    /// Makes one system call, which sends as many bytes as the socket accepts without waiting. Returns the number of
    /// bytes, and true if all bytes of the call were sent.
    pub(crate) fn send_now(&mut self, fd: RawFd) -> Result<(usize, bool), Errno> {
        let gathered = Some(self.coalescer.bytes()).filter(|bytes| !bytes.is_empty());
        let pieces = self.pieces.iter().map(|piece| &piece[..]).chain(gathered);
        self.direct_sends += 1;
        let count = net::send_pieces(fd, pieces)?;
        Ok((count, self.advance(count)))
    }

    /// Starts a send of the pieces at the front, at most [`PIECES_PER_SEND_MAX`] of them.
    pub(crate) fn start_send(&mut self, driver: &mut Driver, fd: RawFd, token: Token) -> OpId {
        self.seal();
        let in_flight = self.pieces.len().min(PIECES_PER_SEND_MAX);
        self.in_flight = in_flight as u16;
        if in_flight == 1 {
            driver.send(fd, self.pieces[0].clone(), token)
        } else {
            let pieces = self.pieces.iter().take(in_flight);
            driver.send_vectored(fd, pieces.cloned(), token)
        }
    }

    /// Records that the send in flight has ended after `count` bytes.
    pub(crate) fn end_send(&mut self, count: usize) {
        self.in_flight = 0;
        self.advance(count);
    }

    /// Removes `count` bytes at the front, because they were sent. Returns true if they end where a piece, or the
    /// gathered bytes, end.
    fn advance(&mut self, mut count: usize) -> bool {
        while let Some(piece) = self.pieces.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return false;
            }
            count -= piece.len();
            self.pieces.pop_front();
            if count == 0 {
                return true;
            }
        }
        self.coalescer.advance(count);
        self.coalescer.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.coalescer.clear();
    }

    /// Returns the block of small writes to the free blocks, if nothing is left to send.
    pub(crate) fn give_block_back(&mut self, blocks: &mut Blocks) {
        if self.pieces.is_empty() {
            self.coalescer.give_back(blocks);
        }
    }

    /// The number of [`send_now`](Self::send_now) calls since `take_direct_sends`.
    pub(crate) fn direct_sends(&self) -> u32 {
        self.direct_sends
    }

    pub(crate) fn take_direct_sends(&mut self) -> u64 {
        u64::from(std::mem::take(&mut self.direct_sends))
    }
}

/// The maximum number of pieces in one SENDMSG. More pieces gain nothing and need a larger iovec array.
const PIECES_PER_SEND_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_of(lengths: &[usize]) -> WriteQueue {
        let (mut queue, mut blocks) = (WriteQueue::default(), Blocks::default());
        for &length in lengths {
            match length < BLOCK_BYTES {
                true => queue.push_copy(&vec![1; length], &mut blocks),
                false => queue.push(Bytes::from(vec![1; length])),
            }
        }
        queue
    }

    fn bytes_of(queue: &WriteQueue) -> usize {
        let pieces: usize = queue.pieces.iter().map(Bytes::len).sum();
        pieces + queue.coalescer.bytes().len()
    }

    #[test]
    fn sends_of_any_length_drain_pieces_and_gathered_writes() {
        let lengths = [10, BLOCK_BYTES, 20, 30];
        let total: usize = lengths.iter().sum();
        for count in 0..=total {
            let mut queue = queue_of(&lengths);
            queue.end_send(count);
            assert_eq!(bytes_of(&queue), total - count);
            assert_eq!(queue.is_empty(), count == total);
        }
    }

    #[test]
    fn a_send_is_whole_if_it_ends_with_a_piece() {
        let lengths = [BLOCK_BYTES, BLOCK_BYTES, 20];
        for (count, is_whole) in [
            (BLOCK_BYTES - 1, false),
            (BLOCK_BYTES, true),
            (BLOCK_BYTES + 1, false),
            (2 * BLOCK_BYTES + 19, false),
            (2 * BLOCK_BYTES + 20, true),
        ] {
            assert_eq!(queue_of(&lengths).advance(count), is_whole, "{count}");
        }
    }

    #[test]
    fn small_writes_after_a_large_one_are_gathered() {
        let mut queue = queue_of(&[10, 10, BLOCK_BYTES, 10, 10]);
        assert_eq!((queue.pieces.len(), queue.coalescer.bytes().len()), (2, 20));
        queue.seal();
        assert_eq!(queue.pieces.len(), 3);
    }
}
