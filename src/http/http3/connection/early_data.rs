//! Requests in 0-RTT data (RFC 9001 section 9.2, RFC 8470).
//!
//! An attacker who sees 0-RTT data on the wire can replay it to this server or to another, but cannot complete a
//! handshake. Each ticket of this server is good for one use (`tls::sessions`), but clients also repeat requests that
//! they believe lost. So a request is reported early only if it is safe to repeat; other requests wait until the
//! handshake is complete.
//!
//! A client has not yet proved that it receives packets at its source address, unless it sends a token of an earlier
//! connection (RFC 9000 section 8.1.3). An application must not see a spoofed address, so without a token every
//! request waits. It is not rejected, because the handshake proves the address a round trip later.

use std::time::Instant;

use uringcore_quic as quic;

use super::Connection;
use crate::concurrent_requests::Unsafe;
use crate::request_head::Head;
use crate::response_errors::Refusal;

impl Connection {
    /// Reports the events that waited for the handshake, which is complete now.
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

    /// Marks a request as early, and holds its events if it must wait for the handshake. Returns a refusal if it must
    /// be refused.
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
            // The stream is paused, so that no more content is stored than what arrived with the header section.
            self.pause(quic, stream_id);
        }
        None
    }
}
