//! HTTP datagrams (RFC 9297): unreliable messages of a request, whose protocol defines their meaning.
//!
//! They are carried in QUIC's DATAGRAM frames or, if the request's content consists of capsules, in capsules; a
//! host cannot distinguish them. A datagram may be lost either way: it is dropped if there is no room. Not here:
//! datagrams that wait for the application, which the host stores.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use uringcore_h3::capsule::{self, Capsules};
use uringcore_h3::{Code, LocalError};
use uringcore_quic as quic;
use uringcore_wire::varint;

use super::connection::Connection;
use super::event::Event;
use super::responses::{SendError, refusal};

/// The datagrams of a request's protocol.
#[derive(Debug, Default)]
pub(super) enum Datagrams {
    /// An ordinary HTTP request: datagrams have no meaning.
    #[default]
    None,
    Frames,
    /// Its content consists of capsules, which may contain datagrams.
    Capsules(Capsules),
}

impl Connection {
    /// A DATAGRAM frame for this stream.
    pub(super) fn datagram(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: Bytes,
        now: Instant,
    ) {
        match self.exchanges.get(&stream_id).map(|it| &it.datagrams) {
            // It arrived before its request, or after its end (RFC 9297 section 2.1).
            None => {}
            Some(Datagrams::None) => {
                // RFC 9297 section 2.
                self.give_up(quic, stream_id, Code::H3_DATAGRAM_ERROR, now);
            }
            Some(_) => self.tell_datagram(stream_id, data),
        }
    }

    /// Content of a request that consists of capsules.
    pub(super) fn capsules(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        mut data: Bytes,
        ended: bool,
        now: Instant,
    ) {
        let Some(exchange) = self.exchanges.get_mut(&stream_id) else {
            return;
        };
        let Datagrams::Capsules(capsules) = &mut exchange.datagrams else {
            return;
        };
        let longest = |kind| (kind == DATAGRAM).then_some(DATAGRAM_MAX);
        let mut found = Vec::new();
        let read = loop {
            match capsules.next(&mut data, longest) {
                Ok(Some((_, value))) => found.push(value),
                Ok(None) => break Ok(()),
                // No datagram of QUIC, or of any layer below it, is longer.
                Err(capsule::TooLong) => break Err(Code::H3_EXCESSIVE_LOAD),
            }
        };
        // RFC 9297 section 3.3: a truncated capsule is malformed.
        let is_cut = ended && !capsules.is_between();
        let fault = read.err().or(is_cut.then_some(Code::H3_MESSAGE_ERROR));
        exchange.received(0, ended, now);
        for value in found {
            self.tell_datagram(stream_id, value);
        }
        if let Some(code) = fault {
            self.give_up(quic, stream_id, code, now);
        } else if ended {
            let end = Event::Body {
                stream_id,
                pieces: Vec::new(),
                ended,
            };
            self.tell(stream_id, end);
        }
    }

    fn tell_datagram(&mut self, stream_id: u64, data: Bytes) {
        let is_wanted = self.is_waited_for(stream_id);
        // Data that anybody can replay is not stored until the handshake is complete.
        if is_wanted && !self.waits_for_handshake(stream_id) {
            self.events.push_back(Event::Datagram { stream_id, data });
        }
    }

    fn give_up(&mut self, quic: &mut quic::Connection, stream_id: u64, code: Code, now: Instant) {
        self.end_stream(quic, stream_id, code, now);
        self.abort(stream_id);
        self.calmed(now);
    }

    /// The largest datagram of a request that QUIC accepts at present; `None` if capsules must be used.
    pub fn max_datagram_size(&self, quic: &mut quic::Connection, stream_id: u64) -> Option<usize> {
        let is_agreed = self.h3.are_datagrams_agreed();
        let size = quic.max_datagram_size().filter(|_| is_agreed)?;
        size.checked_sub(varint::size(stream_id / 4))
    }

    /// Sends a datagram of a request, after its response's header section. Returns true if there is room for
    /// another; a datagram without room, or one that is too large, is dropped.
    pub fn send_datagram(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: &[u8],
        now: Instant,
    ) -> Result<bool, SendError> {
        self.check(stream_id)?;
        let Some(exchange) = self.exchanges.get(&stream_id) else {
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
        let out = &mut self.outcome.sink(quic, now);
        match self.h3.send_datagram(out, stream_id, data) {
            Err(LocalError::DatagramsNotNegotiated) if has_capsules && has_room => {
                let mut content = BytesMut::new();
                capsule::put(&mut content, DATAGRAM, data);
                let said = self.h3.send_data(out, stream_id, content.freeze(), false);
                said.map_err(|error| refusal(&self.h3, stream_id, error))?;
            }
            Err(LocalError::DatagramsNotNegotiated) => {}
            sent => sent?,
        }
        Ok(has_room)
    }
}

/// The capsule of a datagram (RFC 9297 section 3.5).
const DATAGRAM: u64 = 0x00;
const DATAGRAM_MAX: usize = 65_535;
