//! Holding a client's first packets back until the host has something to send with them: 0-RTT data
//! leaves with the ClientHello, or the server's answer is there before it.
//!
//! Not here: when to let go, which is the host's to say.

use super::{Connection, Phase};

impl Connection {
    /// Nothing is sent until [`release`](Self::release); commands are taken as ever. For a client
    /// that has sent nothing yet, else it does nothing.
    ///
    /// A connection that is closed meanwhile ends at once and says nothing: nobody has heard of it.
    pub fn hold(&mut self) {
        let is_new = self.phase == Phase::Handshake && self.quinn.stats().udp_tx.datagrams == 0;
        self.is_held |= self.is_client() && is_new;
    }

    /// The end of [`hold`](Self::hold).
    pub fn release(&mut self) {
        if self.phase != Phase::Closed {
            self.is_held = false;
        }
    }

    /// True if it was closed while it was held: there is nothing to wait for.
    pub(crate) fn ended_unheard(&self) -> bool {
        self.is_held && self.phase == Phase::Closed
    }
}
