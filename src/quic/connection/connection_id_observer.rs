//! Reports the connection IDs that this side has issued and the peer has not retired (RFC 9000 section 5.1), for
//! applications that route packets to connections themselves.
//!
//! An ID is reported when it is generated. That is before the packet that issues it to the peer leaves, so the
//! application can route the first packet that uses the ID. A retired ID is read from the peer's RETIRE_CONNECTION_ID
//! frame, because quinn-proto passes it only to its own endpoint. Without such an application nothing is observed.
//! Not here: the sequence numbers of IDs (`workarounds::issued_connection_ids`).

use uringcore_wire::frame_iterator::{Frame, Frames};

use crate::{Event, workarounds::issued_connection_ids::IssuedConnectionIds};

/// The IDs that one connection has issued, and events about them.
pub(crate) struct ConnectionIdObserver {
    live: IssuedConnectionIds,
    events: Vec<Event>,
}

impl ConnectionIdObserver {
    /// `first` is the ID of the handshake. It is not reported.
    pub fn new(first: Vec<u8>) -> Self {
        Self {
            live: IssuedConnectionIds::new(first),
            events: Vec::new(),
        }
    }

    /// Records a generated ID. Returns false if quinn-proto will not issue it, because the ID is in use already; then
    /// quinn-proto generates another one.
    pub fn issued(&mut self, id: &[u8]) -> bool {
        self.live.made(id)
    }

    /// Reads the RETIRE_CONNECTION_ID frames in a packet of the peer.
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
    fn connection_ids_are_numbered_in_the_order_of_their_generation() {
        let mut observer = ConnectionIdObserver::new(b"first".to_vec());
        assert!(!observer.issued(b"first"), "the ID is already in use");
        assert!(observer.issued(b"second") && observer.issued(b"third"));
        // Two frames RETIRE_CONNECTION_ID with sequence number 1, which is that of the second ID.
        observer.opened(&[0x19, 1, 0x19, 1]);
        let id = b"second".to_vec();
        assert_eq!(observer.take_events(), [Event::ConnectionIdRetired { id }]);
        assert!(!observer.issued(b"third") && observer.issued(b"second"));
    }
}
