//! The tail of a stream's write queue: what was written in small pieces, gathered in one block, and the
//! blocks that no stream needs at the moment.
//!
//! A copy of its own for each small write would be an allocation, and a second one when the kernel is lent
//! it, for a `Bytes` made of a `Vec` gets its count with the first clone. A block has both behind it: what
//! is cut off it shares its count, and it is used again once all of that is sent. It is not shared between
//! streams: a few bytes that wait for a slow peer would keep everybody's.
//!
//! Not here: when the tail is cut off, and what is in front of it (`stream`).

use bytes::{Buf, Bytes, BytesMut};

/// Empty without a block.
#[derive(Default)]
pub(crate) struct WriteCoalescer(Option<Box<BytesMut>>);

impl WriteCoalescer {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |block| block)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// True if `count` bytes go behind those that are there, which then stay where they are.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        let room = |block: &BytesMut| block.capacity() - block.len() >= count;
        self.is_empty() || self.0.as_deref().is_none_or(room)
    }

    pub(crate) fn push(&mut self, data: &[u8], blocks: &mut Blocks) {
        let block = self.0.get_or_insert_with(|| blocks.take());
        block.extend_from_slice(data);
    }

    /// All of it, in memory that the kernel may be lent while more is written behind it.
    pub(crate) fn cut(&mut self) -> Option<Bytes> {
        let block = self.0.as_mut().filter(|block| !block.is_empty())?;
        Some(block.split().freeze())
    }

    /// The first `count` bytes are sent.
    pub(crate) fn advance(&mut self, count: usize) {
        if let Some(block) = &mut self.0 {
            block.advance(count);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Gives an empty tail's block back, of which nothing is in flight.
    pub(crate) fn give_back(&mut self, blocks: &mut Blocks) {
        if let Some(block) = self.0.take_if(|block| block.is_empty()) {
            blocks.give(block);
        }
    }
}

/// Blocks that no stream needs, the one that was used last on top: its memory is in the cache.
#[derive(Default)]
pub(crate) struct Blocks {
    // Boxed for the sake of idle streams, which have room for a pointer.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<BytesMut>>,
}

impl Blocks {
    fn take(&mut self) -> Box<BytesMut> {
        let made = || Box::new(BytesMut::with_capacity(BLOCK_BYTES));
        self.spare.pop().unwrap_or_else(made)
    }

    /// From its beginning again, which is what a program that writes a little at a time has in the cache.
    fn give(&mut self, mut block: Box<BytesMut>) {
        if self.spare.len() < SPARE_MAX && block.try_reclaim(BLOCK_BYTES) {
            self.spare.push(block);
        }
    }
}

/// What is as long as that is not gathered.
pub(crate) const BLOCK_BYTES: usize = 4096;
const SPARE_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_stays_as_it_is_while_more_is_written_behind_it() {
        let (mut coalescer, mut blocks) = (WriteCoalescer::default(), Blocks::default());
        coalescer.push(b"first ", &mut blocks);
        coalescer.push(b"second", &mut blocks);
        let cut = coalescer.cut().expect("there is something");
        assert!(coalescer.is_empty() && coalescer.cut().is_none());
        for _ in 0..2 * BLOCK_BYTES {
            coalescer.push(b"x", &mut blocks);
        }
        assert_eq!(cut, b"first second"[..]);
        assert_eq!(coalescer.bytes(), [b'x'; 2 * BLOCK_BYTES]);
    }

    #[test]
    fn a_block_comes_back_only_when_nothing_of_it_is_in_flight() {
        let (mut coalescer, mut blocks) = (WriteCoalescer::default(), Blocks::default());
        coalescer.push(b"sent at once", &mut blocks);
        coalescer.give_back(&mut blocks);
        assert!(blocks.spare.is_empty(), "it is not sent");
        coalescer.advance(12);
        coalescer.give_back(&mut blocks);
        assert_eq!(blocks.spare.len(), 1);
        coalescer.push(b"in flight", &mut blocks);
        assert!(blocks.spare.is_empty());
        let in_flight = coalescer.cut();
        coalescer.give_back(&mut blocks);
        assert!(blocks.spare.is_empty(), "another stream would wait for it");
        drop(in_flight);
        coalescer.push(b"more", &mut blocks);
        drop(coalescer.cut());
        coalescer.give_back(&mut blocks);
        assert_eq!(blocks.spare.len(), 1);
        assert_eq!(
            blocks.spare[0].capacity(),
            BLOCK_BYTES,
            "from its beginning"
        );
    }
}
