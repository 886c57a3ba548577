//! Limits a peer's useless frames: frames and streams of unknown types, empty DATA frames, QPACK instructions, and
//! repeated frames of the control stream.
//!
//! Such a frame takes a few bytes to send and some work to handle, and nothing of it is stored. An honest peer sends a
//! few of them with each message (RFC 9114 sections 7.2.8 and 9 recommend it), so each message raises the budget. This
//! needs no clock.

use super::error::{Code, ConnectionError};
use super::event::Event;

/// The number of useless frames that are accepted before a message or its content must arrive.
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
    /// Takes `count` frames, streams or instructions from the budget.
    ///
    /// # Errors
    ///
    /// H3_EXCESSIVE_LOAD if the budget is used up: the peer sends little else (RFC 9114 section 10.5).
    pub fn take(&mut self, count: usize) -> Result<(), ConnectionError> {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "too many useless frames, streams or QPACK instructions",
            )),
        }
    }

    /// Raises the budget when a useful event is reported.
    pub fn allow_for(&mut self, event: &Event) {
        let more = match event {
            // An encoder may insert each field line of a section into the dynamic table, with one instruction each.
            Event::Headers { fields, .. } => PER_SECTION + fields.len(),
            Event::Data { .. } | Event::WebTransportData { .. } | Event::Datagram { .. } => 1,
            _ => 0,
        };
        self.left = (self.left + more).min(ALLOWANCE_MAX);
    }
}

/// The budget at the start of a connection. It never exceeds this number.
const ALLOWANCE_MAX: usize = 4096;

/// A field section raises the budget by this number, and by one instruction for each of its lines.
const PER_SECTION: usize = 64;
