//! A budget for a peer's useless frames: frames and streams of unknown types, empty DATA frames, QPACK
//! instructions, and repeated frames of the control stream.
//!
//! Each takes a few bytes to send, is not stored, and costs work. An honest peer sends a few of them with each
//! message (RFC 9114 sections 7.2.8 and 9 even recommend it), so messages raise the budget. That needs no clock.

use super::error::{Code, ConnectionError};
use super::event::Event;

/// How many more are accepted before something useful must arrive.
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
    /// RFC 9114 section 10.5: a peer that does nothing else is disconnected.
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

    /// Raises the budget for a reported event.
    pub fn allow_for(&mut self, event: &Event) {
        let more = match event {
            // An encoder may insert every line, and separate it from the next with GREASE.
            Event::Headers { fields, .. } => PER_SECTION + fields.len(),
            Event::Data { .. } | Event::WebTransportData { .. } | Event::Datagram { .. } => 1,
            _ => 0,
        };
        self.left = (self.left + more).min(ALLOWANCE_MAX);
    }
}

/// The budget at the beginning, and its maximum.
const ALLOWANCE_MAX: usize = 4096;

/// The budget of a field section, beside an instruction for each of its lines.
const PER_SECTION: usize = 64;
