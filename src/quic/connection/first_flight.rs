//! Holds a client's first packets back until the host has data to send with them: 0-RTT data then leaves with the
//! ClientHello, before the server's answer.
//!
//! Not here: when to release them, which the host decides.

use super::{Connection, Phase};

impl Connection {
    /// Sends nothing until [`release`](Self::release); commands are accepted as usual. Has an effect only for a
    /// client that has sent nothing yet.
    ///
    /// A connection that is closed meanwhile ends at once and sends nothing, because the peer has received nothing.
    pub fn hold(&mut self) {
        let is_new = self.phase == Phase::Handshake && self.quinn.stats().udp_tx.datagrams == 0;
        self.is_held |= self.is_client() && is_new;
    }

    /// Ends [`hold`](Self::hold).
    pub fn release(&mut self) {
        if self.phase != Phase::Closed {
            self.is_held = false;
        }
    }

    /// True if it was closed while it was held: nothing remains to be sent.
    pub(crate) fn ended_unheard(&self) -> bool {
        self.is_held && self.phase == Phase::Closed
    }
}
