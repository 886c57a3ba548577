//! One QUIC connection with HTTP/3 on it.
//!
//! This file dispatches events, and enforces the limits of a client. Not here: the commands of a response
//! (`responses`), frames and fields (`h3`), streams (`quic`), and the host's timer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use uringcore_h3::{self as h3, Code, Field, HeadersKind, Role, frame};
use uringcore_limits::budget::Charge;
use uringcore_limits::token_bucket::{Rate, TokenBucket};
use uringcore_quic::{self as quic, Chunks};

use super::datagram::Datagrams;
use super::early::Waiting;
use super::event::Event;
use super::exchange::Exchange;
use super::head::{Head, Refusal};
use super::header_deadlines::HeaderDeadlines;
use super::limits::Limits;
use super::sessions::Attached;
use super::stalls::{Taken, Writing};
use crate::h3_driver::Outcome;

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
    pub(super) h3: h3::Connection,
    pub(super) outcome: Outcome,
    pub(super) limits: Limits,
    pub(super) exchanges: FxHashMap<u64, Exchange>,
    /// Requests that have not been answered.
    pub(super) unanswered: usize,
    /// Requests that their client has abandoned, and whose applications are still running.
    pub(super) abandoned: usize,
    /// Streams that the host has paused.
    pub(super) paused: FxHashSet<u64>,
    /// Streams whose whole response is in QUIC's queues and is not wholly acknowledged. Closing the connection
    /// earlier would drop the queued data.
    pub(super) unacknowledged: FxHashMap<u64, Writing>,
    pub(super) taken: Taken,
    /// Requests that wait for the handshake.
    pub(super) waiting: Waiting,
    /// The place of the next response that waits for room in the connection as a whole.
    pub(super) next_place: u64,
    pub(super) unfinished: HeaderDeadlines,
    pub(super) early_resets: TokenBucket,
    /// WebTransport, if it is enabled.
    pub(super) attached: Option<Box<Attached>>,
    /// Requests so far.
    pub(super) requests: u64,
    /// One above the highest request stream with any input.
    pub(super) heard_below: u64,
    /// Since when no request is open.
    pub(super) quiet_since: Instant,
    pub(super) knows_datagrams: bool,
    /// The client has sent a priority signal.
    pub(super) knows_priorities: bool,
    /// Nothing has arrived since unused capacity was freed.
    is_resting: bool,
    /// The charge for incomplete header sections, and requests that wait for the handshake.
    charge: Charge,
    pub(super) events: VecDeque<Event>,
}

impl Connection {
    /// Attaches HTTP/3 to a connection with that application protocol. Our SETTINGS are sent at once.
    pub fn new(
        quic: &mut quic::Connection,
        settings: h3::Settings,
        limits: Limits,
        now: Instant,
    ) -> Self {
        let first = quic.next_stream_id(true);
        // RFC 9000 section 2.1: streams of one kind are four apart.
        let own = [first, first + 4, first + 8];
        quic.set_connection_watermarks(CONNECTION_QUEUE_HIGH, CONNECTION_QUEUE_LOW);
        let mut outcome = Outcome::default();
        let out = &mut outcome.sink(quic, now);
        let mut h3 = h3::Connection::new(Role::Server, settings, own, out);
        h3.set_answers_large_requests(true);
        let early_resets = TokenBucket::new(Rate {
            per_second: limits.early_resets_per_second,
            burst: limits.early_resets,
        });
        Self {
            h3,
            outcome,
            limits,
            exchanges: FxHashMap::default(),
            unanswered: 0,
            abandoned: 0,
            paused: FxHashSet::default(),
            unacknowledged: FxHashMap::default(),
            taken: Taken::default(),
            waiting: Waiting::default(),
            next_place: 0,
            unfinished: HeaderDeadlines::default(),
            early_resets,
            attached: None,
            requests: 0,
            heard_below: 0,
            quiet_since: now,
            knows_datagrams: false,
            knows_priorities: false,
            is_resting: false,
            charge: Charge::new(quic.queued()),
            events: VecDeque::new(),
        }
    }

    pub fn handle(&mut self, quic: &mut quic::Connection, event: quic::Event, now: Instant) {
        if self.outcome.is_abused {
            return;
        }
        self.settle_waiting(quic, now);
        self.is_resting = false;
        if let Some(event) = self.route(quic, event, now) {
            self.handle_http(quic, event, now);
        }
        self.take_over(quic, now);
        if let Some(event) = self.take_behind() {
            self.handle_http(quic, event, now);
            self.take_over(quic, now);
        }
        self.settle_sessions(quic, now);
        self.charge
            .set(self.h3.unusable_bytes() + self.waiting.bytes());
    }

