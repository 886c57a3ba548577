//! The flags of a loop that is not in its usual state (stopping, closed, in debug mode), in one atomic byte.
//!
//! A loop iteration and `call_soon` read the byte once. If no flag is set, they skip the checks of all these states.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A set of flags. The loop may see a flag that another thread sets late, as with any plain attribute, so that thread
/// also wakes the loop.
#[derive(Default)]
pub struct AtomicFlags(AtomicU8);

impl AtomicFlags {
    /// The loop stops at the end of this loop iteration.
    pub const STOPPING: u8 = 1;
    pub const CLOSED: u8 = 2;
    pub const DEBUG: u8 = 4;
    /// [`EngineObjects::commands`](super::engine_key_objects::EngineObjects) is not empty.
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
