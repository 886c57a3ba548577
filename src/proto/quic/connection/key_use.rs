//! Changing the packet keys after so many packets (RFC 9001 section 6), long before the cipher's own
//! limit, which the state machine sees to.

use std::sync::Arc;

use quinn_proto as quinn;

use crate::tls::Tap;

pub(super) struct KeyUse {
    tap: Arc<Tap>,
    packets_max: Option<u64>,
    /// What there was when the keys changed last.
    updates: u64,
    packets: u64,
}

impl KeyUse {
    pub fn new(tap: Arc<Tap>, packets_max: Option<u64>) -> Self {
        Self {
            tap,
            packets_max,
            updates: 0,
            packets: 0,
        }
    }

    /// The same for a connection that begins again with other keys.
    pub fn again(&self, tap: Arc<Tap>) -> Self {
        Self::new(tap, self.packets_max)
    }

    /// How often the keys were changed, by whichever side.
    pub fn updates(&self) -> u64 {
        self.tap.key_updates()
    }

    /// Packets were sent on a connection whose handshake is confirmed.
    pub fn sent(&mut self, conn: &mut quinn::Connection) {
        let Some(packets_max) = self.packets_max else {
            return;
        };
        let packets = conn.stats().path.sent_packets;
        let updates = self.tap.key_updates();
        if updates != self.updates {
            (self.updates, self.packets) = (updates, packets);
        } else if packets - self.packets >= packets_max {
            // Nothing comes of it while an earlier change is under way; then the next packet asks.
            conn.force_key_update();
        }
    }
}
