//! The host's commands that send a response, and their backpressure.

use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::{self as h3, Code, LocalError};
use uringcore_quic as quic;

use super::Connection;
use super::priorities::apply;
use crate::concurrent_requests::slowly_read_responses::Writing;
use crate::response_errors::SendError;

impl From<LocalError> for SendError {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::FieldSectionTooLarge { size, max } => Self::TooLarge { size, max },
            LocalError::Closed => Self::Gone,
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// The part of a response that one call sends.
enum Part<'a> {
    Headers(&'a [(&'a [u8], &'a [u8])]),
    /// A header section, and the content that follows it.
    Message(&'a [(&'a [u8], &'a [u8])], Bytes),
    Content(Bytes),
}

impl<'a> Part<'a> {
    /// The fields of a final response's header section; `None` for an interim response and for other parts.
    fn final_head(&self) -> Option<&'a [(&'a [u8], &'a [u8])]> {
        match *self {
            Self::Headers([(_, [b'1', ..]), ..]) | Self::Content(_) => None,
            Self::Headers(fields) | Self::Message(fields, _) => Some(fields),
        }
    }
}

/// Converts an error of `h3` for the host. The client can end this side's direction of a stream at any time, so a
/// wrong order of frames is the application's error only while that direction is open.
pub(super) fn refusal(h3: &h3::Connection, stream_id: u64, error: LocalError) -> SendError {
    match error {
        LocalError::FrameUnexpected(_) if !h3.is_sending(stream_id) => SendError::Gone,
        error => error.into(),
    }
}

/// True if more of this response can be sent now. Then [`Connection::is_held_up`](super::Connection::is_held_up) is
/// false.
pub fn has_room(quic: &quic::Connection, stream_id: u64) -> bool {
    let queued = quic.send_queue_bytes(stream_id);
    !quic.is_stream_full(stream_id) && !waits_for_connection_credit(quic, queued)
}

fn waits_for_connection_credit(quic: &quic::Connection, queued: usize) -> bool {
    queued > STREAM_QUEUE_FEW
        && (quic.is_full() || quic.is_over_share() || quic.is_short_of_memory())
}

impl Connection {
    /// Sends the header section of an interim or final response, or trailers. `fin` ends the response.
    pub fn send_headers(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[(&[u8], &[u8])],
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        self.send(quic, stream_id, Part::Headers(fields), fin, now)
    }

    /// Sends a header section and the content that follows it. Small content is sent in the same write.
    pub fn respond(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[(&[u8], &[u8])],
        content: Bytes,
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        if quic.is_short_of_memory() && self.is_waited_for(stream_id) {
            // Hundreds of requests may have been reported in this loop iteration before the first of their responses
            // used memory.
            self.cancel(quic, stream_id, Code::H3_EXCESSIVE_LOAD, now);
            return Err(SendError::Gone);
        }
        self.send(quic, stream_id, Part::Message(fields, content), fin, now)
    }

    /// Sends content of a response. `fin` ends the response.
    pub fn send_data(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        content: Bytes,
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        self.send(quic, stream_id, Part::Content(content), fin, now)
    }

    /// Sends a part of a response. The table of exchanges is searched once.
    fn send(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        part: Part<'_>,
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        let open = match self.exchanges.unanswered(stream_id) {
            Some(open) if !self.h3.is_closed_for_abuse() => open,
            _ => return Err(SendError::Gone),
        };
        let head = part.final_head();
        let (h3, mut out) = self.h3.parts(quic, now);
        let sent = match part {
            Part::Headers(fields) => h3.send_headers(&mut out, stream_id, fields, fin),
            Part::Message(fields, content) => {
                h3.send_message(&mut out, stream_id, fields, content, fin)
            }
            Part::Content(content) => h3.send_data(&mut out, stream_id, content, fin),
        };
        sent.map_err(|error| refusal(h3, stream_id, error))?;
        if let Some(fields) = head {
            if let Some(priority) = open.exchange.priority.set_application(fields) {
                apply(quic, stream_id, priority);
            }
            // The response has begun, so the time-out for the request's content no longer applies.
            open.exchange.has_begun = true;
        }
        if fin {
            let queued = quic.send_queue_bytes(stream_id);
            let writing = Writing::new(queued, open.answer(), &self.limits, now);
            self.slowly_read_responses.answered(stream_id, writing);
        }
        // QUIC refused the data because the stream has ended. The event about the end may be handled late, if the
        // application does not wait for events.
        match self.h3.take_refused(stream_id) {
            true => Err(SendError::Gone),
            false => Ok(()),
        }
    }

