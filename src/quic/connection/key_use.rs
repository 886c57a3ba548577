//! Changing the packet keys (RFC 9001 section 6): after so many packets, long before the cipher's own
//! limit, which the state machine sees to; and when the host asks.
//!
//! Whether the peer has the keys in use, which must be known before a later change, is asked by a PING
//! (`seams::key_update`).

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
    /// What there was when the keys changed last.
    updates: u64,
    packets: u64,
    /// The host has asked for a change, which is to come.
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

    /// The same for a connection that begins again with other keys.
    pub fn again(&self, tap: Arc<Tap>) -> Self {
        Self {
            is_wanted: self.is_wanted,
            ..Self::new(tap, self.packets_max)
        }
    }

    /// How often the keys were changed, by whichever side.
    pub fn updates(&self) -> u64 {
        self.tap.key_updates()
    }

    /// The host wants other keys.
    pub fn request(&mut self) {
        self.is_wanted = true;
    }

    /// A PING was acknowledged that was sent with the keys after so many changes, or with newer ones.
    pub fn answered(&mut self, changes: u64) {
        self.acknowledged.answered(changes);
    }

    /// Changes the keys if it is time, on a connection whose handshake is confirmed.
    pub fn advance(&mut self, conn: &mut quinn::Connection, observer: &mut ConnectionObserver) {
        if !self.is_due(conn) {
            return;
        }
        let updates = self.tap.key_updates();
        match self.acknowledged.next(updates) {
            Step::Change => {
                // Nothing comes of it while the keys before are kept; then the next packet asks.
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
