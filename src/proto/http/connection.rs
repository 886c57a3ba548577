//! One QUIC connection with the HTTP/3 on it.
//!
//! Here: which event goes where, the commands of a response, and what a client is given up for. Not here:
//! frames and fields (`h3`), streams (`quic`), and when the host looks at the clock.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rustc_hash::{FxHashMap, FxHashSet};

use super::event::Event;
use super::exchange::{Exchange, Writing};
use super::head::{Head, Refusal};
use super::limits::Limits;
use super::patience::Unfinished;
use crate::h3::{self, Code, Field, HeadersKind, LocalError, Output, Role, frame};
use crate::quic::{self, AcceptRate, Bucket, Chunks};

/// The HTTP/3 of a server's connection. Its methods take the QUIC connection that it is on, always the same.
///
/// The order of a turn: [`handle`](Self::handle) for each event that is about streams, then
/// [`poll_event`](Self::poll_event) until `None`; commands at any time; [`tick`](Self::tick) about once a
/// second, and again `poll_event`. What is to be sent is with QUIC when a method returns.
///
/// Bounds: of a request, the HTTP/3 connection's for header sections; content is handed on as it comes, and
/// the host pauses the stream. Of responses, QUIC's queues: [`is_held_up`](Self::is_held_up) says when the
/// host has to wait.
pub struct Connection {
    h3: h3::Connection,
    limits: Limits,
    exchanges: FxHashMap<u64, Exchange>,
    /// Streams whose response is with QUIC whole and has not been acknowledged whole. Closing the connection
    /// earlier would drop what is queued of them.
    unacknowledged: FxHashSet<u64>,
    /// Streams that wait for the connection as a whole to have room.
    crowded: Vec<u64>,
    unfinished: Unfinished,
    early_resets: Bucket,
    /// Requests so far.
    requests: u64,
    /// Above the highest request stream that anything was heard of.
    heard_below: u64,
    /// Since when no request is open.
    quiet_since: Instant,
    knows_datagrams: bool,
    /// The stream on which QUIC has refused to send last.
    refused: Option<u64>,
    events: VecDeque<Event>,
}

/// Why a response was not sent. Nothing was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The stream or the connection has ended; the event that says so has come or is on its way.
    Gone,
    /// The application's fault: fields that make a message malformed, or an order that HTTP does not know.
    Invalid(String),
    /// The client takes no header section of that size (RFC 9114 section 4.2.2).
    TooLarge { size: u64, max: u64 },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the stream has ended"),
            Self::Invalid(reason) => f.write_str(reason),
            Self::TooLarge { size, max } => {
                write!(
                    f,
                    "the header section takes {size} bytes, the client accepts {max}"
                )
            }
        }
    }
}

impl std::error::Error for SendError {}

impl From<LocalError> for SendError {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::FieldSectionTooLarge { size, max } => Self::TooLarge { size, max },
            LocalError::Closed => Self::Gone,
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl Connection {
    /// Attaches HTTP/3 to a connection whose application protocol it is. Our SETTINGS leave at once.
    pub fn new(
        quic: &mut quic::Connection,
        settings: h3::Settings,
        limits: Limits,
        now: Instant,
    ) -> Self {
        let first = quic.next_stream_id(true);
        // RFC 9000 section 2.1: streams of one kind are four apart.
        let mut h3 = h3::Connection::new(Role::Server, settings, [first, first + 4, first + 8]);
        h3.set_answers_large_requests(true);
        quic.set_connection_watermarks(CONNECTION_QUEUE_HIGH, CONNECTION_QUEUE_LOW);
        let early_resets = Bucket::new(AcceptRate {
            per_second: limits.early_resets_per_second,
            burst: limits.early_resets,
        });
        let mut connection = Self {
            h3,
            limits,
            exchanges: FxHashMap::default(),
            unacknowledged: FxHashSet::default(),
            crowded: Vec::new(),
            unfinished: Unfinished::default(),
            early_resets,
            requests: 0,
            heard_below: 0,
            quiet_since: now,
            knows_datagrams: false,
            refused: None,
            events: VecDeque::new(),
        };
        connection.perform(quic, now);
        connection
    }

    pub fn handle(&mut self, quic: &mut quic::Connection, event: quic::Event, now: Instant) {
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
                self.h3.handle_stream_reset(stream_id, error_code);
                self.given_up(quic, stream_id, false, now);
            }
            Quic::StopSending {
                stream_id,
                error_code,
            } => {
                self.h3.handle_stop_sending(stream_id, error_code);
                self.unacknowledged.remove(&stream_id);
                self.given_up(quic, stream_id, true, now);
            }
            Quic::StreamWritable { stream_id } => self.has_room(stream_id),
            Quic::ConnectionWritable { .. } => {
                for stream_id in std::mem::take(&mut self.crowded) {
                    self.has_room(stream_id);
                }
            }
            Quic::StreamFinished { stream_id } => {
                self.unacknowledged.remove(&stream_id);
                self.tell_if_drained();
            }
            // The reset has been told by its own event. HTTP datagrams are nobody's yet.
            _ => {}
        }
        self.perform(quic, now);
        self.take_over(quic, now);
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Requests that the host is not done with.
    pub fn open_requests(&self) -> usize {
        self.exchanges.len()
    }

