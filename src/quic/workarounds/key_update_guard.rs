//! Decides when a key update may begin (RFC 9001 section 6.1).
//!
//! The first update may begin at any time. Before a later one, the peer must have acknowledged a packet with the
//! current keys; otherwise it may not have these keys, and could not open packets with the next ones. quinn-proto
//! leaves that check to its caller. So a PING is sent with the current keys, and the update waits for its
//! acknowledgement.
//!
//! Assumed of quinn-proto: it rejects an update only while it keeps the previous keys; a side that followed the
//! peer's update can update again as soon as it has dropped those, even if the peer has acknowledged nothing.
//!
//! Not here: sending the PING and observing the acknowledgement (`quic::connection`).

/// The keys for which the peer has sent an acknowledgement. Keys are identified by the number of updates before them.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// The number of the key phase in which the last PING was sent.
    asked: u64,
    /// The newest keys with which an acknowledged packet was sent.
    proved: u64,
}

/// The next step towards a key update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Change,
    /// A PING must be sent with the current keys.
    Ask,
    Wait,
}

impl Acknowledged {
    /// Records the acknowledgement of a PING that was sent after `changes` updates, or after more.
    pub fn answered(&mut self, changes: u64) {
        self.proved = changes;
    }

    /// The next step, if `changes` updates have happened.
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

    use crate::workarounds::bare_quinn::{BareQuinn, End};

    #[test]
    fn the_first_key_update_is_free_and_later_ones_wait_for_an_ack() {
        let mut keys = Acknowledged::default();
        assert_eq!(keys.next(0), Step::Change);
        assert_eq!([(); 2].map(|()| keys.next(1)), [Step::Ask, Step::Wait]);
        keys.answered(1);
        assert_eq!(keys.next(1), Step::Change);
        assert_eq!(keys.next(2), Step::Ask);
        // The peer has begun an update meanwhile, so the acknowledgement belongs to older keys.
        keys.answered(2);
        assert_eq!(keys.next(3), Step::Ask);
    }

    /// How often an endpoint has requested the keys of a next phase from TLS.
    fn phases(end: &End) -> u64 {
        end.spy.phases.load(Ordering::Relaxed)
    }

    #[test]
    fn bare_quinn_updates_keys_that_the_peer_has_not_acknowledged() {
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
            "quinn-proto still keeps the previous keys"
        );
        bare.sleep(Duration::from_secs(3));
        bare.server.connection().force_key_update();
        assert_eq!(phases(&bare.server), before + 2);
    }
}