    pub(super) fn check(&self, stream_id: u64) -> Result<(), SendError> {
        match self.is_waited_for(stream_id) {
            true => Ok(()),
            false => Err(SendError::Gone),
        }
    }

    /// True if the host must not send more of this response now. `Writable` or `Aborted` follows. The host waits while
    /// the queue of the stream is full. Unless that queue is nearly empty, it also waits while the queues of the whole
    /// connection are full, or while the client's address holds more than its share of the server's memory.
    pub fn is_held_up(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        now: Instant,
    ) -> bool {
        if has_room(quic, stream_id) {
            return false;
        }
        let queued = quic.send_queue_bytes(stream_id);
        let priority = self.exchanges.rank(stream_id);
        let Some(exchange) = self.exchanges.get_mut(stream_id) else {
            return false;
        };
        let mut writing = Writing::new(queued, priority, &self.limits, now);
        writing.place = exchange.writing.as_ref().and_then(|before| before.place);
        if waits_for_connection_credit(quic, queued) {
            // The wait ends when the queues of the connection have room, or when that of the stream is nearly empty.
            quic.report_when_low(stream_id);
            let place = writing.place;
            writing.place = place.or_else(|| Some(self.slowly_read_responses.take_place()));
        }
        exchange.writing = Some(writing);
        true
    }

    /// Starts the time-out for the request's content, for which the host waits now.
    pub fn wait_for_body(&mut self, stream_id: u64, now: Instant) {
        if let Some(exchange) = self.exchanges.get_mut(stream_id) {
            exchange.wait(now);
        }
    }

    /// Resets this side's direction of the stream and stops the client's, if they are open. Causes no event.
    pub fn cancel(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        code: Code,
        now: Instant,
    ) {
        self.h3.end_stream(quic, stream_id, code, now);
        self.exchanges.answered(stream_id);
    }

    /// Stops reading a request's content. Then the client gets no more flow-control credit.
    pub fn pause(&mut self, quic: &mut quic::Connection, stream_id: u64) {
        self.exchanges.pause(stream_id);
        quic.pause_stream(stream_id);
    }

    pub fn resume(&mut self, quic: &mut quic::Connection, stream_id: u64) {
        self.exchanges.resume(stream_id);
        quic.resume_stream(stream_id);
    }

    /// Removes a request that the host has finished.
    pub fn done(&mut self, stream_id: u64, now: Instant) {
        self.exchanges.finish(stream_id);
        self.start_idle_timer(now);
    }

    /// Announces that the connection will end soon (RFC 9114 section 5.2): the client should send no more requests, and
    /// those in flight are still served. The host calls [`go_away`](Self::go_away) when they have arrived.
    pub fn announce_end(&mut self, quic: &mut quic::Connection, now: Instant) {
        // `send_goaway` fails if the connection is closed or has sent its last GOAWAY. Then no further one is needed.
        let (h3, mut out) = self.h3.parts(quic, now);
        let _ = h3.send_goaway(&mut out, LAST_REQUEST_STREAM);
    }

    /// Sends GOAWAY with the first request that will not be processed (RFC 9114 section 5.2). The host also drains
    /// each session ([`SessionCommands::drain`](crate::webtransport::SessionCommands::drain)), because not all clients
    /// end sessions on GOAWAY.
    pub fn go_away(&mut self, quic: &mut quic::Connection, now: Instant) {
        let (h3, mut out) = self.h3.parts(quic, now);
        let id = h3.next_goaway_id();
        // `send_goaway` fails if the connection is closed. Then no GOAWAY is needed.
        let _ = h3.send_goaway(&mut out, id);
    }
}

/// A queue with fewer bytes than this is nearly empty, which matters at `CONNECTION_QUEUE_HIGH`.
const STREAM_QUEUE_FEW: usize = 32 << 10;
/// The highest identifier of a request stream, for a GOAWAY that excludes no request.
const LAST_REQUEST_STREAM: u64 = (1 << 62) - 4;
