//! Flags of a loop that is not in its usual state, in one word.
//!
//! A turn and `call_soon` read the word once, and in the usual state skip everything else.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A set of bits. The loop may see another thread's change late, as with any plain attribute, so that thread also wakes
/// the loop.
#[derive(Default)]
pub struct AtomicFlags(AtomicU8);

impl AtomicFlags {
    /// The run ends with this turn.
    pub const STOPPING: u8 = 1;
    pub const CLOSED: u8 = 2;
    pub const DEBUG: u8 = 4;
    /// There are changes to make for other threads.
    pub const QUEUED_COMMANDS: u8 = 8;

    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    pub fn has(&self, bit: u8) -> bool {
        self.0.load(Relaxed) & bit != 0
    }

    pub fn set(&self, bit: u8, on: bool) {
        match on {
            true => self.0.fetch_or(bit, Relaxed),
            false => self.0.fetch_and(!bit, Relaxed),
        };
    }
}
