//! One connection of a client: its requests, one after the other.
//!
//! This file reads the input, enforces the limits of the client, and ends the connection. Not here: the commands for a
//! response (`response_commands`), and the host's socket and timer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};

use super::event::Event;
use super::header_section_end::{Bounds, Excess, Scan};
use super::header_section_parser::Section;
use super::limits::Limits;
use super::request_body::{Body, DISCARDED_BYTES_MAX, Pieces};
use super::request_body_timeouts::ContentWait;
use super::response_commands::Sending;
use super::response_encoder;
use super::websocket_handshake::Key;
use crate::http2::frame_codec::PREFACE;
use crate::input_buffer_shrink::release_large_buffer;
use crate::response_errors::{Refusal, TooSlow};
use crate::slow_reader_detection::{Patience, ReadProgress};
use crate::tcp_output::{Closing, LINGER_BYTES_MAX, LINGER_TIME, Output, Source};

/// HTTP/1.1 on a server's connection.
///
/// The host calls [`receive`](Self::receive) with received bytes, and [`tick`](Self::tick) about once a second. After
/// either call, it calls [`poll_event`](Self::poll_event) until that returns `None`. Commands are possible at any time.
/// After all of these, the host writes the [`output`](Source::output), calls [`written`](Source::written), closes the
/// connection if [`take_closing`](Self::take_closing) says so, and receives while [`wants_input`](Self::wants_input) is
/// true.
///
/// One request is served at a time, so responses are in order (RFC 9112 section 9.3.2). [`Limits`] bounds a header
/// section. Up to [`PIPELINED_BYTES_MAX`] of further requests wait here, and the rest waits in the socket. Content is
/// reported as it arrives, and the host pauses the connection when it has enough of it.
#[derive(Debug)]
pub struct Connection {
    pub(super) limits: Arc<Limits>,
    /// Received bytes that are still to be read.
    input: BytesMut,
    /// The size in bytes of the memory behind `input`, which content that was reported may share.
    input_memory: usize,
    scan: Scan,
    /// The number of empty lines that were skipped before the current request line.
    blank_lines: u8,
    pub(super) reading: Reading,
    /// The number of requests so far, which is the serial number of the current or the last one.
    pub(super) serial: u64,
    pub(super) exchange: Option<Exchange>,
    /// The number of requests whose application has not returned.
    running_applications: usize,
    /// True if the host has paused the content of the request.
    is_paused: bool,
    /// True if the server stops, so that the current or the next request is the last one.
    pub(super) is_stopping: bool,
    /// The time since which the connection ends as soon as it is idle.
    stopped_at: Option<Instant>,
    pub(super) output: Output,
    /// True if the transport accepts more output.
    is_writable: bool,
    events: VecDeque<Event>,
    pub(super) closing: Option<Closing>,
    /// The time since which the head of a request is incomplete.
    head_since: Option<Instant>,
    /// The time since which there is no request.
    quiet_since: Instant,
    /// The number of bytes that the host has written so far.
    pub(super) written: u64,
    /// The progress of the response; `None` if no bytes wait for the client.
    read_progress: Option<ReadProgress>,
    /// True if unused memory was freed since the last input.
    is_shrunk: bool,
}

/// The meaning of the next bytes.
#[derive(Debug)]
pub(super) enum Reading {
    Head,
    Body(Body),
    /// The bytes belong to the WebSocket that the request asked for.
    Raw,
    /// The request is complete. Further bytes wait for the end of the response.
    Response,
    /// The response is complete, and the rest of the request's content is dropped.
    Discard {
        body: Body,
        left: usize,
        since: Instant,
    },
    /// This side has closed its direction, and drops all input until the client closes.
    Linger {
        left: usize,
        /// The time at which `tick` has found that all output was sent.
        since: Option<Instant>,
    },
    /// All further input is dropped.
    Over,
}

/// One request and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    pub is_head: bool,
    /// The method is HEAD in another case, such as `head`. The application takes it for HEAD and sends no content. The
    /// client expects content, because methods are case-sensitive (RFC 9110 section 9.1).
    pub is_mistaken_for_head: bool,
    pub is_http10: bool,
    pub keep_alive: bool,
    /// True if the client waits for the status 100 before it sends its content.
    pub expects_continue: bool,
    /// The client's key, if the request asks for a WebSocket.
    pub key: Option<Key>,
    pub sending: Sending,
    pub wait: ContentWait,
    /// The status with which the server refuses the request, if it does.
    pub refusal: Option<u16>,
}

impl Source for Connection {
    fn output(&self) -> &Output {
        &self.output
    }