    fn handle_http(&mut self, quic: &mut quic::Connection, event: quic::Event, now: Instant) {
        use quic::Event as Quic;
        match event {
            Quic::StreamData {
                stream_id,
                data,
                fin,
            } => self.received(quic, stream_id, data, fin, now),
            Quic::StreamReset {
                stream_id,
                error_code,
            } => {
                let out = &mut self.outcome.sink(quic, now);
                self.h3.handle_stream_reset(out, stream_id, error_code);
                self.given_up(quic, stream_id, false, now);
            }
            Quic::StopSending {
                stream_id,
                error_code,
                ..
            } => {
                let out = &mut self.outcome.sink(quic, now);
                self.h3.handle_stop_sending(out, stream_id, error_code);
                self.unacknowledged.remove(&stream_id);
                self.given_up(quic, stream_id, true, now);
            }
            Quic::StreamWritable { stream_id } => {
                self.note_taken(stream_id, now);
                self.has_room(stream_id);
            }
            Quic::ConnectionWritable { .. } => self.connection_has_room(),
            Quic::StreamFinished { stream_id } => {
                self.note_taken(stream_id, now);
                self.unacknowledged.remove(&stream_id);
                self.calmed(now);
            }
            Quic::Datagram { data, .. } => {
                let out = &mut self.outcome.sink(quic, now);
                self.h3.handle_datagram(out, data);
            }
            // An event of its own has reported the reset.
            _ => {}
        }
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Requests that the host has not finished.
    pub fn open_requests(&self) -> usize {
        self.exchanges.len()
    }

    /// True if every response has been acknowledged, none is being made, and no request is incomplete.
    pub fn is_drained(&self) -> bool {
        let has_sessions = self.attached.as_ref().is_some_and(|it| !it.is_drained());
        let has_requests = !self.exchanges.is_empty() || !self.unfinished.is_empty();
        !has_sessions && !has_requests && self.unacknowledged.is_empty()
    }

    /// True if the connection was closed because its client abandoned too many requests.
    pub fn is_abused(&self) -> bool {
        self.outcome.is_abused
    }

    /// True if a part of a request is still unanswered.
    pub fn is_waited_for(&self, stream_id: u64) -> bool {
        let exchange = self.exchanges.get(&stream_id);
        !self.outcome.is_abused && exchange.is_some_and(|exchange| !exchange.answered)
    }

    /// Ends both directions of a stream that are open.
    pub(super) fn end_stream(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        code: Code,
        now: Instant,
    ) {
        let out = &mut self.outcome.sink(quic, now);
        self.h3.cancel_request(out, stream_id, code.0);
    }

    // Input --------------------------------------------------------------------------------------

    fn received(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        data: Chunks,
        fin: bool,
        now: Instant,
    ) {
        if frame::is_unidirectional(stream_id) {
            self.learn_peers_datagrams(quic);
        } else {
            self.heard_below = self.heard_below.max(stream_id + 1);
        }
        let mut pieces = data.into_pieces();
        let last = pieces.pop();
        let out = &mut self.outcome.sink(quic, now);
        for piece in pieces {
            self.h3.handle_stream_data(out, stream_id, piece, false);
        }
        self.h3
            .handle_stream_data(out, stream_id, last.unwrap_or_default(), fin);
        // Other data on a stream without an exchange belongs to one that has ended.
        if self.h3.awaits_headers(stream_id) {
            self.unfinished.begun(stream_id, now);
        }
    }

    /// Called before SETTINGS are read: sets if the peer accepts DATAGRAM frames (RFC 9297 section 2.1.1).
    pub(super) fn learn_peers_datagrams(&mut self, quic: &mut quic::Connection) {
        if !std::mem::replace(&mut self.knows_datagrams, true) {
            self.h3
                .set_peer_quic_datagrams(quic.peer_max_datagram_size().is_some());
        }
    }

    /// Converts HTTP/3's events into the host's.
    fn take_over(&mut self, quic: &mut quic::Connection, now: Instant) {
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
                    self.unfinished.ended(stream_id);
                    self.abort(stream_id);
                    self.calmed(now);
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

    fn request(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: Vec<Field>,
        refusal: Option<Refusal>,
        ended: bool,
        now: Instant,
    ) {
        self.unfinished.ended(stream_id);
        if self.outcome.is_abused {
            // The connection was closed for an earlier event.
            return;
        }
        if quic.is_short_of_memory() {
            self.end_stream(quic, stream_id, Code::H3_REQUEST_REJECTED, now);
            return;
        }
        let (mut head, unfit) = Head::read(fields, &self.limits.protocols);
        let refusal = refusal
            .or(unfit)
            .or_else(|| self.judge_session(&head, ended));
        if head.is_webtransport && refusal.is_none() {
            self.session_asked(quic, stream_id, head, now);
            return;
        }
        // Applications may continue to run after their response was sent, and those whose client has gone cannot be
        // stopped.
        let at_work_max = self.limits.open_requests.saturating_mul(AT_WORK_FACTOR);
        let is_full = self.exchanges.len() >= at_work_max;
        if self.unanswered >= self.limits.open_requests || is_full {
            // If the client has abandoned most of them, each further request counts as abandoned, too.
            if is_full && self.abandoned > at_work_max / 2 && !self.may_give_up(quic, now) {
                return;
            }
            self.end_stream(quic, stream_id, Code::H3_REQUEST_REJECTED, now);
            return;
        }
        let exchange = Exchange {
            datagrams: head.datagrams(),
            ..Exchange::new(ended)
        };
        self.exchanges.insert(stream_id, exchange);
        self.unanswered += 1;
        let refusal = match refusal {
            None => self.judge_early(quic, stream_id, &mut head, ended),
            refusal => refusal,
        };
        self.prioritize(quic, stream_id, &head.fields);
        let request = Event::Request {
            stream_id,
            head,
            refusal,
            ended,
        };
        self.tell(stream_id, request);
        self.count_request();
    }

    /// Counts another request, for a response or for a session.
    pub(super) fn count_request(&mut self) {
        self.requests += 1;
        if self.limits.requests == Some(self.requests) {
            self.events.push_back(Event::UsedUp);
        }
    }

    fn content(
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
        let Some(exchange) = self.exchanges.get_mut(&stream_id) else {
            return;
        };
        if matches!(exchange.datagrams, Datagrams::Capsules(_)) {
            return self.capsules(quic, stream_id, data, ended, now);
        }
        exchange.received(data.len(), ended, now);
        let queue = self.queue_of(stream_id, data.len());
        match queue.back_mut() {
            Some(Event::Body {
                stream_id: last,
                pieces,
                ended: has_ended,
            }) if *last == stream_id => {
                pieces.extend((!data.is_empty()).then_some(data));
                *has_ended = ended;
            }
            _ => queue.push_back(Event::Body {
                stream_id,
                pieces: Vec::from_iter((!data.is_empty()).then_some(data)),
                ended,
            }),
        }
    }

    /// The client has reset its side of a stream, or stopped ours.
    fn given_up(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        unwanted: bool,
        now: Instant,
    ) {
        if frame::is_unidirectional(stream_id) {
            return;
        }
        let was_unfinished = self.unfinished.ended(stream_id);
        let exchange = self.exchanges.get(&stream_id);
        let is_early = match exchange {
            Some(exchange) => !exchange.answered,
            None => was_unfinished || stream_id >= self.heard_below,
        };
        // A complete request can still be answered if the client resets it afterwards. A request with an incomplete
        // header section is dropped when its response is stopped: none could be sent.
        let is_over = match exchange {
            Some(exchange) => !exchange.answered && (unwanted || !exchange.ended),
            None => was_unfinished && unwanted,
        };
        self.heard_below = self.heard_below.max(stream_id + 1);
        if is_over {
            self.end_stream(quic, stream_id, Code::H3_REQUEST_CANCELLED, now);
            self.abort(stream_id);
        }
        // The exchange has ended by now. `h3` sends nothing more on the stream, so if an exchange stayed open while
        // the connection is closed here, the host's sends would fail.
        if is_early && !self.may_give_up(quic, now) {
            return;
        }
        self.calmed(now);
    }

    /// Counts a request that was abandoned before it was answered. False: the connection is closed for it.
    pub(super) fn may_give_up(&mut self, quic: &mut quic::Connection, now: Instant) -> bool {
        let may = self.early_resets.try_take(now);
        if !may {
            let reason = b"too many requests were abandoned before they were answered";
            quic.close(now, Code::H3_EXCESSIVE_LOAD.0, None, reason);
            self.outcome.is_abused = true;
        }
        may
    }

    pub(super) fn abort(&mut self, stream_id: u64) {
        if self.answered(stream_id)
            && let Some(exchange) = self.exchanges.get_mut(&stream_id)
        {
            exchange.reading = None;
            exchange.writing = None;
            exchange.is_abandoned = true;
            self.abandoned += 1;
            self.tell(stream_id, Event::Aborted { stream_id });
        }
    }

    /// The connection as a whole has room: the waiting responses continue, in the order in which they began to
    /// wait.
    fn connection_has_room(&mut self) {
        let place = |(&stream_id, exchange): (&u64, &Exchange)| {
            Some((exchange.writing.as_ref()?.place?, stream_id))
        };
        let mut waiting: Vec<(u64, u64)> = self.exchanges.iter().filter_map(place).collect();
        waiting.sort_unstable();
        for (_, stream_id) in waiting {
            self.has_room(stream_id);
        }
    }

    fn has_room(&mut self, stream_id: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&stream_id)
            && exchange.writing.take().is_some()
        {
            self.events.push_back(Event::Writable { stream_id });
        }
    }

    /// Something has ended, perhaps the last of all.
    pub(super) fn calmed(&mut self, now: Instant) {
        if self.is_drained() {
            self.quiet_since = now;
            self.events.push_back(Event::Drained);
        }
    }

    // Time ---------------------------------------------------------------------------------------

    /// True if [`tick`](Self::tick) has anything to do.
    pub fn is_due(&self, now: Instant) -> bool {
        let have_sessions = self.attached.as_ref().is_some_and(|it| it.is_due());
        !self.is_drained() || have_sessions || self.may_rest(now) || self.is_idle(now)
    }

    /// True if unused capacity can be freed.
    fn may_rest(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.quiet_since);
        !self.is_resting && self.is_drained() && quiet > RESTS_AFTER
    }

