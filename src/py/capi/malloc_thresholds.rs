//! Raises the thresholds of glibc's malloc.
//!
//! glibc maps each block of 128 KiB or more by itself, and returns free memory at the end of the heap to the kernel
//! as soon as it is that much. It raises both thresholds when a larger block is freed (mallopt(3), M_MMAP_THRESHOLD).
//! Until a program happens to free such a block, a loop that receives hundreds of kilobytes at a time would pay with
//! every message for pages that are returned to the kernel and cleared again. So this file allocates and frees one
//! large block. In other C libraries this has no effect. The thresholds stay dynamic.

use std::hint::black_box;
use std::sync::Once;

/// Allocates and frees one block of [`LARGE_BLOCK_BYTES`] without touching its pages, once per process.
pub fn show_large_block() {
    static SHOWN: Once = Once::new();
    SHOWN.call_once(|| drop(black_box(Vec::<u8>::with_capacity(LARGE_BLOCK_BYTES))));
}

/// glibc keeps up to twice this size free at the end of the heap. That is enough for the bytes that a loop iteration
/// receives, and the objects made from them.
const LARGE_BLOCK_BYTES: usize = 2 << 20;
