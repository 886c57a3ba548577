//! Adapts the thresholds of the C library's heap.
//!
//! glibc maps a block of 128 KiB or more by itself, and returns the end of its heap to the kernel as soon as so much
//! is free there. It raises both thresholds when a larger block is freed (mallopt(3), M_MMAP_THRESHOLD). Without
//! that, a loop that receives hundreds of kilobytes at a time would pay for pages that are returned and cleared again
//! with every message, until its program happens to free such a block. In another C library this has no effect, and
//! the thresholds stay dynamic.

use std::hint::black_box;
use std::sync::Once;

/// Allocates and frees one large block, without touching its pages.
pub fn show_large_block() {
    static SHOWN: Once = Once::new();
    SHOWN.call_once(|| drop(black_box(Vec::<u8>::with_capacity(LARGE_BLOCK_BYTES))));
}

/// Twice this may be free at the heap's end: the bytes that a turn receives, and the objects made of them.
const LARGE_BLOCK_BYTES: usize = 2 << 20;