    fn rest(&mut self, quic: &mut quic::Connection) {
        self.is_resting = true;
        self.h3.rest();
        self.exchanges.shrink_to_fit();
        self.paused.shrink_to_fit();
        self.unacknowledged.shrink_to_fit();
        self.unfinished.rest();
        if let Some(attached) = &mut self.attached {
            attached.rest();
        }
        self.events.shrink_to_fit();
        quic.rest();
    }

    fn is_idle(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.quiet_since);
        self.is_drained() && quiet > self.limits.keep_alive
    }

    /// Abandons requests and responses that have taken too long.
    pub fn tick(&mut self, quic: &mut quic::Connection, now: Instant) {
        let overdue = self
            .unfinished
            .take_overdue(self.limits.header_timeout, now);
        for stream_id in overdue {
            // Nothing of it was processed, which is the meaning of this code (RFC 9114 section 4.1.1).
            self.end_stream(quic, stream_id, Code::H3_REQUEST_REJECTED, now);
            self.calmed(now);
        }
        // While content waits here the connection's window may be used up, which is not the client's fault.
        let times_bodies = self.paused.is_empty();
        for (&stream_id, exchange) in &mut self.exchanges {
            if let Some(reading) = &mut exchange.reading
                && times_bodies
                && !exchange.has_begun
                && !exchange.answered
                && reading.is_over(self.limits.body_timeout, self.limits.body_rate, now)
            {
                exchange.reading = None;
                self.events.push_back(Event::BodyTimedOut { stream_id });
            }
        }
        self.give_up_stalled(quic, now);
        self.tick_sessions(quic, now);
        if self.may_rest(now) {
            self.rest(quic);
        }
        if self.is_idle(now) {
            self.quiet_since = now;
            self.events.push_back(Event::Idle);
        }
    }
}

/// The limit of data in the queues of one connection above which each response waits, and the limit below which
/// they continue. Exception: a stream that has almost nothing queued itself, so that streams that the client does
/// read are not blocked by those that it does not. So one client can make us hold at most this, and one part of a
/// body for each of its streams.
const CONNECTION_QUEUE_HIGH: usize = 4 << 20;
const CONNECTION_QUEUE_LOW: usize = 3 << 20;
/// The idle time after which a connection frees its capacity: the client's next requests cost a few allocations
/// once.
const RESTS_AFTER: Duration = Duration::from_secs(1);
/// How many applications may run for each request that may be open: including answered ones, and those whose
/// clients have gone.
const AT_WORK_FACTOR: usize = 8;
