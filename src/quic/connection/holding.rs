//! The memory that this connection holds for its peer, the peer's credit for more, and shedding.
//!
//! Not here: the limits (`endpoint::memory`), and the memory of streams (`streams::holding`).

use std::sync::Arc;
use std::time::Instant;

use quinn_proto::Dir;
use uringcore_limits::budget::{Holding, Queued};

use super::{Connection, Phase};
use crate::{Event, streams::Shedding};

impl Connection {
    /// Counts the bytes that the host keeps for this connection; the peer's address is charged with them.
    pub fn queued(&self) -> Arc<Queued> {
        self.queued.clone()
    }

    /// Bytes that the peer has made this side hold: waiting data and datagrams, in both directions.
    pub fn held_bytes(&self) -> usize {
        let sending = self.streams.queued_bytes() + self.datagrams.queued_bytes();
        self.streams.unread_bytes() + sending + self.queued.bytes()
    }

    /// Starts to charge this connection's bytes to its client's account.
    pub(crate) fn open_account(&mut self, holding: Holding) {
        self.observer.inflow().enable();
        self.streams.count_arrivals();
        self.queued.charged_to(&holding);
        let holding = self.holding.insert(holding);
        holding.set_fixed(CONNECTION_BYTES);
    }

    pub(crate) fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    pub(crate) fn holding_mut(&mut self) -> Option<&mut Holding> {
        self.holding.as_mut()
    }

    /// Updates the account with the bytes held now.
    pub(crate) fn charge(&mut self) {
        let held = self.held_bytes();
        if let Some(holding) = &mut self.holding {
            holding.set(held);
        }
    }

    /// True if the peer must not begin anything that makes this side hold more: the process exceeds its budget, and
    /// this client's address holds a significant part of it. Streams are shed at the end of a turn
    /// (`endpoint::memory`); a host calls this within a turn, in which a client may begin hundreds of requests. The
    /// connection's bytes were counted with the last send, and when it was settled.
    pub fn is_short_of_memory(&self) -> bool {
        self.holding.as_ref().is_some_and(Holding::is_short)
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
        let is_closed = self.phase == Phase::Closed;
        self.observer.inflow().take_each(|arrived| {
            if !is_closed {
                streams.arrived(arrived);
            }
        });
        self.credit.released(self.streams.take_released());
    }

    /// Withholds credit and streams from the peer, or restores them. Returns true if anything has changed.
    pub(crate) fn set_withheld(&mut self, is_withheld: bool) -> bool {
        if self.phase == Phase::Closed {
            return false;
        }
        let mut changes = false;
        if self.peers_limits.is_withheld() != is_withheld {
            for dir in [Dir::Bi, Dir::Uni] {
                self.peers_limits
                    .withhold(&mut self.quinn, dir, is_withheld);
            }
            changes = true;
        }
        if self.credit.is_withheld() != is_withheld {
            // A debt of credit is paid when the peer has sent that much, which a peer that only receives never
            // does. It gets its streams all the same.
            changes |= match is_withheld {
                true => {
                    self.credit.withhold(&mut self.quinn);
                    true
                }
                false => self.credit.restore(&mut self.quinn),
            };
        }
        changes
    }

    /// True if the peer's address holds more than its share, or if a debt of credit is left from when it did.
    pub(crate) fn is_withheld(&self) -> bool {
        self.is_over_share() || self.credit.is_withheld()
    }

    /// True if the address of the peer holds more than its share of the budget.
    pub fn is_over_share(&self) -> bool {
        self.peers_limits.is_withheld()
    }

    /// How much further credit the peer should get, if it uses its current one.
    pub(crate) fn credit_growth(&self) -> Option<u64> {
        self.credit.growth(self.streams.received_bytes())
    }

    pub(crate) fn grow_credit(&mut self) {
        self.credit.grow(&mut self.quinn);
    }

    /// The peer is quiet: takes back its unused credit. Credit that the peer has received cannot be taken back (RFC
    /// 9000 section 4.1), so its reservation ends after a time. Returns that time, if it is in the future.
    pub(crate) fn rest_credit(&mut self, now: Instant) -> Option<Instant> {
        self.credit.rest(&mut self.quinn);
        let until = self.end_promise(now)?;
        if self.credit.is_taken_back() {
            self.break_promise();
            return None;
        }
        Some(until)
    }

    /// Ends the reservation for a peer that has not used its credit for a time, whatever else it sends. Returns
    /// that time, if it is in the future.
    pub(crate) fn end_promise(&mut self, now: Instant) -> Option<Instant> {
        self.holding.as_ref().filter(|it| it.has_promise())?;
        let received = self.streams.received_bytes();
        let until = self.credit.kept_until(received, now);
        if until > now {
            return Some(until);
        }
        self.credit.rest(&mut self.quinn);
        self.break_promise();
        None
    }

    fn break_promise(&mut self) {
        if let Some(holding) = &mut self.holding {
            holding.break_promise();
        }
    }

    /// True if the peer has no more than its initial credit, or cannot use it any more.
    pub(crate) fn is_credit_taken_back(&self) -> bool {
        self.phase == Phase::Closed || self.credit.is_taken_back()
    }

    /// The streams that could be shed, with the bytes they hold.
    pub(crate) fn sheddable(&mut self) -> Vec<Shedding> {
        if self.phase == Phase::Closed {
            return Vec::new();
        }
        self.streams.sheddable(self.queued.bytes())
    }

    /// Counts a shed stream, and returns how many streams of this connection were shed.
    pub(crate) fn note_shed(&mut self) -> u32 {
        self.sheds += 1;
        self.sheds
    }

    /// Sheds a stream. The host sees both directions end as if the peer had ended them.
    pub(crate) fn shed_stream(&mut self, stream_id: u64) {
        let error_code = self.shed_code();
        let unsent = self.streams.shed(&mut self.quinn, stream_id, error_code);
        self.push(Event::StreamReset {
            stream_id,
            error_code,
        });
        self.push(Event::StopSending {
            stream_id,
            error_code,
            unsent,
        });
        self.tell_abandoned();
        self.say_resets();
    }

    /// Sheds the whole connection.
    pub(crate) fn shed(&mut self, now: Instant) {
        let (code, frame_type) = match self.speaks_http3() {
            true => (H3_EXCESSIVE_LOAD, None),
            false => (INTERNAL_ERROR, Some(0)),
        };
        self.close(now, code, frame_type, b"the server is short of memory");
    }

    fn speaks_http3(&self) -> bool {
        self.alpn.as_deref() == Some(b"h3")
    }

    /// The code that ends streams. Codes of protocols other than HTTP/3 are unknown here.
    fn shed_code(&self) -> u64 {
        match self.speaks_http3() {
            true => H3_EXCESSIVE_LOAD,
            false => 0,
        }
    }
}

/// RFC 9114 section 8.1.
const H3_EXCESSIVE_LOAD: u64 = 0x107;
/// RFC 9000 section 20.1.
const INTERNAL_ERROR: u64 = 0x1;
/// A little more than an idle connection takes, to cover changes that are too small to be charged.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;
