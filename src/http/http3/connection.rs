//! A server's HTTP/3 on one QUIC connection.
//!
//! | file | content |
//! | --- | --- |
//! | `arriving_requests` | arriving requests: header sections, content, and resets |
//! | `response_commands` | the host's commands that send a response |
//! | `http_datagrams` | HTTP datagrams and capsules |
//! | `early_data` | requests before the handshake is complete |
//! | `priorities` | the order of responses |
//! | `webtransport_events` | WebTransport beside requests: the events of sessions |
//! | `timeouts` | time-outs, and freeing the capacity of an idle connection |
//!
//! This file dispatches events. These files have the methods of [`Connection`]; the parts of its state are types in
//! the files beside this one. Not here: frames and fields (`h3`), streams (`quic`), and the host's timer.

use std::time::Instant;

use bytes::Bytes;
use uringcore_h3::{self as h3, HeadersKind, Role, stream_id};
use uringcore_limits::memory_budget::Charge;
use uringcore_quic as quic;

use super::event::Event;
use super::event_queue::EventQueue;
use super::header_deadlines::HeaderDeadlines;
use super::webtransport_sessions::WebTransportSessions;
use crate::concurrent_requests::Limits;
use crate::concurrent_requests::exchanges::Exchanges;
use crate::concurrent_requests::idle_timer::IdleTimer;
use crate::concurrent_requests::rapid_reset_limit::RapidResetLimit;
use crate::concurrent_requests::slowly_read_responses::SlowlyReadResponses;
use crate::h3_driver::H3Driver;
use crate::response_errors::Refusal;

mod arriving_requests;
mod early_data;
mod http_datagrams;
mod priorities;
pub(super) mod response_commands;
mod timeouts;
mod webtransport_events;

/// The HTTP/3 of a server's connection. All methods get the QUIC connection below it.
///
/// A host calls [`handle`](Self::handle) for each QUIC event about streams, and then [`poll_event`](Self::poll_event)
/// until it returns `None`; commands at any time; and [`tick`](Self::tick) about once a second, then `poll_event`
/// again. When a method returns, its output is in QUIC's queues.
///
/// Bounds: header sections are bounded by the `h3` connection. Content is passed on as it arrives, and the host pauses
/// its stream if it cannot take more. Responses wait in QUIC's queues; while [`is_held_up`](Self::is_held_up) is true
/// the host must send no more.
pub struct Connection {
    h3: H3Driver,
    limits: Limits,
    exchanges: Exchanges,
    slowly_read_responses: SlowlyReadResponses,
    header_deadlines: HeaderDeadlines,
    rapid_resets: RapidResetLimit,
    /// The WebTransport sessions; `None` if WebTransport is disabled.
    webtransport_sessions: Option<Box<WebTransportSessions>>,
    /// The number of requests so far.
    requests: u64,
    idle_timer: IdleTimer,
    /// The bytes of incomplete header sections, and of requests that wait for the handshake, in the memory budget.
    charge: Charge,
    events: EventQueue,
}

impl Connection {
    /// Makes the HTTP/3 of a new QUIC connection whose ALPN protocol is `h3`. SETTINGS are sent at once.
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
            slowly_read_responses: SlowlyReadResponses::default(),
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
                if stream_id::is_unidirectional(stream_id) {
                    self.h3.read_datagram_support(quic);
                } else {
                    self.rapid_resets.arrived(stream_id);
                }
                self.h3.handle(quic, event, now);
                // A stream without an exchange whose header section is complete has ended already: only data of
                // incomplete header sections has a deadline.
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
                self.slowly_read_responses.ended(stream_id);
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
                self.slowly_read_responses.ended(stream_id);
                self.start_idle_timer(now);
            }
            Quic::Datagram { .. } => self.h3.handle(quic, event, now),
            // A separate event has reported the reset.
            _ => {}
        }
    }

    /// Converts the events of `h3` to the host's events.
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
                    // The request was malformed, so `h3` has ended its stream with the error code of the RFC.
                    self.header_deadlines.ended(stream_id);
                    self.abort(stream_id);
                    self.start_idle_timer(now);
                }
                h3::Event::PriorityUpdate {
                    stream_id,
                    priority,
                } => self.reprioritize(quic, stream_id, priority),
                // Resets by the client are reported by QUIC's events. The remaining events of `h3` do not concern
                // requests.
                _ => {}
            }
        }
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// The number of requests that the host has not finished.
    pub fn open_requests(&self) -> usize {
        self.exchanges.len()
    }

    /// True if no request is open or incomplete, and all responses were acknowledged.
    pub fn is_drained(&self) -> bool {
        let has_sessions = self
            .webtransport_sessions
            .as_ref()
            .is_some_and(|it| !it.is_drained());
        let has_requests = !self.exchanges.is_empty() || !self.header_deadlines.is_empty();
        !has_sessions && !has_requests && self.slowly_read_responses.is_empty()
    }

    /// True if the connection was closed because its client misused the protocol, for example abandoned too many
    /// requests.
    pub fn is_closed_for_abuse(&self) -> bool {
        self.h3.is_closed_for_abuse()
    }

    /// True if the request is open and its response is not complete.
    pub fn is_waited_for(&self, stream_id: u64) -> bool {
        !self.h3.is_closed_for_abuse() && self.exchanges.is_unanswered(stream_id)
    }

    fn note_read(&mut self, stream_id: u64, now: Instant) {
        let rank = || self.exchanges.rank(stream_id);
        self.slowly_read_responses.note_read(stream_id, rank, now);
    }

    fn has_room(&mut self, stream_id: u64) {
        if self.exchanges.stop_waiting(stream_id) {
            self.events.push(Event::Writable { stream_id });
        }
    }

    /// Starts the idle timer, if the last open request or session has just ended.
    fn start_idle_timer(&mut self, now: Instant) {
        if self.is_drained() {
            self.idle_timer.begin(now);
            self.events.push(Event::Drained);
        }
    }
}

/// While the queues of a connection hold more than this many bytes, all its responses wait; they continue below
/// `CONNECTION_QUEUE_LOW`. A stream whose own queue is nearly empty is exempt, so that streams that the client does
/// read are not blocked by those that it does not. So one client can make a server hold this many bytes, and one part
/// of a body for each of its streams.
const CONNECTION_QUEUE_HIGH: usize = 4 << 20;
const CONNECTION_QUEUE_LOW: usize = 3 << 20;
