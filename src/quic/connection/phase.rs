//! The phases of a connection: handshake, established, closed.
//!
//! Not here: the reason of an end (`close_reason`), and the packets that close a connection, which quinn-proto sends.

use crate::StreamError;

/// The phase of a connection, and two conditions for its packets.
#[derive(Debug)]
pub(super) struct ConnectionPhase {
    phase: Phase,
    /// True if this side has closed the connection. quinn-proto repeats the CONNECTION_CLOSE when the peer sends more
    /// (RFC 9000 section 10.2.1).
    repeats_close: bool,
    /// True if nothing may be sent until the application has added its first data.
    is_held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Established,
    /// The `Closed` event was queued or delivered.
    Closed,
}

impl ConnectionPhase {
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

    /// Called when the handshake is complete.
    pub fn establish(&mut self) {
        self.phase = Phase::Established;
    }

    /// Called when this side or the peer has closed the connection.
    pub fn close(&mut self) {
        self.phase = Phase::Closed;
    }

    /// Called when quinn-proto sends a CONNECTION_CLOSE and will repeat it.
    pub fn repeat_close(&mut self) {
        self.repeats_close = true;
    }

    /// Holds all packets back, if `sent`, the number of sent datagrams, is zero and the handshake is in progress.
    pub fn hold(&mut self, sent: u64) {
        self.is_held |= self.is_handshaking() && sent == 0;
    }

    /// Sends the packets that [`hold`](Self::hold) has kept back. If the connection was closed in the meantime, it
    /// never sends anything.
    pub fn release(&mut self) {
        self.is_held &= self.is_closed();
    }

    #[inline]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// True if the connection was closed before it sent a packet. Then the peer does not have it.
    pub fn ended_unsent(&self) -> bool {
        self.is_held && self.is_closed()
    }

    /// True if this side may have to send its CONNECTION_CLOSE again, because the peer has not answered with one (RFC
    /// 9000 section 10.2).
    pub fn awaits_peer(&self, has_peer_closed: bool) -> bool {
        !self.is_closed() || (self.repeats_close && !has_peer_closed)
    }

    /// True if the peer has closed the connection. Then nothing more is sent, not even a CONNECTION_CLOSE (RFC 9000
    /// section 10.2.2).
    pub fn is_draining(&self, has_peer_closed: bool) -> bool {
        self.is_closed() && has_peer_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_connection_accepts_no_commands() {
        let mut phase = ConnectionPhase::new();
        assert!(phase.is_handshaking() && phase.check_open().is_ok());
        phase.establish();
        assert!(phase.is_established() && phase.check_open().is_ok());
        phase.close();
        assert!(phase.is_closed() && !phase.is_established());
        assert_eq!(phase.check_open(), Err(StreamError::Closed));
    }

    #[test]
    fn only_a_connection_that_has_sent_nothing_can_be_held_back() {
        let mut sent = ConnectionPhase::new();
        sent.hold(1);
        assert!(!sent.is_held());
        let mut complete = ConnectionPhase::new();
        complete.establish();
        complete.hold(0);
        assert!(!complete.is_held());
        let mut released = ConnectionPhase::new();
        released.hold(0);
        assert!(released.is_held());
        released.release();
        released.close();
        assert!(!released.is_held() && !released.ended_unsent());
        let mut closed = ConnectionPhase::new();
        closed.hold(0);
        assert!(!closed.ended_unsent());
        closed.close();
        closed.release();
        assert!(closed.is_held() && closed.ended_unsent());
    }

    #[test]
    fn a_closed_connection_waits_for_the_peers_close_and_then_sends_nothing() {
        let mut phase = ConnectionPhase::new();
        assert!(phase.awaits_peer(true) && !phase.is_draining(true));
        phase.close();
        assert!(
            !phase.awaits_peer(false),
            "no CONNECTION_CLOSE of this side is repeated"
        );
        phase.repeat_close();
        assert!(phase.awaits_peer(false) && !phase.is_draining(false));
        assert!(!phase.awaits_peer(true) && phase.is_draining(true));
    }
}
