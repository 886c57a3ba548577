//! Arriving requests: their field blocks and content, and requests that the client resets.

use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::field_validation::{self, Method, TargetCheck};
use uringcore_h3::{Priority, Signal};

use super::Connection;
use super::control_frames::depends_on_itself;
use crate::concurrent_requests::exchange::Exchange;
use crate::concurrent_requests::exchanges::Room;
use crate::http2::error::{Code, Fault};
use crate::http2::event::Event;
use crate::http2::field_block::HeaderBlock;
use crate::http2::frame_codec::{FrameHeader, flag, unpadded};
use crate::http2::hpack::{Bounds, Section};
use crate::http2::stream::Stream;
use crate::http2::useless_frame_budget::{PER_CONTENT, PER_REQUEST};
use crate::request_head::Head;
use crate::response_errors::Refusal;

impl Connection {
    /// RFC 9113 section 6.2.
    pub(super) fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), Fault> {
        let stream_id = header.stream_id;
        // RFC 9113 section 5.1.1: clients use odd identifiers.
        if stream_id.is_multiple_of(2) {
            return Err(Fault::protocol(
                "HEADERS on a stream that is not the client's",
            ));
        }
        let mut fragment = match header.has(flag::PADDED) {
            true => unpadded(payload).ok_or(Fault::protocol("the padding is too long"))?,
            false => payload,
        };
        if header.has(flag::PRIORITY) {
            let (priority, rest) = fragment
                .split_at_checked(5)
                .ok_or(Fault::frame_size("HEADERS are too short"))?;
            // RFC 7540 section 5.3.1 makes this an error of the stream, which has not begun yet.
            if depends_on_itself(stream_id, priority) {
                return Err(Fault::protocol("a stream depends on itself"));
            }
            fragment = rest;
        }
        let ended = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.field_block(stream_id, fragment, ended, now);
        }
        self.block = Some(HeaderBlock::new(stream_id, ended, fragment));
        Ok(())
    }

    /// RFC 9113 section 6.10.
    pub(super) fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), Fault> {
        let Some(mut block) = self.block.take() else {
            return Ok(());
        };
        block.add(payload, self.limits.sections.bytes)?;
        match header.has(flag::END_HEADERS) {
            true => self.field_block(block.stream_id, &block.fragments, block.ended, now),
            false => {
                self.block = Some(block);
                Ok(())
            }
        }
    }

    /// Handles a complete field block. It is always decoded, because it may change the dynamic table (RFC 9113 section
    /// 4.3).
    fn field_block(
        &mut self,
        stream_id: u32,
        block: &[u8],
        ended: bool,
        now: Instant,
    ) -> Result<(), Fault> {
        let bounds = Bounds {
            bytes: self.limits.sections.bytes,
            fields: self.limits.sections.fields,
        };
        let section = self
            .decoder
            .decode(block, bounds)
            .map_err(|_| Fault::Connection(Code::CompressionError, "a field block is invalid"))?;
        if stream_id > self.last_stream {
            self.last_stream = stream_id;
            return self.request(stream_id, section, ended, now);
        }
        if self.streams.contains_key(&stream_id) {
            return self.trailers(stream_id, &section, ended, now);
        }
        if self.is_ignored(stream_id) {
            return self.useless_frames.take(1);
        }
        // RFC 9113 section 5.1: an identifier is used once.
        Err(Fault::Connection(
            Code::StreamClosed,
            "HEADERS on a closed stream",
        ))
    }

    fn request(
        &mut self,
        stream_id: u32,
        section: Section,
        ended: bool,
        now: Instant,
    ) -> Result<(), Fault> {
        if self.is_refusing(stream_id) {
            // The client repeats the request on another connection, because of GOAWAY (RFC 9113 section 6.8).
            return self.useless_frames.take(1);
        }
        if self.streams.len() >= self.limits.requests.open_requests {
            // RFC 9113 section 5.1.2. A client may open a few streams before it gets this side's SETTINGS.
            self.useless_frames.take(PER_REFUSED)?;
            return Err(Fault::Stream(stream_id, Code::RefusedStream));
        }
        let (content_length, too_large) = match section.is_too_large {
            true => {
                let refusal = Refusal::new(431, "the header section is too large");
                (None, Some(refusal))
            }
            false => (self.check_request(stream_id, &section, ended)?, None),
        };
        let (head, unfit) = Head::read(section.fields, &self.limits.requests.protocols);
        let unfit = match head.is_webtransport {
            true => Some(Refusal::new(501, "the protocol is not supported")),
            false => unfit,
        };
        let refusal = too_large.or(unfit);
        match self.exchanges.room(self.limits.requests.open_requests) {
            Room::Free => {}
            Room::FullOfAbandoned => {
                // Most running applications work for requests that the client has abandoned. Its new request counts as
                // abandoned too.
                self.count_abandoned(now)?;
                return Err(Fault::Stream(stream_id, Code::RefusedStream));
            }
            Room::Full => return Err(Fault::Stream(stream_id, Code::RefusedStream)),
        }
        self.useless_frames.allow(PER_REQUEST);
        let mut stream = Stream::new(ended, content_length, self.peer.initial_window);
        // The rest of a refused request is dropped.
        stream.is_reset_at_end = refusal.is_some() && !ended;
        self.streams.insert(stream_id, stream);
        // The content of a refused request is not reported.
        let ended = ended || refusal.is_some();
        let mut exchange = Exchange::new(ended);
        if let Some(priority) = self.first_priority(stream_id, &head) {
            exchange.priority.set_client(priority);
        }
        self.exchanges.open(u64::from(stream_id), exchange);
        self.events.push_back(Event::Request {
            stream_id: u64::from(stream_id),
            head,
            refusal,
            ended,
        });
        self.request_begun(now);
        Ok(())
    }

    /// Checks the fields of a request (RFC 9113 section 8.3.1). Returns the length of its content, if it has one.
    fn check_request(
        &self,
        stream_id: u32,
        section: &Section,
        ended: bool,
    ) -> Result<Option<u64>, Fault> {
        let malformed = Fault::Stream(stream_id, Code::ProtocolError);
        let checked = field_validation::validate_request_to(&section.fields, TargetCheck::Strict);
        let request = checked.map_err(|_| malformed)?;
        // RFC 8441 section 4: `:protocol` needs this side's setting.
        if request.has_protocol && self.limits.requests.protocols.is_empty() {
            return Err(malformed);
        }
        // The content of CONNECT belongs to the tunnel (RFC 9110 section 9.3.6).
        match request
            .content_length
            .filter(|_| request.method != Method::Connect)
        {
            Some(1..) if ended => Err(malformed),
            length => Ok(length),
        }
    }

    /// The priority of a new request (RFC 9218 sections 5 and 7): from a PRIORITY_UPDATE, or from its fields. `None` if
    /// the client has never sent a priority.
    fn first_priority(&mut self, stream_id: u32, head: &Head) -> Option<Priority> {
        let early = self.early_priorities.take(stream_id);
        let signal = Signal::of(&head.fields);
        if signal.is_some() || early.is_some() {
            self.exchanges.set_uses_priorities();
        }
        let field = || signal.unwrap_or_default().over(Priority::default());
        let is_used = self.exchanges.uses_priorities();
        is_used.then(|| early.unwrap_or_else(field))
    }

    pub(super) fn reprioritize(&mut self, stream_id: u32, priority: Priority) {
        self.exchanges.set_uses_priorities();
        let exchange = self.exchanges.get_mut(u64::from(stream_id));
        if let Some(exchange) = exchange {
            exchange.priority.set_client(priority);
            self.change_place(stream_id);
        }
    }

    /// Handles the second field block of a request, which ends it (RFC 9113 section 8.1).
    fn trailers(
        &mut self,
        stream_id: u32,
        section: &Section,
        ended: bool,
        now: Instant,
    ) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return Ok(());
        };
        if stream.is_received {
            return Err(Fault::Stream(stream_id, Code::StreamClosed));
        }
        let is_valid = ended
            && !section.is_too_large
            && field_validation::validate_trailers(&section.fields).is_ok()
            && stream.count_content(0, true);
        if !is_valid {
            return Err(Fault::Stream(stream_id, Code::ProtocolError));
        }
        self.useless_frames.allow(PER_CONTENT);
        self.content(stream_id, Bytes::new(), true, now);
        Ok(())
    }

    /// RFC 9113 section 6.1.
    pub(super) fn data(
        &mut self,
        header: FrameHeader,
        mut payload: Bytes,
        now: Instant,
    ) -> Result<(), Fault> {
        let stream_id = header.stream_id;
        let size = header.length as u32;
        if stream_id == 0 {
            return Err(Fault::protocol("DATA on the connection"));
        }
        if i64::from(size) > self.receive_window {
            return Err(Fault::Connection(
                Code::FlowControlError,
                "the connection's window is exceeded",
            ));
        }
        // Padding counts for flow control (RFC 9113 section 6.1).
        self.receive_window -= i64::from(size);
        if header.has(flag::PADDED) {
            let content = unpadded(&payload).ok_or(Fault::protocol("the padding is too long"))?;
            payload = payload.slice_ref(content);
        }
        let ended = header.has(flag::END_STREAM);
        // An empty frame, or one of padding, is useful only as the last one (CVE-2019-9518).
        match payload.is_empty() && !ended {
            true => self.useless_frames.take(1)?,
            false => self.useless_frames.allow(PER_CONTENT),
        }
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            self.owed_credit += size;
            self.check_not_idle(stream_id)?;
            // Honest clients send content until they get the reset, which has cost a useless frame if they caused it.
            let is_late = !payload.is_empty() && self.reset_streams.take_late(stream_id, size);
            let cost = if is_late { 0 } else { 1 };
            self.useless_frames.take(cost + PER_CONTENT)?;
            return match self.is_ignored(stream_id) {
                true => Ok(()),
                false => Err(Fault::Stream(stream_id, Code::StreamClosed)),
            };
        };
        if stream.is_received {
            self.owed_credit += size;
            return Err(Fault::Stream(stream_id, Code::StreamClosed));
        }
        let owed = stream.credit.receive(size).map_err(|code| {
            self.owed_credit += size;
            Fault::Stream(stream_id, code)
        })?;
        self.owed_credit += owed;
        if !stream.count_content(payload.len(), ended) {
            return Err(Fault::Stream(stream_id, Code::ProtocolError));
        }
        if !ended && let Some(increment) = stream.credit.take_increment() {
            self.put(|out| crate::http2::frame_codec::put_window_update(out, stream_id, increment));
        }
        self.content(stream_id, payload, ended, now);
        Ok(())
    }

    /// Reports content, unless the response is complete.
    fn content(&mut self, stream_id: u32, content: Bytes, ended: bool, now: Instant) {
        if ended {
            self.received(stream_id);
        }
        let id = u64::from(stream_id);
        let Some(exchange) = self.exchanges.get_mut(id) else {
            return;
        };
        if exchange.answered || exchange.ended {
            return;
        }
        exchange.received(content.len(), ended, now);
        if content.is_empty() && !ended {
            return;
        }
        let last = self.events.back_mut();
        if let Some(Event::Body {
            stream_id: last_id,
            pieces,
            ended: last_ended,
        }) = last
            && *last_id == id
        {
            if !content.is_empty() {
                pieces.push(content);
            }
            *last_ended |= ended;
            return;
        }
        let pieces = match content.is_empty() {
            true => Vec::new(),
            false => vec![content],
        };
        self.events.push_back(Event::Body {
            stream_id: id,
            pieces,
            ended,
        });
    }

    /// Records that the client has ended its direction of a stream.
    fn received(&mut self, stream_id: u32) {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        stream.is_received = true;
        if stream.is_sent() {
            self.remove(stream_id);
        }
    }

    /// RFC 9113 section 6.4.
    pub(super) fn rst_stream(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), Fault> {
        let stream_id = header.stream_id;
        if payload.len() != 4 {
            return Err(Fault::frame_size("a RST_STREAM has 4 bytes"));
        }
        self.check_not_idle(stream_id)?;
        if !self.streams.contains_key(&stream_id) {
            return self.useless_frames.take(1);
        }
        let was_early = self.exchanges.is_unanswered(u64::from(stream_id));
        self.remove(stream_id);
        self.abort(stream_id);
        self.start_idle_timer(now);
        match was_early {
            true => self.count_abandoned(now),
            false => Ok(()),
        }
    }

    /// Counts a request that the client has abandoned before it was answered, or has made this side reset
    /// (CVE-2023-44487, "Rapid Reset"; CVE-2025-8671, "MadeYouReset").
    pub(super) fn count_abandoned(&mut self, now: Instant) -> Result<(), Fault> {
        match self.rapid_resets.count(now) {
            true => Ok(()),
            false => Err(Fault::abuse("too many requests were abandoned")),
        }
    }

    /// Reports that the response to a request is no longer needed.
    pub(super) fn abort(&mut self, stream_id: u32) {
        let stream_id = u64::from(stream_id);
        if self.exchanges.abandon(stream_id) {
            self.events.push_back(Event::Aborted { stream_id });
        }
    }

    /// Removes a stream, whose both directions have ended.
    pub(super) fn remove(&mut self, stream_id: u32) {
        let Some(stream) = self.streams.remove(&stream_id) else {
            return;
        };
        self.owed_credit += stream.credit.withheld();
        self.queued_bytes -= stream.queue.bytes();
        if stream.is_scheduled {
            self.scheduler.remove(stream_id);
        }
        self.slowly_read_responses.ended(u64::from(stream_id));
        self.close_if_drained();
    }
}

/// A request above the limit of open streams counts as this many useless frames.
const PER_REFUSED: usize = 4;
