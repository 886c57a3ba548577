//! What is unusual about a loop, in one word.
//!
//! Whoever makes it so sets a bit; a turn and `call_soon` see in one look that there is nothing to see.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A set of bits. Another thread's change may be seen late, as any change of a plain attribute: who wants to
/// be heard wakes the loop.
#[derive(Default)]
pub struct Mode(AtomicU8);

impl Mode {
    /// The run ends with this turn.
    pub const STOPPING: u8 = 1;
    pub const CLOSED: u8 = 2;
    pub const DEBUG: u8 = 4;
    /// Another thread has left something to do.
    pub const ERRANDS: u8 = 8;

    pub fn is_plain(&self) -> bool {
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
