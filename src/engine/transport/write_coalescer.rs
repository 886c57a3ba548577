//! The last part of a stream's write queue: small writes, which are gathered in one block. Also the list of free
//! blocks.
//!
//! A separate copy of each small write would cost an allocation, and a second one when the kernel borrows it, because
//! a `Bytes` made of a `Vec` allocates its reference count at its first clone. A block costs both once: the pieces
//! that are cut off share its reference count, and the block is used again when all of them are sent. Streams do not
//! share blocks, because a few bytes that wait for a slow peer would keep the block of all.

use bytes::{Buf, Bytes, BytesMut};

/// The block that is being filled; `None` if no small writes wait.
#[derive(Default)]
pub(crate) struct WriteCoalescer(Option<Box<BytesMut>>);

impl WriteCoalescer {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |block| block)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// True if `count` more bytes fit in the block.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        let room = |block: &BytesMut| block.capacity() - block.len() >= count;
        self.is_empty() || self.0.as_deref().is_none_or(room)
    }

    pub(crate) fn push(&mut self, data: &[u8], blocks: &mut Blocks) {
        let block = self.0.get_or_insert_with(|| blocks.take());
        block.extend_from_slice(data);
    }

    /// Takes all bytes, as a piece that shares the block. While the kernel sends it, more bytes can be added to the
    /// block behind it.
    pub(crate) fn cut(&mut self) -> Option<Bytes> {
        let block = self.0.as_mut().filter(|block| !block.is_empty())?;
        Some(block.split().freeze())
    }

    /// Removes the first `count` bytes, because they were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        if let Some(block) = &mut self.0 {
            block.advance(count);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Returns the block to the free blocks, if it has no bytes and none of it is in flight.
    pub(crate) fn give_back(&mut self, blocks: &mut Blocks) {
        if let Some(block) = self.0.take_if(|block| block.is_empty()) {
            blocks.give(block);
        }
    }
}

/// The free blocks. The block that was used last is used first, because its memory is in the cache.
#[derive(Default)]
pub(crate) struct Blocks {
    // Blocks are boxed, because an idle stream has room for a pointer only.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<BytesMut>>,
}

impl Blocks {
    fn take(&mut self) -> Box<BytesMut> {
        let made = || Box::new(BytesMut::with_capacity(BLOCK_BYTES));
        self.spare.pop().unwrap_or_else(made)
    }

    /// Keeps `block` for reuse if no other object uses a part of it. It is then filled from its beginning, which is in
    /// the processor's cache.
    fn give(&mut self, mut block: Box<BytesMut>) {
        if self.spare.len() < SPARE_MAX && block.try_reclaim(BLOCK_BYTES) {
            self.spare.push(block);
        }
    }
}

/// The size of a block in bytes. Writes of this size or more are not gathered. `py::capi::bytes_like_objects` decides whether
/// Python's object is copied before.
pub(crate) const BLOCK_BYTES: usize = 4096;
const SPARE_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_cut_from_a_block_is_unchanged_by_later_writes() {
        let (mut coalescer, mut blocks) = (WriteCoalescer::default(), Blocks::default());
        coalescer.push(b"first ", &mut blocks);
        coalescer.push(b"second", &mut blocks);
        let cut = coalescer.cut().expect("bytes were pushed");
        assert!(coalescer.is_empty() && coalescer.cut().is_none());
        for _ in 0..2 * BLOCK_BYTES {
            coalescer.push(b"x", &mut blocks);
        }
        assert_eq!(cut, b"first second"[..]);
        assert_eq!(coalescer.bytes(), [b'x'; 2 * BLOCK_BYTES]);
    }

    #[test]
    fn a_block_is_reused_only_when_none_of_its_bytes_are_in_flight() {
        let (mut coalescer, mut blocks) = (WriteCoalescer::default(), Blocks::default());
        coalescer.push(b"sent at once", &mut blocks);
        coalescer.give_back(&mut blocks);
        assert!(blocks.spare.is_empty(), "the block has unsent bytes");
        coalescer.advance(12);
        coalescer.give_back(&mut blocks);
        assert_eq!(blocks.spare.len(), 1);
        coalescer.push(b"in flight", &mut blocks);
        assert!(blocks.spare.is_empty());
        let in_flight = coalescer.cut();
        coalescer.give_back(&mut blocks);
        assert!(blocks.spare.is_empty(), "the cut bytes are in flight");
        drop(in_flight);
        coalescer.push(b"more", &mut blocks);
        drop(coalescer.cut());
        coalescer.give_back(&mut blocks);
        assert_eq!(blocks.spare.len(), 1);
        assert_eq!(
            blocks.spare[0].capacity(),
            BLOCK_BYTES,
            "the whole block is free again"
        );
    }
}
