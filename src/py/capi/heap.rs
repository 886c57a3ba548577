//! What the C library's heap learns from us.
//!
//! glibc maps a block of 128 KiB or more by itself, and gives the end of its heap back to the kernel as soon as
//! so much is free there, until it has seen a larger block come and go: blocks of that size are worth keeping
//! then (mallopt(3), M_MMAP_THRESHOLD). A loop that receives by the hundred kilobytes would pay for pages
//! that are given back and cleared again with every message, as long as nothing in its program happens to
//! teach that. Another C library is told nothing by this, and the setting stays one that moves.

use std::hint::black_box;
use std::sync::Once;

/// Lets the heap see one block, whose pages nobody touches.
pub fn show_large_block() {
    static SHOWN: Once = Once::new();
    SHOWN.call_once(|| drop(black_box(Vec::<u8>::with_capacity(LARGE_BLOCK_BYTES))));
}

/// Twice this may be free at the heap's end: what a turn receives, and what is made of it.
const LARGE_BLOCK_BYTES: usize = 2 << 20;
