//! Limits a client's useless frames: pings, settings, priorities, empty DATA, credit without need, frames of unknown
//! types and of closed streams (CVE-2019-9511 to 9518, RFC 9113 section 10.5).
//!
//! Such a frame takes a few bytes to send and some work to handle. An honest client sends some with each message, so
//! each message and each sent frame of content raises the budget. It also grows with time, because a client with a long
//! response may send a ping now and then.

use super::error::Fault;

/// The number of useless frames that are accepted before a message, content or a second must pass.
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
    /// Takes `count` frames from the budget.
    pub fn take(&mut self, count: usize) -> Result<(), Fault> {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Fault::abuse("too many useless frames")),
        }
    }

    /// Raises the budget for a request or its content, or for sent content.
    pub fn allow(&mut self, count: usize) {
        self.left = (self.left + count).min(ALLOWANCE_MAX);
    }
}

/// The budget at the start of a connection. It never exceeds this number.
const ALLOWANCE_MAX: usize = 4096;
/// The frames that a request allows.
pub(super) const PER_REQUEST: usize = 16;
/// The frames that a frame of received content allows.
pub(super) const PER_CONTENT: usize = 1;
/// The frames that a sent frame of content allows: credit for the stream and for the connection, twice.
pub(super) const PER_SENT_CONTENT: usize = 4;
/// The frames that a second allows.
pub(super) const PER_SECOND: usize = 16;
