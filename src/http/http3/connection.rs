//! One QUIC connection with HTTP/3 on it.
//!
//! | file | content |
//! | --- | --- |
//! | `requests` | requests, their content, and their abandonment |
//! | `responses` | the host's commands |
//! | `datagrams` | HTTP datagrams and capsules |
//! | `early_data` | requests before the handshake is complete |
//! | `priorities` | the order of responses |
//! | `webtransport_events` | WebTransport beside requests: the events of sessions |
//! | `timeouts` | time-outs, and the rest of an idle connection |
//!
//! This file dispatches events. These files hold the methods of one type; its parts, which own their state, are beside
//! it. Not here: frames and fields (`h3`), streams (`quic`), and the host's timer.

use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::{self as h3, HeadersKind, Role, frame};
use uringcore_limits::memory_budget::Charge;
use uringcore_quic as quic;

use super::rapid_reset_limit::RapidResetLimit;
use super::event::Event;
use super::event_queue::EventQueue;
use super::exchanges::Exchanges;
use super::request_head::Refusal;
use super::header_deadlines::HeaderDeadlines;
use super::limits::Limits;
use super::idle_timer::IdleTimer;
use super::webtransport_sessions::WebTransportSessions;
use super::stalled_responses::StalledResponses;
use crate::h3_driver::H3Driver;

mod datagrams;
mod early_data;
mod priorities;
mod requests;
pub(super) mod responses;
mod webtransport_events;
mod timeouts;

/// The HTTP/3 of a server's connection. Its methods get the QUIC connection below it, always the same one.
///
/// The order of a turn: [`handle`](Self::handle) for each event about streams, then
/// [`poll_event`](Self::poll_event) until `None`; commands at any time; [`tick`](Self::tick) about once a second,
/// and `poll_event` again. Output has been passed to QUIC when a method returns.
///
/// Bounds: for a request, the HTTP/3 connection's bounds for header sections; content is passed on as it arrives,
/// and the host pauses the stream. For responses, QUIC's queues: [`is_held_up`](Self::is_held_up) shows when the
/// host has to wait.
pub struct Connection {
    h3: H3Driver,
    limits: Limits,
    exchanges: Exchanges,
    stalled_responses: StalledResponses,
    header_deadlines: HeaderDeadlines,
    rapid_resets: RapidResetLimit,
    /// WebTransport, if it is enabled.
    webtransport_sessions: Option<Box<WebTransportSessions>>,
    /// Requests so far.
    requests: u64,
    idle_timer: IdleTimer,
    /// The charge for incomplete header sections, and requests that wait for the handshake.
    charge: Charge,
    events: EventQueue,
}

impl Connection {
    /// Attaches HTTP/3 to a connection with that application protocol. Our SETTINGS are sent at once.
    pub fn new(
        quic: &mut quic::Connection,
        settings: h3::Settings,
        limits: Limits,
        now: Instant,
    ) -> Self {
        quic.set_connection_watermarks(CONNECTION_QUEUE_HIGH, CONNECTION_QUEUE_LOW);
        let mut h3 = H3Driver::new(quic, Role::Server, settings, now);
        h3.set_answers_large_requests(true);
        Self {
            h3,
            exchanges: Exchanges::default(),
            stalled_responses: StalledResponses::default(),
            header_deadlines: HeaderDeadlines::default(),
            rapid_resets: RapidResetLimit::new(&limits),
            webtransport_sessions: None,
            requests: 0,
            idle_timer: IdleTimer::new(now),
            charge: Charge::new(quic.queued()),
            events: EventQueue::default(),
            limits,
        }
    }

    pub fn handle(&mut self, quic: &mut quic::Connection, event: quic::Event, now: Instant) {
        if self.h3.is_closed_for_abuse() {
            return;
        }
        self.release_held_requests(quic, now);
        self.idle_timer.data_arrived();
        if let Some(event) = self.route(quic, event, now) {
            self.handle_http(quic, event, now);
        }
        self.take_h3_events(quic, now);
        if let Some(event) = self.take_second_event() {
            self.handle_http(quic, event, now);
            self.take_h3_events(quic, now);
        }
        self.update_sessions(quic, now);
        self.charge
            .set(self.h3.unusable_bytes() + self.events.held_bytes());
    }

