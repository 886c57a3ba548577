//! The connection IDs that this side has given out and the peer has not given back (RFC 9000 section
//! 5.1), for hosts that route packets to connections themselves.
//!
//! An ID is told when it is made, which is before a packet that gives it to the peer can leave: so
//! whoever sends that packet knows where the answers belong. What the peer gives back is read off its
//! frames, for the state machine keeps that between its connection and its endpoint. Nobody pays for it
//! who did not ask. Not here: which number an ID has (`seams::issued_ids`).

use uringcore_wire::frames::{Frame, Frames};

use crate::{Event, seams::issued_ids::IssuedIds};

/// The IDs of one connection.
pub(crate) struct IdObserver {
    live: IssuedIds,
    events: Vec<Event>,
}

impl IdObserver {
    /// The first ID is known from the handshake and not told.
    pub fn new(first: Vec<u8>) -> Self {
        Self {
            live: IssuedIds::new(first),
            events: Vec::new(),
        }
    }

    /// An ID was made. Returns whether it is given out: the state machine has another one made in the
    /// place of one that is in use already.
    pub fn issued(&mut self, id: &[u8]) -> bool {
        self.live.made(id)
    }

    /// A packet of the peer's.
    pub fn opened(&mut self, payload: &[u8]) {
        for (_, _, frame) in Frames::new(payload) {
            if let Frame::RetireConnectionId { sequence } = frame
                && let Some(id) = self.live.retired(sequence)
            {
                self.events.push(Event::ConnectionIdRetired { id });
            }
        }
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_numbers_in_the_order_in_which_they_were_made() {
        let mut observer = IdObserver::new(b"first".to_vec());
        assert!(!observer.issued(b"first"), "it is in use");
        assert!(observer.issued(b"second") && observer.issued(b"third"));
        // RETIRE_CONNECTION_ID of the second and, once more, of the second.
        observer.opened(&[0x19, 1, 0x19, 1]);
        let id = b"second".to_vec();
        assert_eq!(observer.take_events(), [Event::ConnectionIdRetired { id }]);
        assert!(!observer.issued(b"third") && observer.issued(b"second"));
    }
}
