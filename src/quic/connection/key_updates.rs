//! Key updates (RFC 9001 section 6): at the application's request, and after a number of packets that is far below
//! the cipher's limit, which quinn-proto enforces.
//!
//! A second update needs proof that the peer has the current keys, so a PING is sent first
//! (`workarounds::key_update_guard`).

use std::sync::Arc;

use quinn_proto as quinn;

use super::packet_observer::ConnectionObserver;
use crate::{
    tls::PacketHook,
    workarounds::key_update_guard::{Acknowledged, Step},
};

pub(super) struct KeyUpdates {
    hook: Arc<PacketHook>,
    packets_max: Option<u64>,
    /// The number of updates, and the number of packets at that time, when an update last happened.
    updates: u64,
    packets: u64,
    /// True if the application has requested an update that has not begun.
    is_wanted: bool,
    acknowledged: Acknowledged,
}

impl KeyUpdates {
    pub fn new(hook: Arc<PacketHook>, packets_max: Option<u64>) -> Self {
        Self {
            hook,
            packets_max,
            updates: 0,
            packets: 0,
            is_wanted: false,
            acknowledged: Acknowledged::default(),
        }
    }

    /// The state for a connection that restarts with another version, and so with other keys.
    pub fn again(&self, hook: Arc<PacketHook>) -> Self {
        Self {
            is_wanted: self.is_wanted,
            ..Self::new(hook, self.packets_max)
        }
    }

    /// The number of key updates so far, including those that the peer has begun.
    pub fn updates(&self) -> u64 {
        self.hook.key_updates()
    }

    /// Requests a key update.
    pub fn request(&mut self) {
        self.is_wanted = true;
    }

    /// A PING was acknowledged that was sent after `changes` key updates, or after more.
    pub fn answered(&mut self, changes: u64) {
        self.acknowledged.answered(changes);
    }

    /// Begins a key update if one is due. The handshake must be confirmed.
    pub fn advance(&mut self, conn: &mut quinn::Connection, observer: &mut ConnectionObserver) {
        if !self.is_due(conn) {
            return;
        }
        let updates = self.hook.key_updates();
        match self.acknowledged.next(updates) {
            Step::Change => {
                // quinn-proto ignores the call while it keeps the previous keys. Then the next packet causes another
                // attempt.
                conn.force_key_update();
                self.is_wanted &= self.hook.key_updates() == updates;
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
        let updates = self.hook.key_updates();
        if updates != self.updates {
            (self.updates, self.packets) = (updates, packets);
        }
        self.is_wanted || packets - self.packets >= packets_max
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::TransportConfig;

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    /// Returns how many PING frames `KeyUpdates::advance` has sent.
    fn advance(key_updates: &mut KeyUpdates, bare: &mut BareQuinn) -> u64 {
        let mut observer = ConnectionObserver::new(Arc::default());
        let conn = bare.client.connection();
        let before = conn.stats().frame_tx.ping;
        key_updates.advance(conn, &mut observer);
        bare.exchange();
        bare.client.connection().stats().frame_tx.ping - before
    }

    #[test]
    fn the_first_key_update_begins_at_the_applications_request() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let mut key_updates = KeyUpdates::new(Arc::default(), None);
        assert!(!key_updates.is_due(bare.client.connection()));
        key_updates.request();
        assert!(key_updates.is_due(bare.client.connection()));
        let again = key_updates.again(Arc::default());
        assert!(
            again.is_wanted,
            "the request outlives a change of the version"
        );
        assert_eq!(key_updates.updates(), 0);
        assert_eq!(
            advance(&mut key_updates, &mut bare),
            0,
            "the first update needs no proof"
        );
    }

    #[test]
    fn a_key_update_begins_after_a_number_of_packets() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let sent = bare.client.connection().stats().path.sent_packets;
        let mut key_updates = KeyUpdates::new(Arc::default(), Some(sent + 1));
        assert!(!key_updates.is_due(bare.client.connection()));
        bare.client.connection().ping();
        bare.exchange();
        assert!(key_updates.is_due(bare.client.connection()));
    }
}
