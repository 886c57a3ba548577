//! The connection IDs that this side has given out and the peer has not given back (RFC 9000 section
//! 5.1), for hosts that route packets to connections themselves.
//!
//! The state machine keeps that between its connection and its endpoint; here it is read off the
//! frames that say so. Nobody pays for it who did not ask.

use std::collections::BTreeMap;

use crate::{
    quic::Event,
    wire::frames::{Frame, Frames},
};

/// What the frames of one connection said about its IDs.
pub(in crate::quic) struct IdWatch {
    live: BTreeMap<u64, Vec<u8>>,
    /// The sequence number after the highest one that was given out.
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

    /// A packet of ours. A lost frame is sent again, and told once.
    pub fn sealing(&mut self, payload: &[u8]) {
        for (_, _, frame) in Frames::new(payload) {
            if let Frame::NewConnectionId { sequence, id } = frame
                && sequence >= self.next
            {
                self.next = sequence + 1;
                self.live.insert(sequence, id.to_vec());
                self.news
                    .push(Event::ConnectionIdIssued { id: id.to_vec() });
            }
        }
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