    fn written(&mut self) {
        self.written += self.output.len() as u64;
        self.output.clear();
    }
}

impl Connection {
    pub fn new(limits: Arc<Limits>, now: Instant) -> Self {
        Self {
            limits,
            input: BytesMut::new(),
            input_memory: 0,
            scan: Scan::default(),
            blank_lines: 0,
            reading: Reading::Head,
            serial: 0,
            exchange: None,
            running_applications: 0,
            is_paused: false,
            is_stopping: false,
            stopped_at: None,
            output: Output::default(),
            is_writable: true,
            events: VecDeque::new(),
            closing: None,
            head_since: None,
            quiet_since: now,
            written: 0,
            read_progress: None,
            is_shrunk: false,
        }
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the way to end the connection after the output. Returns it only once.
    pub fn take_closing(&mut self) -> Option<Closing> {
        self.closing.take()
    }

    /// True if the host should receive. If false, further bytes wait in the socket.
    pub fn wants_input(&self) -> bool {
        match self.reading {
            Reading::Head | Reading::Response => {
                self.input.len() < PIPELINED_BYTES_MAX || self.awaits_head()
            }
            Reading::Body(_) | Reading::Raw => !self.is_paused,
            Reading::Discard { .. } | Reading::Linger { .. } | Reading::Over => true,
        }
    }

    /// Handles that the transport accepts more output, or does not. While it does not, no further request begins,
    /// because a client that reads nothing must not cause responses without end.
    pub fn set_writable(&mut self, is_writable: bool, now: Instant) {
        let is_resumed = is_writable && !self.is_writable;
        self.is_writable = is_writable;
        if is_resumed {
            // The client could not complete a header section that this side did not read.
            self.head_since = self.head_since.map(|_| now);
            self.read(now);
        }
    }

    /// The number of received bytes that are still to be read.
    pub fn held_bytes(&self) -> usize {
        self.input.len()
    }

    /// Ends the connection and drops unsent output, because the server has no memory for its client.
    pub fn shed(&mut self) {
        self.end();
        self.close(Closing::AtOnce);
    }

    // Input --------------------------------------------------------------------------------------

    /// Reads received bytes.
    pub fn receive(&mut self, data: BytesMut, now: Instant) {
        self.is_shrunk = false;
        match &mut self.reading {
            Reading::Over => return,
            Reading::Linger { left, .. } => {
                match left.checked_sub(data.len()) {
                    Some(rest) => *left = rest,
                    None => self.close(Closing::Gracefully),
                }
                return;
            }
            _ => {}
        }
        match self.input.is_empty() {
            true => self.input = data,
            false => self.input.extend_from_slice(&data),
        }
        self.input_memory = self.input.len();
        self.read(now);
    }

    /// Ends the connection, because the client has closed its sending direction or the connection is lost. A client
    /// that has closed only its sending direction counts as gone: most clients do so when their user leaves, and
    /// nothing else would end an application that sends events for ever.
    pub fn end(&mut self) {
        if self
            .exchange
            .as_ref()
            .is_some_and(|it| !it.sending.is_done())
        {
            self.events.push_back(Event::Aborted);
        }
        self.exchange = None;
        self.close(Closing::Gracefully);
    }

    /// Reads the input until its end, or until a request has to wait.
    pub(super) fn read(&mut self, now: Instant) {
        while self.read_part(now) {}
        self.input_memory = release_large_buffer(&mut self.input, self.input_memory);
    }

    /// Reads a header section, or content. Returns true if another part may follow in the input.
    fn read_part(&mut self, now: Instant) -> bool {
        match self.reading {
            Reading::Head => self.read_head(now),
            Reading::Body(_) => self.read_body(now),
            Reading::Discard { .. } => self.discard(now),
            Reading::Raw => {
                if !self.input.is_empty() {
                    let pieces = vec![self.input.split().freeze()];
                    let ended = false;
                    self.events.push_back(Event::Body { pieces, ended });
                }
                false
            }
            Reading::Response | Reading::Linger { .. } | Reading::Over => false,
        }
    }

    /// True if the next bytes belong to a request that may begin.
    fn awaits_head(&self) -> bool {
        matches!(self.reading, Reading::Head)
            && self.is_writable
            && self.running_applications < self.limits.running_applications
    }

    /// Reads a header section. Returns true if a request has begun.
    fn read_head(&mut self, now: Instant) -> bool {
        if !self.awaits_head() {
            return false;
        }
        // Empty lines before a request line are ignored (RFC 9112 section 2.2). Clients send at most one.
        while self.input.starts_with(b"\r\n") && self.blank_lines < BLANK_LINES_MAX {
            self.input.advance(2);
            self.blank_lines += 1;
        }
        let Some(&first) = self.input.first() else {
            return false;
        };
        self.head_since.get_or_insert(now);
        if self.may_be_http2() {
            return false;
        }
        if first == b'\r' && self.input.len() == 1 && self.blank_lines < BLANK_LINES_MAX {
            return false;
        }
        if !response_encoder::is_token(first) {
            // Not every input has lines, for instance a TLS handshake. So this check comes before the search for a
            // line.
            self.refuse(Refusal::new(400, "this is not a request"));
            return true;
        }
        let bounds = Bounds {
            bytes: self.limits.header_bytes,
            // One more, for the request line.
            lines: self.limits.header_fields.saturating_add(1),
        };
        match self.scan.find(&self.input, bounds) {
            Ok(None) => false,
            Ok(Some(size)) => {
                self.request(size);
                true
            }
            Err(Excess::Bytes) if self.scan.lines == 0 => {
                self.refuse(Refusal::new(414, "the target is too long"));
                true
            }
            Err(excess) => {
                self.refuse(excess.refusal());
                true
            }
        }
    }

    /// True if the client begins, or may begin, with HTTP/2 (RFC 9113 section 3.4).
    fn may_be_http2(&self) -> bool {
        let length = self.input.len().min(PREFACE.len());
        self.limits.http2 && self.serial == 0 && self.input[..length] == PREFACE[..length]
    }

    /// Returns all input of a client that begins with HTTP/2. This connection has ended then.
    pub fn take_http2(&mut self) -> Option<BytesMut> {
        let is_http2 = matches!(self.reading, Reading::Head)
            && self.input.len() >= PREFACE.len()
            && self.may_be_http2();
        is_http2.then(|| {
            self.reading = Reading::Over;
            std::mem::take(&mut self.input)
        })
    }

    /// Begins the request whose header section is the first `size` bytes of the input.
    fn request(&mut self, size: usize) {
        let fields = self.scan.lines.saturating_sub(1);
        let section = self.input.split_to(size);
        let (section, refusal) = Section::read(section, fields, self.limits.websockets);
        self.begin(section, refusal);
    }

    /// Begins a refused request for input that is not a request.
    fn refuse(&mut self, refusal: Refusal) {
        self.begin(Section::default(), Some(refusal));
    }

    fn begin(&mut self, section: Section, refusal: Option<Refusal>) {
        self.scan = Scan::default();
        self.blank_lines = 0;
        self.head_since = None;
        self.serial += 1;
        self.running_applications += 1;
        let is_last = self.limits.requests.is_some_and(|max| self.serial >= max);
        let body = match section.framing {
            _ if refusal.is_some() => None,
            framing => Body::new(framing),
        };
        let ended = body.is_none() && section.key.is_none();
        let method = &section.head.method;
        let is_head = &**method == b"HEAD";
        self.exchange = Some(Exchange {
            is_head,
            is_mistaken_for_head: !is_head && method.eq_ignore_ascii_case(b"HEAD"),
            is_http10: section.is_http10,
            keep_alive: section.keep_alive && refusal.is_none() && !is_last && !self.is_stopping,
            expects_continue: section.expects_continue,
            key: section.key,
            sending: Sending::Head,
            wait: ContentWait::default(),
            refusal: refusal.map(|refusal| refusal.status),
        });
        self.reading = match (&refusal, body, section.key) {
            // The end of a refused request cannot be determined.
            (Some(_), ..) => Reading::Over,
            (_, Some(body), _) => Reading::Body(body),
            (_, None, Some(_)) => Reading::Raw,
            (_, None, None) => Reading::Response,
        };
        self.events.push_back(Event::Request {
            serial: self.serial,
            head: section.head,
            refusal,
            ended,
            expects_continue: section.expects_continue,
            is_http10: section.is_http10,
        });
    }

    /// Reads content. Returns true if it has ended.
    fn read_body(&mut self, now: Instant) -> bool {
        let Reading::Body(body) = &mut self.reading else {
            return false;
        };
        let mut pieces = Pieces::default();
        let read = body.read(&mut self.input, &mut pieces, &self.limits);
        let exchange = self.exchange.as_mut();
        if let Some(exchange) = exchange
            && pieces.bytes > 0
        {
            exchange.expects_continue = false;
            exchange.wait.received(pieces.bytes, now);
        }
        let ended = matches!(read, Ok(true));
        if pieces.bytes > 0 || ended {
            let pieces = pieces.take();
            self.events.push_back(Event::Body { pieces, ended });
        }
        match read {
            Ok(false) => false,
            Ok(true) => {
                self.reading = Reading::Response;
                self.settle(now);
                true
            }
            Err(refusal) => {
                self.refuse_content(refusal);
                false
            }
        }
    }

    /// Gives up the rest of the content, because it is malformed or too slow.
    fn refuse_content(&mut self, refusal: Refusal) {
        self.reading = Reading::Over;
        if let Some(exchange) = &mut self.exchange {
            exchange.keep_alive = false;
        }
        self.events.push_back(Event::ContentRefused(refusal));
    }

    /// Drops the rest of a request that has been answered. Returns true if the request has ended.
    fn discard(&mut self, now: Instant) -> bool {
        let Reading::Discard { body, left, .. } = &mut self.reading else {
            return false;
        };
        let before = self.input.len();
        let read = body.read(&mut self.input, &mut Pieces::default(), &self.limits);
        *left = left.saturating_sub(before - self.input.len());
        match read {
            Ok(false) if *left > 0 => false,
            Ok(true) => {
                self.reading = Reading::Response;
                self.settle(now);
                true
            }
            Ok(false) | Err(_) => {
                self.exchange = None;
                self.close(Closing::Sending);
                false
            }
        }
    }

    // The end of a request, and of the connection ------------------------------------------------

    /// If the current request and its response are complete, begins the next request or ends the connection.
    pub(super) fn settle(&mut self, now: Instant) {
        let Some(exchange) = &self.exchange else {
            return;
        };
        if !exchange.sending.is_done() {
            return;
        }
        // A client whose response has not announced the end may have sent its next request already. That request is
        // served, also if the server has begun to stop meanwhile.
        let keeps = exchange.keep_alive;
        match std::mem::replace(&mut self.reading, Reading::Over) {
            Reading::Response if keeps => {
                self.reading = Reading::Head;
                self.exchange = None;
                self.is_paused = false;
                self.quiet_since = now;
            }
            Reading::Response if self.input.is_empty() => {
                self.exchange = None;
                self.close(Closing::Gracefully);
            }
            Reading::Body(body) if keeps && !body.is_too_long_to_discard() => {
                self.is_paused = false;
                let left = DISCARDED_BYTES_MAX;
                let since = now;
                self.reading = Reading::Discard { body, left, since };
            }
            discarding @ Reading::Discard { .. } => self.reading = discarding,
            _ => {
                self.exchange = None;
                self.close(Closing::Sending);
            }
        }
    }

    /// Ends the connection in the given way. `AtOnce` is never replaced by another way.
    pub(super) fn close(&mut self, closing: Closing) {
        self.input = BytesMut::new();
        self.reading = match closing {
            Closing::Sending => Reading::Linger {
                left: LINGER_BYTES_MAX,
                since: None,
            },
            Closing::Gracefully | Closing::AtOnce => Reading::Over,
        };
        self.closing = match self.closing {
            Some(Closing::AtOnce) => self.closing,
            _ => Some(closing),
        };
    }

    /// Handles that the server will stop: the response to the current request, or to the next one, announces the end of
    /// the connection.
    pub fn announce_stop(&mut self) {
        self.is_stopping = true;
    }

    /// Handles the stop of the server: the connection ends after the current request, or when it is idle. A client that
    /// used the connection a moment ago may be sending its next request, for instance a proxy in front. It could not
    /// repeat a POST on another connection (RFC 9112 section 9.6), so the connection waits for it for
    /// [`LAST_REQUEST_TIME`].
    pub fn stop(&mut self, now: Instant) {
        self.announce_stop();
        self.stopped_at.get_or_insert(now);
        self.close_stopped(now);
    }

    /// Ends a connection that has been idle for long enough since its last request and, if a header section is
    /// incomplete, since the stop of the server.
    fn close_stopped(&mut self, now: Instant) {
        let Some(stopped_at) = self.stopped_at else {
            return;
        };
        let since = match self.head_since {
            Some(since) => since.max(stopped_at),
            None => self.quiet_since,
        };
        let is_over = now.saturating_duration_since(since) >= LAST_REQUEST_TIME;
        // A request that waits behind a response is still served.
        if is_over && self.exchange.is_none() && self.awaits_head() {
            self.close(Closing::Gracefully);
        }
    }

    /// Handles the return of a request's application. An incomplete response is abandoned.
    pub fn done(&mut self, serial: u64, now: Instant) {
        self.running_applications = self.running_applications.saturating_sub(1);
        if serial == self.serial
            && self
                .exchange
                .as_ref()
                .is_some_and(|it| !it.sending.is_done())
        {
            self.abandon(serial, now);
        }
        self.read(now);
    }

    /// Starts the time-out of the request's content, because the host waits for it.
    pub fn wait_for_body(&mut self, serial: u64, now: Instant) {
        if serial == self.serial
            && let Reading::Body(_) = self.reading
            && let Some(exchange) = &mut self.exchange
            && !exchange.sending.is_begun()
        {
            exchange.wait.begin(now);
        }
    }

    /// Stops or continues reading the request's content. While it is stopped, the client has to stop sending.
    pub fn set_paused(&mut self, serial: u64, is_paused: bool) {
        if serial == self.serial && self.exchange.is_some() {
            self.is_paused = is_paused;
        }
    }

    /// Enforces the time-outs. The host calls this about once a second. `unsent` is the number of written
    /// bytes that the host has not sent yet.
    pub fn tick(&mut self, unsent: usize, now: Instant) {
        let passed = |since: Instant| now.saturating_duration_since(since);
        if unsent > 0 {
            self.quiet_since = now;
        }
        let awaits_head = self.awaits_head();
        match &mut self.reading {
            Reading::Linger { since, .. } if unsent > 0 => *since = None,
            Reading::Linger { since, .. } => {
                let sent_at = *since.get_or_insert(now);
                if passed(sent_at) > LINGER_TIME {
                    self.close(Closing::Gracefully);
                }
            }
            Reading::Head if awaits_head => match self.head_since {
                Some(since) if passed(since) > self.limits.header_timeout => {
                    self.refuse(Refusal::new(408, "the header section is too slow"));
                }
                Some(_) => {}
                None => {
                    let is_new = self.serial == 0;
                    let (new, others) = (self.limits.header_timeout, self.limits.keep_alive);
                    let timeout = if is_new { new } else { others };
                    if passed(self.quiet_since) > timeout {
                        self.close(Closing::Gracefully);
                    }
                }
            },
            Reading::Body(_) => {
                let exchange = self.exchange.as_ref();
                let is_over =
                    |it: &Exchange| !it.sending.is_begun() && it.wait.is_over(&self.limits, now);
                if exchange.is_some_and(is_over) && !self.is_paused {
                    self.refuse_content(Refusal::new(408, "Request Timeout"));
                }
            }
            Reading::Discard { since, .. } if passed(*since) > self.limits.body_timeout => {
                self.exchange = None;
                self.close(Closing::Gracefully);
            }
            _ => {}
        }
        self.close_stopped(now);
        self.check_reader(unsent, now);
        self.free_unused(now);
    }

    /// Ends the connection if its client does not read, or too slowly.
    fn check_reader(&mut self, unsent: usize, now: Instant) {
        if unsent == 0 {
            self.read_progress = None;
            return;
        }
        let taken = self.written.saturating_sub(unsent as u64);
        let patience = Patience {
            timeout: self.limits.send_timeout,
            rate: self.limits.send_rate,
            grace: self.limits.send_rate_grace,
        };
        let progress = self
            .read_progress
            .get_or_insert_with(|| ReadProgress::new(taken, patience, now));
        if let Some(why) = progress.check(taken, patience, now) {
            self.too_slow(why);
        }
    }

    fn too_slow(&mut self, why: TooSlow) {
        self.events.push_back(Event::TooSlow(why));
        self.end();
        self.close(Closing::AtOnce);
    }

    /// Frees unused memory of an idle connection. The next request has to allocate it again.
    fn free_unused(&mut self, now: Instant) {
        let is_idle = self.exchange.is_none() && self.input.is_empty() && self.output.is_empty();
        let is_new = now.saturating_duration_since(self.quiet_since) < FREED_AFTER;
        if is_idle && !is_new && !std::mem::replace(&mut self.is_shrunk, true) {
            self.input = BytesMut::new();
            self.output.free_unused();
            self.events.shrink_to_fit();
        }
    }
}

/// The maximum input in bytes that waits while a request is served. Up to this size the host continues to receive,
/// because otherwise it would not notice that the client closes the connection.
pub const PIPELINED_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of empty lines before a request line.
const BLANK_LINES_MAX: u8 = 2;
/// The time since the last request in which a connection waits for another one although the server stops. It is more than
/// a round trip, and than the pauses between the requests of a proxy's clients.
pub const LAST_REQUEST_TIME: Duration = Duration::from_millis(500);
/// The time without a request after which unused memory is freed.
const FREED_AFTER: Duration = Duration::from_secs(1);
