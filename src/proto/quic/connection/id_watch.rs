//! The connection IDs that this side has given out and the peer has not given back (RFC 9000 section
//! 5.1), for hosts that route packets to connections themselves.
//!
//! An ID is told when it is made, which is before a packet that gives it to the peer can leave: so
//! whoever sends that packet knows where the answers belong. What the peer gives back is read off its
//! frames, for the state machine keeps that between its connection and its endpoint. Nobody pays for it
//! who did not ask.

use std::collections::BTreeMap;

use crate::{
    quic::Event,
    wire::frames::{Frame, Frames},
};

/// The IDs of one connection by their sequence numbers, which are given in the order in which IDs are
/// made.
pub(in crate::quic) struct IdWatch {
    live: BTreeMap<u64, Vec<u8>>,
    /// The sequence number of the next one.
    next: u64,
    news: Vec<Event>,
}

impl IdWatch {
    /// The first ID is known from the handshake and not told.
    pub fn new(first: Vec<u8>) -> Self {
        Self {
            live: BTreeMap::from([(0, first)]),
            next: 1,
            news: Vec::new(),
        }
    }

    /// An ID was made. Returns whether it is given out: the state machine has another one made in the
    /// place of one that is in use already.
    pub fn issued(&mut self, id: &[u8]) -> bool {
        let is_new = !self.live.values().any(|live| live == id);
        if is_new {
            self.live.insert(self.next, id.to_vec());
            self.next += 1;
        }
        is_new
    }

    /// A packet of the peer's.
    pub fn opened(&mut self, payload: &[u8]) {
        for (_, _, frame) in Frames::new(payload) {
            if let Frame::RetireConnectionId { sequence } = frame
                && let Some(id) = self.live.remove(&sequence)
            {
                self.news.push(Event::ConnectionIdRetired { id });
            }
        }
    }

    pub fn take_news(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.news)
    }

    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_numbers_in_the_order_in_which_they_were_made() {
        let mut watch = IdWatch::new(b"first".to_vec());
        assert!(!watch.issued(b"first"), "it is in use");
        assert!(watch.issued(b"second") && watch.issued(b"third"));
        // RETIRE_CONNECTION_ID of the second and, once more, of the second.
        watch.opened(&[0x19, 1, 0x19, 1]);
        let id = b"second".to_vec();
        assert_eq!(watch.take_news(), [Event::ConnectionIdRetired { id }]);
        assert!(!watch.issued(b"third") && watch.issued(b"second"));
    }
}
