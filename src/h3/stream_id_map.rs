//! A hash map whose keys are stream identifiers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by stream identifier. The keys are small consecutive numbers and QUIC bounds their number, so a hash without
/// a random key is safe.
pub(super) type StreamMap<T> = HashMap<u64, T, BuildHasherDefault<StreamHasher>>;

#[derive(Default)]
pub(super) struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}
