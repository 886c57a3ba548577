//! Requests that come as 0-RTT data (RFC 9001 section 9.2, RFC 8470).
//!
//! Whoever sees such data on the wire can send it again, to this server or another, and cannot complete a
//! handshake. Our own tickets are good once (`tls::sessions`); clients repeat what they believe lost all the
//! same. So a request runs early only if it may be repeated, and others wait until the handshake is complete.
//!
//! Nor has a client that sends such data shown that it receives anything at the address that its packets come from,
//! unless a token of an earlier connection proves it (RFC 9000 section 8.1.3). An application must not take an
//! invented address for its client's, so without a token every request waits. It is not refused for that: the
//! client has done nothing wrong, and its handshake proves the address a round trip later.

use std::collections::VecDeque;
use std::time::Instant;

use rustc_hash::FxHashSet;
use uringcore_quic as quic;

use super::connection::Connection;
use super::event::Event;
use super::head::{Head, Refusal};

/// What becomes of a request that may not be repeated, before the handshake is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unsafe {
    /// It is told when the handshake is complete (RFC 8470 section 3).
    #[default]
    Waits,
    /// 425, upon which the client sends it again (RFC 8470 section 5.2).
    Refused,
}

/// Streams that wait for the handshake, and what there is to tell of them. As many as QUIC lets the client
/// open; of each its header section, and of its content what came with that.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    streams: FxHashSet<u64>,
    events: VecDeque<Event>,
    /// What the events hold.
    bytes: usize,
}

impl Waiting {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Connection {
    /// The handshake is complete: what has waited for it is told.
    pub fn handshake_completed(&mut self, quic: &mut quic::Connection, now: Instant) {
        let mut streams = Vec::from_iter(std::mem::take(&mut self.waiting.streams));
        streams.sort_unstable();
        for stream_id in streams {
            self.resume(quic, stream_id);
        }
        self.events.append(&mut self.waiting.events);
        self.waiting.bytes = 0;
        self.settle_sessions(quic, now);
    }

    pub(super) fn settle_waiting(&mut self, quic: &mut quic::Connection, now: Instant) {
        if !self.waiting.streams.is_empty() && !quic.is_handshaking() {
            self.handshake_completed(quic, now);
        }
    }

    /// Says of a request how early it is, and has it wait if it must. What comes out is why it is refused.
    pub(super) fn judge_early(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        head: &mut Head,
        ended: bool,
    ) -> Option<Refusal> {
        if !quic.is_handshaking() {
            return None;
        }
        let is_safe = head.may_be_repeated() && ended;
        if !is_safe && self.limits.unsafe_early == Unsafe::Refused {
            return Some(Refusal::new(425, "too early"));
        }
        if is_safe && quic.validated_addr().is_some() {
            head.mark_early();
        } else {
            self.waiting.streams.insert(stream_id);
            // Nothing of it is read meanwhile but what came with the header section.
            self.pause(quic, stream_id);
        }
        None
    }

    pub(super) fn waits_for_handshake(&self, stream_id: u64) -> bool {
        // Nothing waits on an established connection, so nothing is looked up there.
        !self.waiting.streams.is_empty() && self.waiting.streams.contains(&stream_id)
    }

    /// Tells the host something of a request, now or when the handshake is complete.
    pub(super) fn tell(&mut self, stream_id: u64, event: Event) {
        if !self.waits_for_handshake(stream_id) {
            return self.events.push_back(event);
        }
        if let Event::Request { head, .. } = &event {
            self.waiting.bytes += head.size();
        }
        self.waiting.events.push_back(event);
    }

    /// The queue for content of a request, of which so many bytes go in.
    pub(super) fn queue_of(&mut self, stream_id: u64, bytes: usize) -> &mut VecDeque<Event> {
        match self.waits_for_handshake(stream_id) {
            true => {
                self.waiting.bytes += bytes;
                &mut self.waiting.events
            }
            false => &mut self.events,
        }
    }
}
