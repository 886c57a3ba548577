//! Memory that a connection holds for its peer: its sum, its release at the end, and shedding.
//!
//! Not here: the account and the credit (`memory_account`), the limits (`endpoint::memory`), and the memory of streams
//! (`streams::unread_data`).

use std::{sync::Arc, time::Instant};

use uringcore_limits::memory_budget::{Holding, Queued};

use super::{
    Connection,
    memory_account::{PeerAccount, Update},
};
use crate::{Event, streams::Shedding};

impl Connection {
    /// Counts the bytes that the host keeps for this connection; the peer's address is charged with them.
    pub fn queued(&self) -> Arc<Queued> {
        self.account.queued().clone()
    }

    /// Bytes that the peer has made this side hold: waiting data and datagrams, in both directions.
    pub fn held_bytes(&self) -> usize {
        let sending = self.streams.queued_bytes() + self.datagrams.queued_bytes();
        self.streams.unread_bytes() + sending + self.account.queued().bytes()
    }

    /// Starts to charge this connection's bytes to its client's account.
    pub(crate) fn open_account(&mut self, holding: Holding) {
        self.observer.received_offsets().enable();
        self.streams.count_arrivals();
        self.account.open(holding);
    }

    pub(crate) fn account(&self) -> &PeerAccount {
        &self.account
    }

    pub(crate) fn account_mut(&mut self) -> &mut PeerAccount {
        &mut self.account
    }

    /// Updates the account with the bytes held now.
    pub(super) fn charge(&mut self) {
        let held = self.held_bytes();
        self.account.charge(held);
    }

    /// Updates the account with the bytes held now, and the peer's credit with the account.
    pub(crate) fn update_account(&mut self) -> Option<Update> {
        if !self.account.is_open() {
            return None;
        }
        let (held, received) = (self.held_bytes(), self.streams.received_bytes());
        let is_closed = self.lifecycle.is_closed();
        self.account
            .update(&mut self.quinn, held, received, is_closed)
    }

    /// True if the peer must not begin anything that makes this side hold more: the process exceeds its budget, and
    /// this client's address holds a significant part of it. Streams are shed at the end of a turn
    /// (`endpoint::memory`); a host calls this within a turn, in which a client may begin hundreds of requests. The
    /// connection's bytes were counted with the last send, and when it was reconciled.
    pub fn is_short_of_memory(&self) -> bool {
        self.account.is_short()
    }

    /// True if the address of the peer holds more than its share of the budget.
    pub fn is_over_share(&self) -> bool {
        self.account.is_over_share()
    }

    /// After the end of the connection: drops data to send and to retransmit. A closed connection only sends
    /// CONNECTION_CLOSE (RFC 9000 section 10.2.1), for three probe time-outs.
    pub(super) fn release_sending(&mut self) {
        self.streams.release_sending(&mut self.quinn);
        self.datagrams.clear();
    }

    /// After the host has received the end: drops unread data.
    pub(super) fn release_receiving(&mut self) {
        self.streams.release_receiving(&mut self.quinn);
        while self.quinn.datagrams().recv().is_some() {}
    }

    pub(super) fn take_over_arrivals(&mut self) {
        let streams = &mut self.streams;
        // Frames after a CONNECTION_CLOSE, which the state machine ignores, may have been recorded in the same
        // turn.
        let is_closed = self.lifecycle.is_closed();
        self.observer.received_offsets().take_each(|arrived| {
            if !is_closed {
                streams.arrived(arrived);
            }
        });
        self.account.released(self.streams.take_released());
    }

    /// The peer is quiet: takes back its unused credit. Returns the time at which to try again, if it is in the
    /// future.
    pub(crate) fn rest_credit(&mut self, now: Instant) -> Option<Instant> {
        let received = self.streams.received_bytes();
        self.account.rest(&mut self.quinn, received, now)
    }

    /// Ends the reservation of credit that the peer has not used for a time.
    pub(crate) fn end_promise(&mut self, now: Instant) {
        let received = self.streams.received_bytes();
        self.account.end_promise(&mut self.quinn, received, now);
    }

    /// The streams that could be shed, with the bytes they hold.
    pub(crate) fn sheddable(&mut self) -> Vec<Shedding> {
        if self.lifecycle.is_closed() {
            return Vec::new();
        }
        self.streams.sheddable(self.account.queued().bytes())
    }

    /// Sheds a stream. The host sees both directions end as if the peer had ended them.
    pub(crate) fn shed_stream(&mut self, stream_id: u64) {
        let error_code = self.shed_code();
        let unsent = self.streams.shed(&mut self.quinn, stream_id, error_code);
        self.events.push(Event::StreamReset {
            stream_id,
            error_code,
        });
        self.events.push(Event::StopSending {
            stream_id,
            error_code,
            unsent,
        });
        self.report_abandoned();
        self.insert_resets();
    }

    /// Sheds the whole connection.
    pub(crate) fn shed(&mut self, now: Instant) {
        let (code, frame_type) = match self.negotiated.is_http3() {
            true => (H3_EXCESSIVE_LOAD, None),
            false => (INTERNAL_ERROR, Some(0)),
        };
        self.close(now, code, frame_type, b"the server is short of memory");
    }

    /// The code that ends streams. Codes of protocols other than HTTP/3 are unknown here.
    fn shed_code(&self) -> u64 {
        match self.negotiated.is_http3() {
            true => H3_EXCESSIVE_LOAD,
            false => 0,
        }
    }
}

/// RFC 9114 section 8.1.
const H3_EXCESSIVE_LOAD: u64 = 0x107;
/// RFC 9000 section 20.1.
const INTERNAL_ERROR: u64 = 0x1;
