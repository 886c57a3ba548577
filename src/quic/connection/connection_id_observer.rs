//! Reports the connection IDs that this side has issued and the peer has not retired (RFC 9000 section 5.1), for
//! hosts that route packets to connections themselves.
//!
//! An ID is reported when it is generated, before a packet that issues it to the peer can leave: so the host that
//! sends that packet can route the answers. Retired IDs are read from the peer's frames, because the state machine
//! passes them only from its connection to its endpoint. It costs nothing unless enabled. Not here: the sequence
//! number of an ID (`seams::issued_connection_ids`).

use uringcore_wire::frames::{Frame, Frames};

use crate::{Event, seams::issued_connection_ids::IssuedConnectionIds};

/// The IDs of one connection.
pub(crate) struct ConnectionIdObserver {
    live: IssuedConnectionIds,
    events: Vec<Event>,
}

impl ConnectionIdObserver {
    /// The first ID is known from the handshake and not reported.
    pub fn new(first: Vec<u8>) -> Self {
        Self {
            live: IssuedConnectionIds::new(first),
            events: Vec::new(),
        }
    }

    /// Records a generated ID. Returns true if it will be issued: instead of an ID that is already in use, the
    /// state machine generates another one.
    pub fn issued(&mut self, id: &[u8]) -> bool {
        self.live.made(id)
    }

    /// Reads a packet of the peer.
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
        let mut observer = ConnectionIdObserver::new(b"first".to_vec());
        assert!(!observer.issued(b"first"), "the ID is in use");
        assert!(observer.issued(b"second") && observer.issued(b"third"));
        // RETIRE_CONNECTION_ID of the second ID, twice.
        observer.opened(&[0x19, 1, 0x19, 1]);
        let id = b"second".to_vec();
        assert_eq!(observer.take_events(), [Event::ConnectionIdRetired { id }]);
        assert!(!observer.issued(b"third") && observer.issued(b"second"));
    }
}
