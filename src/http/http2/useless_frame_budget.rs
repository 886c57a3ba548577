//! Limits a client's useless frames: pings, settings, priorities, empty DATA, credit without need, frames of unknown
//! types and of closed streams (CVE-2019-9511 to 9518, RFC 9113 section 10.5).
//!
//! Such a frame takes a few bytes to send and some work to handle. An honest client sends some with each message, so
//! each message and each sent frame of content raises the budget. It also grows with time, because a client with a long
//! response may send a ping now and then.
//!
//! Credit (WINDOW_UPDATE) has a budget of its own, which grows with the bytes of sent content. A client sends one such
//! frame for each so many bytes that it has read, for instance 4 KiB, so their number does not depend on the DATA frames.
//! A client that reads late sends them all after the last DATA frame, more than the common budget holds at once.

use super::error::Fault;

/// The number of useless frames that are accepted before a message, content or a second must pass.
#[derive(Debug)]
pub(super) struct UselessFrameBudget {
    left: usize,
    /// The number of WINDOW_UPDATE frames that sent content allows.
    credit_left: usize,
}

impl Default for UselessFrameBudget {
    fn default() -> Self {
        Self {
            left: ALLOWANCE_MAX,
            credit_left: 0,
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

    /// Takes a WINDOW_UPDATE frame from the budget.
    pub fn take_credit(&mut self) -> Result<(), Fault> {
        match self.credit_left.checked_sub(1) {
            Some(left) => {
                self.credit_left = left;
                Ok(())
            }
            None => self.take(1),
        }
    }

    /// Raises the budget for a request or its content.
    pub fn allow(&mut self, count: usize) {
        self.left = (self.left + count).min(ALLOWANCE_MAX);
    }

    /// Raises the budget for a sent frame with this number of bytes of content.
    pub fn allow_for_sent(&mut self, bytes: usize) {
        self.allow(PER_SENT_CONTENT);
        let credit = self.credit_left + bytes / BYTES_PER_CREDIT;
        self.credit_left = credit.min(CREDIT_MAX);
    }
}

/// The budget at the start of a connection. It never exceeds this number.
const ALLOWANCE_MAX: usize = 4096;
/// The frames that a request allows.
pub(super) const PER_REQUEST: usize = 16;
/// The frames that a frame of received content allows.
pub(super) const PER_CONTENT: usize = 1;
/// The frames that a sent frame of content allows: credit for the stream and for the connection, twice.
const PER_SENT_CONTENT: usize = 4;
/// Sent content allows a WINDOW_UPDATE for each of this many bytes: twice what Go's client sends, which gives credit for
/// the stream and for the connection after each 4 KiB.
const BYTES_PER_CREDIT: usize = 1024;
/// The maximum number of such WINDOW_UPDATE frames. They are enough for content of 1 GiB, which is the largest window
/// that clients are known to give.
const CREDIT_MAX: usize = 1 << 20;
/// The frames that a second allows.
pub(super) const PER_SECOND: usize = 16;