    /// Whether every response has been acknowledged, and none is being made.
    pub fn is_drained(&self) -> bool {
        self.exchanges.is_empty() && self.unacknowledged.is_empty()
    }

    // Responses ----------------------------------------------------------------------------------

    /// Sends a header section, or with `fin` a whole message: an interim response, the final one's, trailers.
    pub fn send_headers(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[(&[u8], &[u8])],
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        self.check(stream_id)?;
        self.h3.send_headers(stream_id, fields, fin)?;
        self.sent(quic, stream_id, fin, now)
    }

    /// Sends a header section and content behind it, as one write while the content is small.
    pub fn respond(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fields: &[(&[u8], &[u8])],
        content: Bytes,
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        self.check(stream_id)?;
        self.h3.send_headers(stream_id, fields, false)?;
        self.h3.send_data(stream_id, content, fin)?;
        self.sent(quic, stream_id, fin, now)
    }

    /// Sends content.
    pub fn send_data(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        content: Bytes,
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        self.check(stream_id)?;
        self.h3.send_data(stream_id, content, fin)?;
        self.sent(quic, stream_id, fin, now)
    }

    fn check(&self, stream_id: u64) -> Result<(), SendError> {
        match self.exchanges.get(&stream_id) {
            Some(exchange) if !exchange.answered => Ok(()),
            _ => Err(SendError::Gone),
        }
    }

    fn sent(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        fin: bool,
        now: Instant,
    ) -> Result<(), SendError> {
        if fin {
            self.unacknowledged.insert(stream_id);
            if let Some(exchange) = self.exchanges.get_mut(&stream_id) {
                exchange.answered = true;
            }
        }
        self.perform(quic, now);
        // The event that says why may be long in coming, if the application does not wait for anything.
        match self.refused.take() {
            Some(refused) if refused == stream_id => Err(SendError::Gone),
            _ => Ok(()),
        }
    }

    /// Whether the host has to wait before it sends more: for this stream's queue to fall, or for all of the
    /// connection's together, unless there is next to nothing in its own. `Writable` follows, or `Aborted`.
    pub fn is_held_up(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        now: Instant,
    ) -> bool {
        let queued = quic.send_queue_bytes(stream_id);
        let is_crowded = quic.is_full() && queued > STREAM_QUEUE_FEW;
        if !quic.is_stream_full(stream_id) && !is_crowded {
            return false;
        }
        let Some(exchange) = self.exchanges.get_mut(&stream_id) else {
            return false;
        };
        if is_crowded && !self.crowded.contains(&stream_id) {
            self.crowded.push(stream_id);
        }
        exchange.writing = Some(Writing { since: now, queued });
        true
    }

    /// The host waits for content of the request.
    pub fn wait_for_body(&mut self, stream_id: u64, now: Instant) {
        if let Some(exchange) = self.exchanges.get_mut(&stream_id) {
            exchange.wait(now);
        }
    }

    /// Ends both directions as far as they are open. The host is not told: it is its own doing.
    pub fn cancel(
        &mut self,
        quic: &mut quic::Connection,
        stream_id: u64,
        code: Code,
        now: Instant,
    ) {
        self.h3.cancel_request(stream_id, code.0);
        if let Some(exchange) = self.exchanges.get_mut(&stream_id) {
            exchange.answered = true;
        }
        self.perform(quic, now);
    }

    /// The host is done with a request.
    pub fn done(&mut self, stream_id: u64, now: Instant) {
        if self.exchanges.remove(&stream_id).is_some() && self.exchanges.is_empty() {
            self.quiet_since = now;
        }
        self.tell_if_drained();
    }

    /// No new requests: announces the first that will not be processed (RFC 9114 section 5.2).
    pub fn go_away(&mut self, quic: &mut quic::Connection, now: Instant) {
        let id = self.h3.next_goaway_id();
        // A connection that is closed needs no word.
        let _ = self.h3.send_goaway(id);
        self.perform(quic, now);
    }

