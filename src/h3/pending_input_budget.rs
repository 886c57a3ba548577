//! Bounds the peer's bytes that a connection's streams hold and cannot use yet: incomplete field sections, and data
//! that waits for QPACK.
//!
//! Not here: the bytes themselves, which belong to each stream (`request.rs`).

use super::error::{Code, ConnectionError, RemoteError};
use super::settings::Settings;

/// Invariant: each count is the sum of the bytes that the connection's streams hold. Code that changes the bytes of
/// a stream changes the count.
#[derive(Debug)]
pub(super) struct PendingInputBudget {
    unfinished: usize,
    unfinished_max: usize,
    blocked: usize,
    blocked_max: usize,
}

impl PendingInputBudget {
    pub fn new(settings: &Settings) -> Self {
        let unfinished_max = settings
            .max_unfinished_size
            .unwrap_or(settings.max_field_section_size.saturating_mul(4));
        Self {
            unfinished: 0,
            unfinished_max: saturated(unfinished_max),
            blocked: 0,
            blocked_max: saturated(settings.max_blocked_size),
        }
    }

    /// Adds bytes of an incomplete field section.
    ///
    /// # Errors
    ///
    /// A connection error above the bound: a single stream stays below it, and no one stream is the cause.
    pub fn add_unfinished(&mut self, size: usize) -> Result<(), ConnectionError> {
        self.unfinished += size;
        if self.unfinished <= self.unfinished_max {
            return Ok(());
        }
        Err(ConnectionError::new(
            Code::H3_EXCESSIVE_LOAD,
            "too much of field sections that do not end",
        ))
    }

    pub fn remove_unfinished(&mut self, size: usize) {
        self.unfinished -= size;
    }

    /// Adds bytes of a stream that waits for the peer's encoder stream.
    ///
    /// # Errors
    ///
    /// A stream error above the bound: this stream is abandoned.
    pub fn add_blocked(&mut self, size: usize) -> Result<(), RemoteError> {
        self.blocked += size;
        if self.blocked <= self.blocked_max {
            return Ok(());
        }
        Err(RemoteError::Stream(ConnectionError::new(
            Code::H3_EXCESSIVE_LOAD,
            "too much data on streams that wait for QPACK",
        )))
    }

    pub fn remove_blocked(&mut self, size: usize) {
        self.blocked -= size;
    }

    pub fn bytes(&self) -> usize {
        self.unfinished + self.blocked
    }

    /// All streams were dropped.
    pub fn clear(&mut self) {
        self.unfinished = 0;
        self.blocked = 0;
    }
}

fn saturated(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
