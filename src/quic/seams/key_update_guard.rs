//! The condition for initiating a key update (RFC 9001 section 6.1).
//!
//! Only the first update is unconditional. Before a later one the peer must have acknowledged a packet of the
//! current keys. Otherwise it may not have them yet, and could not decrypt anything. quinn-proto leaves that
//! check to its host. So a PING is sent first, once for each update.
//!
//! Assumed of quinn-proto: it rejects an update only while it keeps the previous keys; a side that followed
//! the peer's update can update again as soon as it has dropped those, even if the peer has acknowledged
//! nothing.
//!
//! `quic::connection` decides about updates and observes the acknowledgement.

/// The state of a connection's keys. Keys are identified by the number of updates before them.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// The keys for which a PING was last sent.
    asked: u64,
    /// The newest keys with an acknowledged packet.
    proved: u64,
}

/// The next step of a wanted update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Change,
    /// Send a PING with the current keys.
    Ask,
    Wait,
}

impl Acknowledged {
    /// A PING was acknowledged that was sent with the keys after `changes` updates, or with newer ones.
    pub fn answered(&mut self, changes: u64) {
        self.proved = changes;
    }

    /// The next step with the keys after `changes` updates.
    pub fn next(&mut self, changes: u64) -> Step {
        if changes == self.proved {
            Step::Change
        } else if changes != self.asked {
            self.asked = changes;
            Step::Ask
        } else {
            Step::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic::Ordering, time::Duration};

    use crate::seams::bare_quinn::{BareQuinn, End};

    #[test]
    fn the_first_change_is_free_and_each_later_one_waits_for_an_answer() {
        let mut keys = Acknowledged::default();
        assert_eq!(keys.next(0), Step::Change);
        assert_eq!([(); 2].map(|()| keys.next(1)), [Step::Ask, Step::Wait]);
        keys.answered(1);
        assert_eq!(keys.next(1), Step::Change);
        assert_eq!(keys.next(2), Step::Ask);
        // The peer has updated meanwhile: the acknowledgement is for older keys.
        keys.answered(2);
        assert_eq!(keys.next(3), Step::Ask);
    }

    /// How often an end has asked TLS for the keys of a next phase.
    fn phases(end: &End) -> u64 {
        end.spy.phases.load(Ordering::Relaxed)
    }

    #[test]
    fn bare_quinn_changes_keys_again_that_the_peer_has_acknowledged_nothing_of() {
        let mut bare = BareQuinn::connected(quinn_proto::TransportConfig::default());
        bare.client.connection().force_key_update();
        bare.client.connection().ping();
        let before = phases(&bare.server);
        for datagram in bare.client.transmit(bare.now) {
            bare.server_gets(&datagram);
        }
        assert_eq!(phases(&bare.server), before + 1, "it follows");
        bare.server.connection().force_key_update();
        assert_eq!(
            phases(&bare.server),
            before + 1,
            "the previous keys are kept"
        );
        bare.sleep(Duration::from_secs(3));
        bare.server.connection().force_key_update();
        assert_eq!(phases(&bare.server), before + 2);
    }
}
