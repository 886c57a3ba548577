//! Requests in 0-RTT data (RFC 9001 section 9.2, RFC 8470).
//!
//! An attacker who sees such data on the wire can replay it, to this server or another, but cannot complete a
//! handshake. Our own tickets can be used once (`tls::sessions`), but clients repeat requests that they believe
//! lost. So a request runs early only if it is safe to repeat, and others wait until the handshake is complete.
//!
//! A client with 0-RTT data has also not proved that it receives anything at its source address, unless it sends a
//! token of an earlier connection (RFC 9000 section 8.1.3). An application must not take a spoofed address for its
//! client's, so without a token every request waits. It is not rejected for that: the client has done nothing
//! wrong, and its handshake proves the address a round trip later.

use std::collections::VecDeque;
use std::time::Instant;

use rustc_hash::FxHashSet;
use uringcore_quic as quic;

use super::connection::Connection;
use super::event::Event;
use super::head::{Head, Refusal};

/// The handling of an unsafe request before the handshake is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unsafe {
    /// It is reported when the handshake is complete (RFC 8470 section 3).
    #[default]
    Waits,
    /// It is answered with 425, and the client sends it again (RFC 8470 section 5.2).
    Refused,
}

/// Streams that wait for the handshake, and their pending events. QUIC's limit bounds their number; each has its
/// header section, and the content that arrived with it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    streams: FxHashSet<u64>,
    events: VecDeque<Event>,
    /// The bytes of the events.
    bytes: usize,
}

impl Waiting {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Connection {
    /// The handshake is complete: pending events are reported.
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

    /// Marks a request as early, and makes it wait if necessary. Returns a reason to refuse it.
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
            // Nothing more of it is read meanwhile than the content that arrived with the header section.
            self.pause(quic, stream_id);
        }
        None
    }

    pub(super) fn waits_for_handshake(&self, stream_id: u64) -> bool {
        // On an established connection nothing waits, so the set is not searched.
        !self.waiting.streams.is_empty() && self.waiting.streams.contains(&stream_id)
    }

    /// Reports an event of a request, now or when the handshake is complete.
    pub(super) fn tell(&mut self, stream_id: u64, event: Event) {
        if !self.waits_for_handshake(stream_id) {
            return self.events.push_back(event);
        }
        if let Event::Request { head, .. } = &event {
            self.waiting.bytes += head.size();
        }
        self.waiting.events.push_back(event);
    }

    /// The queue for content of a request, to which `bytes` bytes are added.
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
