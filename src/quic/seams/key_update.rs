//! When the packet keys may be changed again (RFC 9001 section 6.1).
//!
//! Only the first change is free. Before a later one the peer must have acknowledged a packet of the keys in
//! use, or it may not have them yet, and would understand nothing any more. quinn-proto leaves that to its host.
//! So a PING asks first, once for each change.
//!
//! Assumed of quinn-proto: it refuses a change only while it keeps the keys before; a side that followed a change
//! of the peer's can change them as soon as it has let go of those, whatever the peer has acknowledged.
//!
//! Not here: when a change is wanted (`quic::connection`), and what sees the acknowledgement.

/// What is known of a connection's keys, each time by the number of changes that made them.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// When a PING last asked for an acknowledgement.
    asked: u64,
    /// Of which a packet was acknowledged.
    heard: u64,
}

/// What is to be done about a change that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Change,
    /// A PING is to be sent with the keys in use.
    Ask,
    Wait,
}

impl Acknowledged {
    /// A PING was acknowledged that was sent with the keys after so many changes, or with newer ones.
    pub fn answered(&mut self, changes: u64) {
        self.heard = changes;
    }

    /// What comes next, with the keys after so many changes.
    pub fn next(&mut self, changes: u64) -> Step {
        if changes == self.heard {
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

    use crate::seams::bare::{Bare, End};

    #[test]
    fn the_first_change_is_free_and_each_later_one_waits_for_an_answer() {
        let mut keys = Acknowledged::default();
        assert_eq!(keys.next(0), Step::Change);
        assert_eq!([(); 2].map(|()| keys.next(1)), [Step::Ask, Step::Wait]);
        keys.answered(1);
        assert_eq!(keys.next(1), Step::Change);
        assert_eq!(keys.next(2), Step::Ask);
        // The peer has changed them meanwhile: the answer is about older ones.
        keys.answered(2);
        assert_eq!(keys.next(3), Step::Ask);
    }

    /// How often an end has asked TLS for the keys of a next phase.
    fn phases(end: &End) -> u64 {
        end.spy.phases.load(Ordering::Relaxed)
    }

    #[test]
    fn bare_quinn_changes_keys_again_that_the_peer_has_acknowledged_nothing_of() {
        let mut bare = Bare::connected(quinn_proto::TransportConfig::default());
        bare.client.connection().force_key_update();
        bare.client.connection().ping();
        let before = phases(&bare.server);
        for datagram in bare.client.transmit(bare.now) {
            bare.server_gets(&datagram);
        }
        assert_eq!(phases(&bare.server), before + 1, "it follows");
        bare.server.connection().force_key_update();
        assert_eq!(phases(&bare.server), before + 1, "it keeps the keys before");
        bare.sleep(Duration::from_secs(3));
        bare.server.connection().force_key_update();
        assert_eq!(phases(&bare.server), before + 2);
    }
}
