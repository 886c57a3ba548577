//! The host's commands that send a response, and their backpressure.

use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::field_validation::{self, Line, Method};
use uringcore_h3::qpack::FIELD_OVERHEAD;

use super::Connection;
use crate::concurrent_requests::slowly_read_responses::Writing;
use crate::http2::error::Code;
use crate::http2::frame_codec::{self, FrameHeader, HEADER_BYTES, flag, kind};
use crate::http2::hpack::Encoder;
use crate::http2::stream::{End, Sending};
use crate::response_errors::SendError;

/// The fields of a header section, as the host passes them.
type Fields<'a> = [(&'a [u8], &'a [u8])];

/// The part of a response that a header section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Interim,
    Head,
    Trailers,
}

impl Connection {
    /// Sends a header section: an interim response, the final one, or trailers. If `end` is true, nothing follows.
    pub fn send_headers(
        &mut self,
        stream_id: u64,
        fields: &Fields<'_>,
        end: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        let id = self.open(stream_id)?;
        let part = self.send_section(id, fields, end)?;
        if part == Part::Head {
            self.begun(id, fields, now);
        }
        if end {
            self.answered(id, now);
        }
        Ok(())
    }

    /// Sends the header section of a final response, and content.
    pub fn respond(
        &mut self,
        stream_id: u64,
        fields: &Fields<'_>,
        content: Bytes,
        end: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        let id = self.open(stream_id)?;
        let whole = end && content.is_empty();
        match self.send_section(id, fields, whole)? {
            Part::Head => self.begun(id, fields, now),
            Part::Interim | Part::Trailers => {
                return Err(invalid("content follows the header section of a response"));
            }
        }
        if !whole {
            self.send_content(id, content, end);
        }
        if end {
            self.answered(id, now);
        }
        Ok(())
    }

    /// Sends content.
    pub fn send_data(
        &mut self,
        stream_id: u64,
        content: Bytes,
        end: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        let id = self.open(stream_id)?;
        match self.streams.get(&id).map(|stream| stream.sending) {
            Some(Sending::Content) => {}
            Some(Sending::Head) => return Err(invalid("the response has not begun")),
            Some(Sending::Nothing) | None => return Err(SendError::Gone),
        }
        self.send_content(id, content, end);
        if end {
            self.answered(id, now);
        }
        Ok(())
    }

    /// Checks that a response is open. Returns its stream.
    fn open(&self, stream_id: u64) -> Result<u32, SendError> {
        let id = u32::try_from(stream_id).map_err(|_| SendError::Gone)?;
        let is_open = self.exchanges.is_unanswered(stream_id) && self.streams.contains_key(&id);
        is_open.then_some(id).ok_or(SendError::Gone)
    }

    /// Records that the final response has begun.
    fn begun(&mut self, stream_id: u32, fields: &Fields<'_>, now: Instant) {
        let Some(exchange) = self.exchanges.get_mut(u64::from(stream_id)) else {
            return;
        };
        // From now on there is no time-out for the request's content.
        exchange.has_begun = true;
        if exchange.priority.set_application(fields).is_some() {
            self.change_place(stream_id);
        }
        // The application closes the connection, as with HTTP/1.1.
        let closes = |(name, value): &(&[u8], &[u8])| {
            *name == b"connection" && value.eq_ignore_ascii_case(b"close")
        };
        if fields.iter().any(closes) {
            self.stop(now);
        }
    }

    /// Records that the host has sent the whole response.
    fn answered(&mut self, stream_id: u32, now: Instant) {
        let id = u64::from(stream_id);
        let Some(open) = self.exchanges.unanswered(id) else {
            return;
        };
        let priority = open.answer();
        if let Some(stream) = self.streams.get_mut(&stream_id) {
            let queued = stream.queue.bytes();
            if queued > 0 {
                let writing = Writing::new(queued, priority, &self.limits.requests, now);
                self.slowly_read_responses.answered(id, writing);
            }
        }
        self.finish_stream(stream_id);
    }

