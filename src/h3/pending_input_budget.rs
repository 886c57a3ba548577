//! Limits the received bytes that a connection's streams hold and cannot use yet: incomplete field sections, and data
//! that waits for QPACK.
//!
//! This type only counts. Each stream has its own bytes (`request/`).

use super::error::{Code, ConnectionError, RemoteError};
use super::settings::Settings;

/// Counts of bytes that all streams of a connection hold together. Code that changes the buffered bytes of a stream
/// changes the count as well.
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

    /// Adds `size` bytes of an incomplete field section.
    ///
    /// # Errors
    ///
    /// A connection error if all streams together exceed the limit. A stream alone stays below it, so the cause is not
    /// a single stream.
    pub fn add_unfinished(&mut self, size: usize) -> Result<(), ConnectionError> {
        self.unfinished += size;
        if self.unfinished <= self.unfinished_max {
            return Ok(());
        }
        Err(ConnectionError::new(
            Code::H3_EXCESSIVE_LOAD,
            "too many bytes of incomplete field sections",
        ))
    }

    pub fn remove_unfinished(&mut self, size: usize) {
        self.unfinished -= size;
    }

    /// Adds `size` bytes of a stream that waits for the peer's QPACK encoder stream.
    ///
    /// # Errors
    ///
    /// A stream error if all streams together exceed the limit; the caller abandons this stream.
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

    /// Resets the counts after all streams were dropped.
    pub fn clear(&mut self) {
        self.unfinished = 0;
        self.blocked = 0;
    }
}

fn saturated(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