    fn handle_http(&mut self, quic: &mut quic::Connection, event: quic::Event, now: Instant) {
        use quic::Event as Quic;
        match event {
            Quic::StreamData { stream_id, .. } => {
                if frame::is_unidirectional(stream_id) {
                    self.h3.read_datagram_support(quic);
                } else {
                    self.rapid_resets.arrived(stream_id);
                }
                self.h3.handle(quic, event, now);
                // Other data on a stream without an exchange belongs to one that has ended.
                if self.h3.awaits_headers(stream_id) {
                    self.header_deadlines.began(stream_id, now);
                }
            }
            Quic::StreamReset { stream_id, .. } => {
                self.h3.handle(quic, event, now);
                self.reset_or_stopped(quic, stream_id, false, now);
            }
            Quic::StopSending { stream_id, .. } => {
                self.h3.handle(quic, event, now);
                self.stalled_responses.ended(stream_id);
                self.reset_or_stopped(quic, stream_id, true, now);
            }
            Quic::StreamWritable { stream_id } => {
                self.note_read(stream_id, now);
                self.has_room(stream_id);
            }
            Quic::ConnectionWritable { .. } => {
                for stream_id in self.exchanges.waiting_for_connection() {
                    self.has_room(stream_id);
                }
            }
            Quic::StreamFinished { stream_id } => {
                self.note_read(stream_id, now);
                self.stalled_responses.ended(stream_id);
                self.start_idle_timer(now);
            }
            Quic::Datagram { .. } => self.h3.handle(quic, event, now),
            // An event of its own has reported the reset.
            _ => {}
        }
    }

    /// Converts HTTP/3's events into the host's.
    fn take_h3_events(&mut self, quic: &mut quic::Connection, now: Instant) {
        while let Some(event) = self.h3.poll_event() {
            let Some(event) = self.route_h3(quic, event, now) else {
                continue;
            };
            match event {
                h3::Event::Headers {
                    stream_id,
                    fields,
                    kind: HeadersKind::Request,
                    fin,
                } => self.request(quic, stream_id, fields, None, fin, now),
                h3::Event::HeadersTooLarge { stream_id, fields } => {
                    let refusal = Refusal::new(431, "the header section is too large");
                    self.request(quic, stream_id, fields, Some(refusal), true, now);
                }
                h3::Event::Headers { stream_id, fin, .. } => {
                    self.content(quic, stream_id, Bytes::new(), fin, now);
                }
                h3::Event::Data {
                    stream_id,
                    data,
                    fin,
                } => self.content(quic, stream_id, data, fin, now),
                h3::Event::Datagram { stream_id, data } => {
                    self.datagram(quic, stream_id, data, now);
                }
                h3::Event::Reset {
                    stream_id,
                    local: true,
                    ..
                } => {
                    // A malformed message: HTTP/3 has ended the stream with the RFC's code.
                    self.header_deadlines.ended(stream_id);
                    self.abort(stream_id);
                    self.start_idle_timer(now);
                }
                h3::Event::PriorityUpdate {
                    stream_id,
                    priority,
                } => self.reprioritize(quic, stream_id, priority),
                // Other resets are QUIC's events; the remaining events do not concern requests.
                _ => {}
            }
        }
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Requests that the host has not finished.
    pub fn open_requests(&self) -> usize {
        self.exchanges.len()
    }

    /// True if every response has been acknowledged, none is being made, and no request is incomplete.
    pub fn is_drained(&self) -> bool {
        let has_sessions = self.webtransport_sessions.as_ref().is_some_and(|it| !it.is_drained());
        let has_requests = !self.exchanges.is_empty() || !self.header_deadlines.is_empty();
        !has_sessions && !has_requests && self.stalled_responses.is_empty()
    }

    /// True if the connection was closed because its client abandoned too many requests.
    pub fn is_closed_for_abuse(&self) -> bool {
        self.h3.is_closed_for_abuse()
    }

    /// True if a part of a request is still unanswered.
    pub fn is_waited_for(&self, stream_id: u64) -> bool {
        !self.h3.is_closed_for_abuse() && self.exchanges.is_unanswered(stream_id)
    }

    fn note_read(&mut self, stream_id: u64, now: Instant) {
        let rank = || self.exchanges.rank(stream_id);
        self.stalled_responses.note_read(stream_id, rank, now);
    }

    fn has_room(&mut self, stream_id: u64) {
        if self.exchanges.stop_waiting(stream_id) {
            self.events.push(Event::Writable { stream_id });
        }
    }

    /// Something has ended, perhaps the last of all.
    fn start_idle_timer(&mut self, now: Instant) {
        if self.is_drained() {
            self.idle_timer.begin(now);
            self.events.push(Event::Drained);
        }
    }
}

/// The limit of data in the queues of one connection above which each response waits, and the limit below which
/// they continue. Exception: a stream that has almost nothing queued itself, so that streams that the client does
/// read are not blocked by those that it does not. So one client can make us hold at most this, and one part of a
/// body for each of its streams.
const CONNECTION_QUEUE_HIGH: usize = 4 << 20;
const CONNECTION_QUEUE_LOW: usize = 3 << 20;