    /// Checks, encodes and sends a header section.
    fn send_section(
        &mut self,
        stream_id: u32,
        fields: &Fields<'_>,
        end: bool,
    ) -> Result<Part, SendError> {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return Err(SendError::Gone);
        };
        let lines = field_validation::trimmed(fields);
        let mut drops_length = false;
        let part = match stream.sending {
            Sending::Head => {
                let checked = field_validation::response_head(lines.clone());
                let head = checked.map_err(|reason| SendError::Invalid(reason.into_owned()))?;
                drops_length = head.is_without_content(Method::Other);
                if head.is_interim() && end {
                    return Err(invalid("an interim response does not end the stream"));
                }
                match head.is_interim() {
                    true => Part::Interim,
                    false => Part::Head,
                }
            }
            Sending::Content if end => {
                let checked = field_validation::trailers(lines.clone());
                checked.map_err(|reason| SendError::Invalid(reason.into_owned()))?;
                Part::Trailers
            }
            Sending::Content => return Err(invalid("the response has begun")),
            Sending::Nothing => return Err(SendError::Gone),
        };
        let is_sent = |(name, _): &Line<'_>| !drops_length || *name != b"content-length";
        let lines = lines.filter(is_sent);
        if let Some(max) = self.peer.section_max {
            let sizes = lines.clone().map(|(name, value)| name.len() + value.len());
            let size: u64 = sizes.map(|size| (size + FIELD_OVERHEAD) as u64).sum();
            if size > max {
                return Err(SendError::TooLarge { size, max });
            }
        }
        match (part, end) {
            (Part::Interim, _) => {}
            (Part::Head, false) => stream.sending = Sending::Content,
            (Part::Head, true) | (Part::Trailers, _) => stream.sending = Sending::Nothing,
        }
        if part == Part::Trailers && !stream.queue.is_empty() {
            // The trailers follow the waiting content, and other field blocks may be sent before them.
            let mut block = Vec::new();
            lines.for_each(|(name, value)| Encoder::independent_field(&mut block, name, value));
            stream.queue.push_end(End::Trailers(block));
            return Ok(part);
        }
        let frame_max = self.peer.frame_max;
        let (buffer, before) = self.output.buffer();
        buffer.extend_from_slice(&[0; HEADER_BYTES]);
        self.encoder.begin(buffer);
        lines.for_each(|(name, value)| self.encoder.field(buffer, name, value));
        frame_block(buffer, before, stream_id, end, frame_max);
        self.output.end_buffer(before, true);
        Ok(part)
    }

    /// True if the host must not send more of this response now. `Writable` or `Aborted` follows. The host waits while
    /// the queue of the stream is full. Unless that queue is nearly empty, it also waits while the queues of the whole
    /// connection are full, or while `is_short` says that the server has no memory for this client.
    pub fn is_held_up(&mut self, stream_id: u64, is_short: bool, now: Instant) -> bool {
        let Some(queued) = self.queued(stream_id).filter(|queued| *queued > 0) else {
            return false;
        };
        let mut queued = queued;
        if queued >= STREAM_QUEUE_FEW {
            self.fill_output(now);
            queued = self.queued(stream_id).unwrap_or_default();
        }
        let is_full = queued >= STREAM_QUEUE_HIGH;
        let waits_for_connection =
            queued >= STREAM_QUEUE_FEW && (is_short || self.queued_bytes >= CONNECTION_QUEUE_HIGH);
        if !is_full && !waits_for_connection {
            return false;
        }
        let priority = self.exchanges.rank(stream_id);
        let Some(exchange) = self.exchanges.get_mut(stream_id) else {
            return false;
        };
        let mut writing = Writing::new(queued, priority, &self.limits.requests, now);
        if waits_for_connection {
            let place = exchange.writing.as_ref().and_then(|before| before.place);
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

    /// Stops reading a request's content. Then the client gets no more credit for it.
    pub fn pause(&mut self, stream_id: u64) {
        if let Some(stream) = self.stream_mut(stream_id) {
            stream.credit.pause();
            self.exchanges.pause(stream_id);
        }
    }

    pub fn resume(&mut self, stream_id: u64) {
        self.exchanges.resume(stream_id);
        let Some(stream) = self.stream_mut(stream_id) else {
            return;
        };
        let owed = stream.credit.resume();
        let increment = match stream.is_received {
            true => None,
            false => stream.credit.take_increment(),
        };
        self.owed_credit += owed;
        if let Some(increment) = increment {
            let id = stream_id as u32;
            self.put(|out| frame_codec::put_window_update(out, id, increment));
        }
        self.give_credit();
    }

    /// Ends both directions of a stream, if they are open. Causes no event. With `NoError` the response is complete,
    /// and its rest is still sent.
    pub fn cancel(&mut self, stream_id: u64, code: Code, now: Instant) {
        self.exchanges.answered(stream_id);
        let Some(stream) = self.stream_mut(stream_id) else {
            return;
        };
        let id = stream_id as u32;
        if code == Code::NoError && stream.sending == Sending::Nothing {
            stream.is_reset_at_end = true;
            self.finish_stream(id);
        } else {
            self.reset(id, code);
        }
        self.start_idle_timer(now);
    }

    /// Removes a request that the host has finished. An incomplete response is reset.
    pub fn done(&mut self, stream_id: u64, now: Instant) {
        if self.exchanges.is_unanswered(stream_id) {
            self.cancel(stream_id, Code::InternalError, now);
        }
        self.exchanges.finish(stream_id);
        self.start_idle_timer(now);
        self.close_if_drained();
    }

    fn stream_mut(&mut self, stream_id: u64) -> Option<&mut crate::http2::stream::Stream> {
        self.streams.get_mut(&u32::try_from(stream_id).ok()?)
    }

    /// The number of bytes in the queue of a stream.
    pub(super) fn queued(&self, stream_id: u64) -> Option<usize> {
        let stream = self.streams.get(&u32::try_from(stream_id).ok()?)?;
        Some(stream.queue.bytes())
    }
}

/// Completes a field block in `bytes_like_objects`, which begins behind the space for a frame header at `begin`. A block that is
/// larger than a frame is continued (RFC 9113 section 6.10).
fn frame_block(buffer: &mut Vec<u8>, begin: usize, stream_id: u32, end: bool, frame_max: usize) {
    let length = buffer.len() - begin - HEADER_BYTES;
    let end_stream = if end { flag::END_STREAM } else { 0 };
    let mut header = FrameHeader {
        length,
        kind: kind::HEADERS,
        flags: end_stream | flag::END_HEADERS,
        stream_id,
    };
    if length <= frame_max {
        buffer[begin..begin + HEADER_BYTES].copy_from_slice(&header.encode());
        return;
    }
    let block = buffer.split_off(begin + HEADER_BYTES);
    buffer.truncate(begin);
    let count = block.len().div_ceil(frame_max);
    for (at, fragment) in block.chunks(frame_max).enumerate() {
        header.length = fragment.len();
        header.kind = if at == 0 {
            kind::HEADERS
        } else {
            kind::CONTINUATION
        };
        header.flags = if at == 0 { end_stream } else { 0 };
        if at + 1 == count {
            header.flags |= flag::END_HEADERS;
        }
        buffer.extend_from_slice(&header.encode());
        buffer.extend_from_slice(fragment);
    }
}

/// Encodes a field block that was made for the end of a response.
pub(super) fn put_trailers(buffer: &mut Vec<u8>, stream_id: u32, block: &[u8], frame_max: usize) {
    let begin = buffer.len();
    buffer.extend_from_slice(&[0; HEADER_BYTES]);
    buffer.extend_from_slice(block);
    frame_block(buffer, begin, stream_id, true, frame_max);
}

fn invalid(reason: &str) -> SendError {
    SendError::Invalid(reason.to_owned())
}

/// From this number of bytes in its queue on, a response waits.
const STREAM_QUEUE_HIGH: usize = 128 << 10;
/// A queue with fewer bytes than this is nearly empty: waiting responses continue.
pub(super) const STREAM_QUEUE_FEW: usize = 32 << 10;
/// While the queues of a connection hold this many bytes, all its responses wait; they continue below
/// `CONNECTION_QUEUE_LOW`. Over HTTP/3 the bounds are the same.
const CONNECTION_QUEUE_HIGH: usize = 4 << 20;
pub(super) const CONNECTION_QUEUE_LOW: usize = 3 << 20;
