//! The phases of a connection: its handshake, its use, its end.
//!
//! Not here: the reason of an end (`close_reason`), and packets that close a connection, which the state machine sends.

use crate::StreamError;

/// The phase of a connection, and the packets that it still owes to the peer.
#[derive(Debug)]
pub(super) struct Lifecycle {
    phase: Phase,
    /// This side closed the connection, and repeats the close if the peer continues to send (RFC 9000 section
    /// 10.2.1).
    repeats_close: bool,
    /// Nothing is sent until the host has added its first data.
    is_held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Established,
    /// `Closed` was queued or delivered.
    Closed,
}

impl Lifecycle {
    pub fn new() -> Self {
        Self {
            phase: Phase::Handshake,
            repeats_close: false,
            is_held: false,
        }
    }

    #[inline]
    pub fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshake
    }

    #[inline]
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    pub fn check_open(&self) -> Result<(), StreamError> {
        match self.is_closed() {
            true => Err(StreamError::Closed),
            false => Ok(()),
        }
    }

    /// The handshake is complete.
    pub fn establish(&mut self) {
        self.phase = Phase::Established;
    }

    /// The connection has ended, by either side.
    pub fn close(&mut self) {
        self.phase = Phase::Closed;
    }

    /// The state machine repeats this side's close.
    pub fn repeat_close(&mut self) {
        self.repeats_close = true;
    }

    /// Holds back all packets of a connection that has `sent` no datagram.
    pub fn hold(&mut self, sent: u64) {
        self.is_held |= self.is_handshaking() && sent == 0;
    }

    /// Ends [`hold`](Self::hold). A connection that was closed while it was held never sends anything.
    pub fn release(&mut self) {
        self.is_held &= self.is_closed();
    }

    #[inline]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// True if the connection was closed before it sent anything: the peer does not know it.
    pub fn ended_unsent(&self) -> bool {
        self.is_held && self.is_closed()
    }

    /// True if the peer may not have received this side's close: none of its own has answered it.
    pub fn awaits_peer(&self, has_peer_closed: bool) -> bool {
        !self.is_closed() || (self.repeats_close && !has_peer_closed)
    }

    /// The peer has closed: nothing more is sent, not even this side's close (RFC 9000 section 10.2.2).
    pub fn is_draining(&self, has_peer_closed: bool) -> bool {
        self.is_closed() && has_peer_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_and_a_closed_connection_takes_no_commands() {
        let mut lifecycle = Lifecycle::new();
        assert!(lifecycle.is_handshaking() && lifecycle.check_open().is_ok());
        lifecycle.establish();
        assert!(lifecycle.is_established() && lifecycle.check_open().is_ok());
        lifecycle.close();
        assert!(lifecycle.is_closed() && !lifecycle.is_established());
        assert_eq!(lifecycle.check_open(), Err(StreamError::Closed));
    }

    #[test]
    fn only_a_connection_that_has_sent_nothing_is_held_and_a_closed_one_stays_held() {
        let mut sent = Lifecycle::new();
        sent.hold(1);
        assert!(!sent.is_held());
        let mut complete = Lifecycle::new();
        complete.establish();
        complete.hold(0);
        assert!(!complete.is_held());
        let mut released = Lifecycle::new();
        released.hold(0);
        assert!(released.is_held());
        released.release();
        released.close();
        assert!(!released.is_held() && !released.ended_unsent());
        let mut closed = Lifecycle::new();
        closed.hold(0);
        assert!(!closed.ended_unsent());
        closed.close();
        closed.release();
        assert!(closed.is_held() && closed.ended_unsent());
    }

    #[test]
    fn a_close_of_this_side_waits_for_the_peers_and_a_close_of_the_peer_ends_all_sending() {
        let mut lifecycle = Lifecycle::new();
        assert!(lifecycle.awaits_peer(true) && !lifecycle.is_draining(true));
        lifecycle.close();
        assert!(
            !lifecycle.awaits_peer(false),
            "the peer has closed, or is gone"
        );
        lifecycle.repeat_close();
        assert!(lifecycle.awaits_peer(false) && !lifecycle.is_draining(false));
        assert!(!lifecycle.awaits_peer(true) && lifecycle.is_draining(true));
    }
}