    // What comes in ------------------------------------------------------------------------------

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
        } else if !self.exchanges.contains_key(&stream_id) {
            self.heard_below = self.heard_below.max(stream_id + 1);
            self.unfinished.begun(stream_id, now);
        }
        let mut pieces = data.into_pieces();
        let last = pieces.pop();
        for piece in pieces {
            self.h3.handle_stream_data(stream_id, piece, false);
        }
        self.h3
            .handle_stream_data(stream_id, last.unwrap_or_default(), fin);
    }

    /// Before SETTINGS are read: whether the peer takes DATAGRAM frames (RFC 9297 section 2.1.1).
    fn learn_peers_datagrams(&mut self, quic: &mut quic::Connection) {
        if !std::mem::replace(&mut self.knows_datagrams, true) {
            self.h3
                .set_peer_quic_datagrams(quic.peer_max_datagram_size().is_some());
        }
    }

    /// Turns what HTTP/3 has to say into the host's events.
    fn take_over(&mut self, quic: &mut quic::Connection, now: Instant) {
        while let Some(event) = self.h3.poll_event() {
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
                    self.content(stream_id, Bytes::new(), fin, now);
                }
                h3::Event::Data {
                    stream_id,
                    data,
                    fin,
                } => self.content(stream_id, data, fin, now),
                h3::Event::Reset {
                    stream_id,
                    local: true,
                    ..
                } => {
                    // A malformed message: HTTP/3 has ended the stream with the RFC's code.
                    self.unfinished.ended(stream_id);
                    self.abort(stream_id);
                }
                // The other resets are QUIC's events; the rest is of no consequence for requests.
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
        if self.exchanges.len() >= self.limits.open_requests {
            // QUIC lets it have no more streams than that: some were given up, and are still worked on.
            if !self.may_give_up(quic, now) {
                return;
            }
            self.h3
                .cancel_request(stream_id, Code::H3_REQUEST_REJECTED.0);
            self.perform(quic, now);
            return;
        }
        self.exchanges.insert(stream_id, Exchange::new(ended));
        self.requests += 1;
        let (head, unfit) = Head::read(fields);
        self.events.push_back(Event::Request {
            stream_id,
            head,
            refusal: refusal.or(unfit),
            ended,
        });
        if self.limits.requests == Some(self.requests) {
            self.events.push_back(Event::UsedUp);
        }
    }

    fn content(&mut self, stream_id: u64, data: Bytes, ended: bool, now: Instant) {
        if data.is_empty() && !ended {
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(&stream_id) else {
            return;
        };
        exchange.received(data.len(), ended, now);
        self.events.push_back(Event::Body {
            stream_id,
            data,
            ended,
        });
    }

    /// The client has reset its side of a stream, or wants no more of ours.
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
        let is_early = match self.exchanges.get(&stream_id) {
            Some(exchange) => !exchange.answered,
            None => was_unfinished || stream_id >= self.heard_below,
        };
        self.heard_below = self.heard_below.max(stream_id + 1);
        if is_early && !self.may_give_up(quic, now) {
            return;
        }
        // A request that is complete can still be answered when the client resets it afterwards.
        let is_over = self
            .exchanges
            .get(&stream_id)
            .is_some_and(|exchange| !exchange.answered && (unwanted || !exchange.ended));
        if is_over {
            self.h3
                .cancel_request(stream_id, Code::H3_REQUEST_CANCELLED.0);
            self.abort(stream_id);
        }
        self.tell_if_drained();
    }

    /// Counts a request that was given up before it was answered. False: the connection is closed for it.
    fn may_give_up(&mut self, quic: &mut quic::Connection, now: Instant) -> bool {
        let may = self.early_resets.try_take(now);
        if !may {
            let reason = b"too many requests were given up before they were answered";
            quic.close(now, Code::H3_EXCESSIVE_LOAD.0, None, reason);
        }
        may
    }

    fn abort(&mut self, stream_id: u64) {
        let Some(exchange) = self.exchanges.get_mut(&stream_id) else {
            return;
        };
        if !std::mem::replace(&mut exchange.answered, true) {
            exchange.reading = None;
            exchange.writing = None;
            self.events.push_back(Event::Aborted { stream_id });
        }
    }

    fn has_room(&mut self, stream_id: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&stream_id)
            && exchange.writing.take().is_some()
        {
            self.events.push_back(Event::Writable { stream_id });
        }
    }

    fn tell_if_drained(&mut self) {
        if self.is_drained() {
            self.events.push_back(Event::Drained);
        }
    }

    // Time ---------------------------------------------------------------------------------------

    /// Gives up what has taken too long.
    pub fn tick(&mut self, quic: &mut quic::Connection, now: Instant) {
        while let Some(stream_id) = self
            .unfinished
            .take_overdue(self.limits.header_timeout, now)
        {
            // Nothing of it was processed, which is what this code says (RFC 9114 section 4.1.1).
            self.h3
                .cancel_request(stream_id, Code::H3_REQUEST_REJECTED.0);
        }
        let mut stalled = Vec::new();
        for (&stream_id, exchange) in &mut self.exchanges {
            if let Some(reading) = &mut exchange.reading
                && reading.is_over(self.limits.body_timeout, self.limits.body_rate, now)
            {
                exchange.reading = None;
                self.events.push_back(Event::BodyTimedOut { stream_id });
            }
            if let Some(writing) = &mut exchange.writing {
                let queued = quic.send_queue_bytes(stream_id);
                if queued != writing.queued {
                    *writing = Writing { since: now, queued };
                } else if now.saturating_duration_since(writing.since) > self.limits.send_timeout {
                    stalled.push(stream_id);
                }
            }
        }
        for stream_id in stalled {
            self.h3
                .cancel_request(stream_id, Code::H3_REQUEST_CANCELLED.0);
            self.abort(stream_id);
        }
        let is_quiet = self.exchanges.is_empty() && self.unacknowledged.is_empty();
        if is_quiet && now.saturating_duration_since(self.quiet_since) > self.limits.keep_alive {
            self.quiet_since = now;
            self.events.push_back(Event::Idle);
        }
        self.perform(quic, now);
    }

    // What goes out ------------------------------------------------------------------------------

    /// Does on QUIC what HTTP/3 wants done.
    fn perform(&mut self, quic: &mut quic::Connection, now: Instant) {
        let mut joined: Option<Joined> = None;
        while let Some(output) = self.h3.poll_output() {
            let output = match (joined.take(), output) {
                (
                    Some(mut write),
                    Output::Write {
                        stream_id,
                        data,
                        fin,
                    },
                ) if write.takes(stream_id, &data) => {
                    write.data.extend_from_slice(&data);
                    write.fin = fin;
                    joined = Some(write);
                    continue;
                }
                (Some(write), output) => {
                    self.write(quic, write.stream_id, write.data.freeze(), write.fin);
                    output
                }
                (None, output) => output,
            };
            // A stream that refuses has ended on QUIC's side, and the event that says so has come or will.
            match output {
                Output::Write {
                    stream_id,
                    data,
                    fin: false,
                } if data.len() <= JOINED_MAX => {
                    joined = Some(Joined {
                        stream_id,
                        data: data.into(),
                        fin: false,
                    });
                }
                Output::Write {
                    stream_id,
                    data,
                    fin,
                } => self.write(quic, stream_id, data, fin),
                Output::Datagram { data } => {
                    let _ = quic.send_datagram(data);
                }
                Output::ResetStream { stream_id, code } => {
                    let _ = quic.reset_stream(stream_id, code.0);
                }
                Output::StopSending { stream_id, code } => {
                    let _ = quic.stop_stream(stream_id, code.0);
                }
                Output::CloseConnection { code, reason } => {
                    quic.close(now, code.0, None, reason.as_bytes());
                }
            }
        }
        if let Some(write) = joined {
            self.write(quic, write.stream_id, write.data.freeze(), write.fin);
        }
    }

    fn write(&mut self, quic: &mut quic::Connection, stream_id: u64, data: Bytes, fin: bool) {
        if quic.send_stream(stream_id, data, fin).is_err() {
            self.refused = Some(stream_id);
        }
    }
}

/// Small writes on one stream that go to QUIC as one.
struct Joined {
    stream_id: u64,
    data: BytesMut,
    fin: bool,
}

impl Joined {
    fn takes(&self, stream_id: u64, data: &[u8]) -> bool {
        stream_id == self.stream_id && !self.fin && self.data.len() + data.len() <= JOINED_MAX
    }
}

/// What waits on all streams of one connection together above which each response waits, and below which they
/// go on. Except where the stream itself has next to nothing queued: what a client does read is not held up by
/// what it doesn't. So the most that one client can make us keep is this, and one part of a body for each of
/// its streams.
const CONNECTION_QUEUE_HIGH: usize = 4 << 20;
const CONNECTION_QUEUE_LOW: usize = 3 << 20;
const STREAM_QUEUE_FEW: usize = 32 << 10;
/// Writes up to this size together are copied into one.
const JOINED_MAX: usize = 4096;
