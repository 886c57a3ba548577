//! Sending: passes waiting data to quinn-proto, and takes datagrams from it.
//!
//! quinn-proto has one limit on all streams' data. After a server has rejected 0-RTT data, it keeps the larger of two
//! values: the ticket's and the server's. Until the server's limit has grown to the ticket's, the smaller one is
//! therefore enforced here, from the MAX_DATA frames that the packet keys show (`packet_observer`).

use std::time::Instant;

use quinn_proto as quinn;

use super::{Connection, path_observer::EXPANDED, qlog_connection_events::Before};
use crate::Event;

impl Connection {
    /// Passes everything to quinn-proto that may be sent. A batch has up to `batch_size` bytes. With `is_pumped`,
    /// nothing has changed since the last call of [`pump`](Self::pump), so it is not called again.
    pub(crate) fn prepare_transmit(&mut self, batch_size: usize, is_pumped: bool) {
        if !is_pumped {
            self.pump();
        }
        if self.phase.is_held() {
            return;
        }
        // A client may send as soon as it has 0-RTT keys. A server that accepts 0-RTT data may answer it before the
        // handshake is complete (RFC 9001 section 4.6.1).
        let is_early = self.is_handshaking() && self.quinn.has_0rtt();
        if self.is_established() || is_early {
            self.hand_over(batch_size);
        }
        let is_low = self.streams.is_below_low_water() && self.datagrams.is_nearly_empty();
        if is_low && !self.phase.is_closed() && self.events.note_room() {
            let queued_bytes = self.streams.queued_bytes();
            self.events.push(Event::ConnectionWritable { queued_bytes });
        }
    }

    /// True if more data may wait after a packet of `size` bytes: the packet was full, or a DATAGRAM frame did not fit.
    pub(crate) fn may_have_filled(&mut self, size: usize) -> bool {
        // quinn-proto sends path challenges, their answers and some loss probes in packets of 1,200 bytes, whatever
        // else waits and whatever the MTU is.
        let full = usize::from(self.quinn.current_mtu()).min(EXPANDED);
        size + ROOM_MIN > full || self.datagrams.is_waiting(&mut self.quinn)
    }

    /// True if stream data are queued here, because quinn-proto has as much as the peer's window allows.
    pub(crate) fn has_queued_data(&self) -> bool {
        self.streams.queued_bytes() > 0
    }

    /// Raises the limit on all streams' data to the value of the peer's last MAX_DATA frame. This crate counts that
    /// limit itself only after the server has rejected 0-RTT data, because quinn-proto then keeps the ticket's limit,
    /// which may be larger than the server's.
    fn raise_early_limit(&mut self) {
        if !self.streams.early_limit().is_counted() {
            return;
        }
        if let Some(allowed) = self.observer.max_data()
            && self.streams.early_limit().raise(allowed)
        {
            self.observer.forget_max_data();
        }
    }

    fn hand_over(&mut self, batch_size: usize) {
        self.raise_early_limit();
        let served_before = self.streams.served();
        if !self.preferred.holds_streams() {
            for stream_id in self.streams.flush(&mut self.quinn) {
                self.events.push(Event::StreamWritable { stream_id });
            }
        }
        if self.streams.served() != served_before {
            self.datagrams.streams_advance();
        }
        if self.is_handshaking() && self.is_client() {
            if self.negotiated.versions().is_retried() {
                self.datagrams.retried(&self.quinn);
            }
            self.datagrams.feed_early(&mut self.quinn, batch_size);
        } else {
            self.datagrams.feed(&mut self.quinn, batch_size);
        }
    }

    /// The next batch, of up to `segments` datagrams.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<quinn::Transmit> {
        if self.phase.is_held() {
            return None;
        }
        match self.addresses.are_limited() {
            false => self.poll_batch(now, segments, buf),
            true => self.poll_limited(now, segments, buf),
        }
    }

    pub(super) fn poll_batch(
        &mut self,
        now: Instant,
        segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<quinn::Transmit> {
        let before = self.log.before_batch(&self.quinn, now);
        if let Some(transmit) = self.poll_quinn(now, segments, buf) {
            return Some(self.noted(before, transmit));
        }
        buf.clear();
        if let Some(transmit) = self.poll_probe(now, buf) {
            return Some(self.noted(before, transmit));
        }
        if !self.is_established() || !self.datagrams.probe(&mut self.quinn) {
            return None;
        }
        let transmit = self.poll_quinn(now, segments, buf);
        self.datagrams.probed(&self.quinn, transmit.is_some());
        match &transmit {
            Some(transmit) => self.log.batch(&self.quinn, before, transmit),
            None => buf.clear(),
        }
        transmit
    }

    fn poll_quinn(
        &mut self,
        now: Instant,
        segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<quinn::Transmit> {
        debug_assert!(buf.is_empty(), "quinn-proto's counter never decreases");
        let mut transmit = self.quinn.poll_transmit(now, segments, buf)?;
        if self.addresses.are_limited() {
            self.shorten(now, &mut transmit, buf);
        }
        Some(transmit)
    }

    fn noted(&mut self, before: Option<Before>, transmit: quinn::Transmit) -> quinn::Transmit {
        self.counters.sent(&transmit);
        self.advance_keys();
        self.log.batch(&self.quinn, before, &transmit);
        transmit
    }
}

/// Bytes of room in a packet for which quinn-proto writes another STREAM frame.
const ROOM_MIN: usize = 64;
