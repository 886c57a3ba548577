//! What the streams of a connection hold together of the peer's bytes that cannot be used yet: field
//! sections that have not ended, and what waits for QPACK.
//!
//! Not here: the bytes themselves, which are each stream's (`request.rs`).

use super::error::{Code, ConnectionError, RemoteError};
use super::settings::Settings;

/// Invariant: each count is the sum of what the streams of the connection hold. Who changes what a
/// stream holds changes it here.
#[derive(Debug)]
pub(super) struct Unusable {
    unfinished: usize,
    unfinished_max: usize,
    blocked: usize,
    blocked_max: usize,
}

impl Unusable {
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

    /// More of a field section that has not ended.
    ///
    /// # Errors
    ///
    /// Beyond the bound it is the connection's fault: one stream alone stays within it, and which of
    /// them is too much nobody can say.
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

    /// More on a stream that waits for the peer's encoder stream.
    ///
    /// # Errors
    ///
    /// Beyond the bound the stream that wants more is given up.
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

    /// All streams are forgotten.
    pub fn clear(&mut self) {
        self.unfinished = 0;
        self.blocked = 0;
    }
}

fn saturated(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
