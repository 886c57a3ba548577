//! HTTP datagrams of requests, in QUIC DATAGRAM frames and in capsules.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use uringcore_h3::{Code, LocalError, capsule};
use uringcore_quic::{self as quic, Chunks};
use uringcore_wire::varint;

use super::Connection;
use super::response_commands::refusal;
use crate::concurrent_requests::http_datagram::{DATAGRAM, Datagrams, read};
use crate::http3::event::Event;
use crate::response_errors::SendError;

impl Connection {
    /// Handles an HTTP datagram of this stream that arrived in a DATAGRAM frame.
    pub(super) fn datagram(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: Bytes,
        now: Instant,
    ) {
        match self.exchanges.get(stream_id).map(|it| &it.datagrams) {
            // The datagram came before its request, or after the request's end. It is dropped (RFC 9297 section 2.1).
            None => {}
            Some(Datagrams::None) => {
                // RFC 9297 section 2: a datagram for a request whose protocol has no datagrams is an error.
                self.abort_request(quic, stream_id, Code::H3_DATAGRAM_ERROR, now);
            }
            Some(_) => self.push_datagram(stream_id, data),
        }
    }

    /// Handles content that consists of capsules.
    pub(super) fn capsules(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        mut data: Bytes,
        ended: bool,
        now: Instant,
    ) {
        let Some(exchange) = self.exchanges.get_mut(stream_id) else {
            return;
        };
        let Datagrams::Capsules(capsules) = &mut exchange.datagrams else {
            return;
        };
        let (found, fault) = read(capsules, &mut data, ended);
        exchange.received(0, ended, now);
        for value in found {
            self.push_datagram(stream_id, value);
        }
        if let Some(code) = fault {
            self.abort_request(quic, stream_id, code, now);
        } else if ended {
            let end = Event::Body {
                stream_id,
                pieces: Chunks::default(),
                ended,
            };
            self.events.push_of(stream_id, end);
        }
    }

    fn push_datagram(&mut self, stream_id: u64, data: Bytes) {
        let is_wanted = self.is_waited_for(stream_id);
        // In 0-RTT data an attacker can replay datagrams, so none are stored before the handshake is complete.
        if is_wanted && !self.events.holds(stream_id) {
            self.events.push(Event::Datagram { stream_id, data });
        }
    }

    fn abort_request(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        code: Code,
        now: Instant,
    ) {
        self.h3.end_stream(quic, stream_id, code, now);
        self.abort(stream_id);
        self.start_idle_timer(now);
    }

    /// The largest HTTP datagram of a request that fits in a DATAGRAM frame now, in bytes. `None` if the client
    /// accepts only capsules.
    pub fn max_datagram_size(&self, quic: &mut quic::Connection, stream_id: u64) -> Option<usize> {
        let is_agreed = self.h3.are_datagrams_agreed();
        let size = quic.max_datagram_size().filter(|_| is_agreed)?;
        size.checked_sub(varint::size(stream_id / 4))
    }

    /// Sends an HTTP datagram of a request whose response's header section was sent. A datagram that is too large, or
    /// for which the queue has no room, is dropped. True if there is room for another one.
    pub fn send_datagram(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: &[u8],
        now: Instant,
    ) -> Result<bool, SendError> {
        self.check(stream_id)?;
        let Some(exchange) = self.exchanges.get(stream_id) else {
            return Err(SendError::Gone);
        };
        let has_capsules = match exchange.datagrams {
            Datagrams::None => {
                let reason = "the request's protocol has no datagrams";
                return Err(SendError::Invalid(reason.to_owned()));
            }
            Datagrams::Frames => false,
            Datagrams::Capsules(_) => true,
        };
        let has_room = !quic.is_full() && !quic.is_stream_full(stream_id);
        let (h3, mut out) = self.h3.parts(quic, now);
        match h3.send_datagram(&mut out, stream_id, data) {
            Err(LocalError::DatagramsNotNegotiated) if has_capsules && has_room => {
                let mut content = BytesMut::new();
                capsule::put(&mut content, DATAGRAM, data);
                let sent = h3.send_data(&mut out, stream_id, content.freeze(), false);
                sent.map_err(|error| refusal(h3, stream_id, error))?;
            }
            Err(LocalError::DatagramsNotNegotiated) => {}
            sent => sent?,
        }
        Ok(has_room)
    }
}
