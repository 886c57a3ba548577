//! Arriving requests: their header sections and content, and requests that the client resets.

use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::{Code, Field, stream_id};
use uringcore_quic as quic;

use super::Connection;
use crate::concurrent_requests::exchange::Exchange;
use crate::concurrent_requests::exchanges::Room;
use crate::concurrent_requests::http_datagram::Datagrams;
use crate::http3::event::Event;
use crate::request_head::Head;
use crate::response_errors::Refusal;

impl Connection {
    pub(super) fn request(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: Vec<Field>,
        refusal: Option<Refusal>,
        ended: bool,
        now: Instant,
    ) {
        self.header_deadlines.ended(stream_id);
        if self.h3.is_closed_for_abuse() {
            // The connection was closed because of an earlier event.
            return;
        }
        if quic.is_short_of_memory() {
            self.h3
                .end_stream(quic, stream_id, Code::H3_REQUEST_REJECTED, now);
            return;
        }
        let (mut head, unfit) = Head::read(fields, &self.limits.protocols);
        let refusal = refusal
            .or(unfit)
            .or_else(|| self.check_session_request(&head, ended));
        if head.is_webtransport && refusal.is_none() {
            self.add_session_request(quic, stream_id, head, now);
            return;
        }
        match self.exchanges.room(self.limits.open_requests) {
            Room::Free => {}
            // Most running applications work on requests that the client has abandoned. The client's new request counts
            // as abandoned, too, so that the client soon reaches the limit of early resets.
            Room::FullOfAbandoned if !self.count_abandoned(quic, now) => return,
            Room::Full | Room::FullOfAbandoned => {
                let code = Code::H3_REQUEST_REJECTED;
                return self.h3.end_stream(quic, stream_id, code, now);
            }
        }
        let exchange = Exchange {
            datagrams: head.datagrams(),
            ..Exchange::new(ended)
        };
        self.exchanges.open(stream_id, exchange);
        let refusal = match refusal {
            None => self.check_early_request(quic, stream_id, &mut head, ended),
            refusal => refusal,
        };
        self.prioritize(quic, stream_id, &head.fields);
        let request = Event::Request {
            stream_id,
            head,
            refusal,
            ended,
        };
        self.events.push_of(stream_id, request);
        self.count_request();
    }

    /// Counts a request of either kind, for a response or for a session, against the limit of the connection.
    pub(super) fn count_request(&mut self) {
        self.requests += 1;
        if self.limits.requests == Some(self.requests) {
            self.events.push(Event::UsedUp);
        }
    }

    pub(super) fn content(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: Bytes,
        ended: bool,
        now: Instant,
    ) {
        if data.is_empty() && !ended {
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(stream_id) else {
            return;
        };
        if matches!(exchange.datagrams, Datagrams::Capsules(_)) {
            return self.capsules(quic, stream_id, data, ended, now);
        }
        exchange.received(data.len(), ended, now);
        self.events.push_content(stream_id, data, ended);
    }

    /// The client has reset its direction of a stream, or has sent STOP_SENDING for this side's direction.
    pub(super) fn reset_or_stopped(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        unwanted: bool,
        now: Instant,
    ) {
        if stream_id::is_unidirectional(stream_id) {
            return;
        }
        let was_unfinished = self.header_deadlines.ended(stream_id);
        let exchange = self.exchanges.get(stream_id);
        let is_early = match exchange {
            Some(exchange) => !exchange.answered,
            None => was_unfinished || self.rapid_resets.is_new(stream_id),
        };
        // A complete request is still answered if the client resets its direction afterwards. A request whose header
        // section is incomplete is dropped on STOP_SENDING, because no response could be sent.
        let is_over = match exchange {
            Some(exchange) => !exchange.answered && (unwanted || !exchange.ended),
            None => was_unfinished && unwanted,
        };
        self.rapid_resets.arrived(stream_id);
        if is_over {
            let code = Code::H3_REQUEST_CANCELLED;
            self.h3.end_stream(quic, stream_id, code, now);
            self.abort(stream_id);
        }
        // The exchange is removed before the connection is closed. `h3` sends nothing more on the stream, so the
        // host's sends for an open exchange would fail.
        if is_early && !self.count_abandoned(quic, now) {
            return;
        }
        self.start_idle_timer(now);
    }

    /// Counts a request that the client abandoned before it was answered. Returns false if there were too many, and the
    /// connection was closed for that.
    pub(super) fn count_abandoned(&mut self, quic: &mut quic::Connection, now: Instant) -> bool {
        let may = self.rapid_resets.count(now);
        if !may {
            let reason = b"too many requests were abandoned before they were answered";
            self.h3.close_for_abuse(quic, reason, now);
        }
        may
    }

    pub(super) fn abort(&mut self, stream_id: u64) {
        if self.exchanges.abandon(stream_id) {
            self.events.push_of(stream_id, Event::Aborted { stream_id });
        }
    }
}
