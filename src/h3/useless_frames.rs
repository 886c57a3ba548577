//! What a peer sends that leads to nothing, and how much of it is taken: frames and streams of
//! unknown types, empty DATA frames, QPACK instructions, and what says again on the control stream
//! what was said before.
//!
//! Each is a few bytes to send, is kept nowhere and costs work. An honest peer has a handful of them
//! with each message (RFC 9114 sections 7.2.8 and 9 even want it to), so it is messages that allow
//! more. No clock is needed for that.

use super::error::{Code, ConnectionError};
use super::event::Event;

/// How much more is taken before something useful has to come.
#[derive(Debug)]
pub(super) struct UselessFrameBudget {
    left: usize,
}

impl Default for UselessFrameBudget {
    fn default() -> Self {
        Self {
            left: ALLOWANCE_MAX,
        }
    }
}

impl UselessFrameBudget {
    /// So many frames, streams or instructions came.
    ///
    /// # Errors
    ///
    /// RFC 9114 section 10.5: a peer that does nothing else is one to be got rid of.
    pub fn take(&mut self, count: usize) -> Result<(), ConnectionError> {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "too many frames, streams or QPACK instructions that lead to nothing",
            )),
        }
    }

    /// Something came that the host is told.
    pub fn allow_for(&mut self, event: &Event) {
        let more = match event {
            // An encoder may insert every line, and set it off from the next with GREASE.
            Event::Headers { fields, .. } => PER_SECTION + fields.len(),
            Event::Data { .. } | Event::WebTransportData { .. } | Event::Datagram { .. } => 1,
            _ => 0,
        };
        self.left = (self.left + more).min(ALLOWANCE_MAX);
    }
}

/// What a connection takes at its beginning, and at most at once.
const ALLOWANCE_MAX: usize = 4096;

/// What a field section allows beyond an instruction for each of its lines.
const PER_SECTION: usize = 64;
