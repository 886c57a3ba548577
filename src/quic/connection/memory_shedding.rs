//! The memory that a connection holds for its peer: its sum, its release at the end, and shedding (ending streams to
//! free memory).
//!
//! Not here: charging the memory and reducing the peer's credit (`memory_account`), the choice of connections to shed
//! (`endpoint::memory_shedding`), and counting streams' unread data (`streams::unread_data`).

use std::{sync::Arc, time::Instant};

use uringcore_limits::memory_budget::{Holding, Queued};

use super::{
    Connection,
    memory_account::{PeerAccount, Update},
};
use crate::{Event, streams::ShedCandidate};

impl Connection {
    /// A counter of bytes that the application stores for this connection. They are charged to the peer's address.
    pub fn queued(&self) -> Arc<Queued> {
        self.account.queued().clone()
    }

    /// Bytes that are stored because of the peer: data and datagrams that are not read, and those that are not sent.
    pub fn held_bytes(&self) -> usize {
        let sending = self.streams.queued_bytes() + self.datagrams.queued_bytes();
        self.streams.unread_bytes() + sending + self.account.queued().bytes()
    }

    /// Starts charging this connection's bytes to the account of its client's address.
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

    /// Charges the peer's address with the bytes that this connection holds at present.
    pub(super) fn charge(&mut self) {
        let held = self.held_bytes();
        self.account.charge(held);
    }

    /// Charges the peer's address with the bytes that this connection holds at present, and adjusts the peer's credit
    /// for stream data.
    pub(crate) fn update_account(&mut self) -> Option<Update> {
        if !self.account.is_open() {
            return None;
        }
        let (held, received) = (self.held_bytes(), self.streams.received_bytes());
        let is_closed = self.phase.is_closed();
        self.account
            .update(&mut self.quinn, held, received, is_closed)
    }

    /// True if the peer must not begin anything that needs more memory: the process exceeds its budget, and this
    /// client's address holds a significant part of it. `endpoint::memory_shedding` sheds streams at the end of a loop
    /// iteration. An application calls this method within a loop iteration, because a client may begin hundreds of
    /// requests in one. The connection's bytes were counted with the last send, and when the connection was reconciled.
    pub fn is_short_of_memory(&self) -> bool {
        self.account.is_short()
    }

    /// True if the peer's address holds more than its share of the memory budget.
    pub fn is_over_share(&self) -> bool {
        self.account.is_over_share()
    }

    /// Drops data that is not sent or not acknowledged, after the end of the connection. A closed connection sends
    /// nothing but CONNECTION_CLOSE (RFC 9000 section 10.2.1), for three probe time-outs.
    pub(super) fn release_sending(&mut self) {
        self.streams.release_sending(&mut self.quinn);
        self.datagrams.clear();
    }

    /// Drops unread data, after the application has polled `Closed`.
    pub(super) fn release_receiving(&mut self) {
        self.streams.release_receiving(&mut self.quinn);
        while self.quinn.datagrams().recv().is_some() {}
    }

    pub(super) fn take_over_arrivals(&mut self) {
        let streams = &mut self.streams;
        // A CONNECTION_CLOSE has arrived. The packet observer may also have recorded frames behind it, which
        // quinn-proto ignores.
        let is_closed = self.phase.is_closed();
        self.observer.received_offsets().take_each(|arrived| {
            if !is_closed {
                streams.arrived(arrived);
            }
        });
        self.account.released(self.streams.take_released());
    }

    /// Takes unused credit for stream data back from a peer that sends nothing. Returns the time of the next attempt,
    /// if one is needed.
    pub(crate) fn take_back_credit(&mut self, now: Instant) -> Option<Instant> {
        let received = self.streams.received_bytes();
        self.account
            .take_back_credit(&mut self.quinn, received, now)
    }

    /// Ends the reservation of memory for credit that the peer has not used for a time.
    pub(crate) fn end_reservation(&mut self, now: Instant) {
        let received = self.streams.received_bytes();
        self.account.end_reservation(&mut self.quinn, received, now);
    }

    /// The streams that could be shed, with the bytes that each holds.
    pub(crate) fn sheddable(&mut self) -> Vec<ShedCandidate> {
        if self.phase.is_closed() {
            return Vec::new();
        }
        self.streams.sheddable(self.account.queued().bytes())
    }

    /// Ends both directions of a stream to free its memory. The application gets the events of a reset by the peer.
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

    /// Closes the connection to free its memory.
    pub(crate) fn shed(&mut self, now: Instant) {
        let (code, frame_type) = match self.negotiated.is_http3() {
            true => (H3_EXCESSIVE_LOAD, None),
            false => (INTERNAL_ERROR, Some(0)),
        };
        self.close(now, code, frame_type, b"the server is short of memory");
    }

    /// The error code for shed streams. Zero for protocols other than HTTP/3, whose codes are unknown here.
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
