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

use std::time::Instant;

use uringcore_quic as quic;

use super::Connection;
use crate::http3::request_head::{Head, Refusal};
use crate::http3::limits::Unsafe;

impl Connection {
    /// The handshake is complete: pending events are reported.
    pub fn handshake_completed(&mut self, quic: &mut quic::Connection, now: Instant) {
        for stream_id in self.events.release() {
            self.resume(quic, stream_id);
        }
        self.update_sessions(quic, now);
    }

    pub(super) fn release_held_requests(&mut self, quic: &mut quic::Connection, now: Instant) {
        if self.events.holds_any() && !quic.is_handshaking() {
            self.handshake_completed(quic, now);
        }
    }

    /// Marks a request as early, and makes it wait if necessary. Returns a reason to refuse it.
    pub(super) fn check_early_request(
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
            self.events.hold(stream_id);
            // Nothing more of it is read meanwhile than the content that arrived with the header section.
            self.pause(quic, stream_id);
        }
        None
    }
}
