//! Changing the packet keys (RFC 9001 section 6): after so many packets, long before the cipher's own
//! limit, which the state machine sees to; and when the host asks.
//!
//! Only the first change is free. Before a later one the peer must have acknowledged a packet of the keys in
//! use (section 6.1), or it may not have them yet, and would understand nothing any more. quinn-proto leaves
//! that to its host: it refuses a change only while it keeps the keys before, and a side that followed a
//! change of the peer's may have sent nothing since. So a PING asks.

use std::sync::Arc;

use quinn_proto as quinn;

use super::watch::Watch;
use crate::tls::Tap;

pub(super) struct KeyUse {
    tap: Arc<Tap>,
    packets_max: Option<u64>,
    /// What there was when the keys changed last.
    updates: u64,
    packets: u64,
    /// The host has asked for a change, which is to come.
    is_wanted: bool,
    /// The number of changes when a PING last asked for an acknowledgement, and that of the keys of which a
    /// packet was acknowledged.
    asked: u64,
    heard: u64,
}

impl KeyUse {
    pub fn new(tap: Arc<Tap>, packets_max: Option<u64>) -> Self {
        Self {
            tap,
            packets_max,
            updates: 0,
            packets: 0,
            is_wanted: false,
            asked: 0,
            heard: 0,
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
        self.heard = changes;
    }

    /// Changes the keys if it is time, on a connection whose handshake is confirmed.
    pub fn advance(&mut self, conn: &mut quinn::Connection, watch: &mut Watch) {
        if !self.is_due(conn) {
            return;
        }
        let updates = self.tap.key_updates();
        if updates == self.heard {
            // Nothing comes of it while the keys before are kept; then the next packet asks.
            conn.force_key_update();
            self.is_wanted &= self.tap.key_updates() == updates;
        } else if updates != self.asked {
            self.asked = updates;
            watch.expect_keys_ping(updates);
            conn.ping();
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
