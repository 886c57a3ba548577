//! Key updates (RFC 9001 section 6): after a number of packets, long before the cipher's own limit, which the state
//! machine enforces; and at the host's request.
//!
//! Before a further update a PING proves that the peer has the current keys (`seams::key_update`).

use std::sync::Arc;

use quinn_proto as quinn;

use super::observer::ConnectionObserver;
use crate::{
    seams::key_update::{Acknowledged, Step},
    tls::Tap,
};

pub(super) struct KeyUse {
    tap: Arc<Tap>,
    packets_max: Option<u64>,
    /// The counters at the last update.
    updates: u64,
    packets: u64,
    /// The host has requested an update that is still to come.
    is_wanted: bool,
    acknowledged: Acknowledged,
}

impl KeyUse {
    pub fn new(tap: Arc<Tap>, packets_max: Option<u64>) -> Self {
        Self {
            tap,
            packets_max,
            updates: 0,
            packets: 0,
            is_wanted: false,
            acknowledged: Acknowledged::default(),
        }
    }

    /// The state for a connection that begins again with other keys.
    pub fn again(&self, tap: Arc<Tap>) -> Self {
        Self {
            is_wanted: self.is_wanted,
            ..Self::new(tap, self.packets_max)
        }
    }

    /// The number of key updates, by either side.
    pub fn updates(&self) -> u64 {
        self.tap.key_updates()
    }

    /// Requests a key update.
    pub fn request(&mut self) {
        self.is_wanted = true;
    }

    /// A PING was acknowledged that was sent with the keys after `changes` updates, or with newer ones.
    pub fn answered(&mut self, changes: u64) {
        self.acknowledged.answered(changes);
    }

    /// Updates the keys if an update is due, on a connection whose handshake is confirmed.
    pub fn advance(&mut self, conn: &mut quinn::Connection, observer: &mut ConnectionObserver) {
        if !self.is_due(conn) {
            return;
        }
        let updates = self.tap.key_updates();
        match self.acknowledged.next(updates) {
            Step::Change => {
                // This has no effect while the previous keys are kept; then the next packet tries again.
                conn.force_key_update();
                self.is_wanted &= self.tap.key_updates() == updates;
            }
            Step::Ask => {
                observer.expect_keys_ping(updates);
                conn.ping();
            }
            Step::Wait => {}
        }
    }

    fn is_due(&mut self, conn: &quinn::Connection) -> bool {
        let Some(packets_max) = self.packets_max else {
            return self.is_wanted;
        };
        let packets = conn.stats().path.sent_packets;
        let updates = self.tap.key_updates();
        if updates != self.updates {
            (self.updates, self.packets) = (updates, packets);
        }
        self.is_wanted || packets - self.packets >= packets_max
    }
}
