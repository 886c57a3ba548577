//! One connection of a client, with many requests at a time.
//!
//! | file | content |
//! | --- | --- |
//! | `frame_dispatch` | splits the input into frames |
//! | `control_frames` | frames other than those of requests |
//! | `arriving_requests` | arriving requests: field blocks, content, and resets |
//! | `response_commands` | the host's commands that send a response |
//! | `content_sending` | content from the queues to the output |
//! | `shutdown` | GOAWAY, and the end of the connection |
//! | `timeouts` | time-outs, and freeing the capacity of an idle connection |
//!
//! These files have the methods of [`Connection`]; the parts of its state are types in the files beside this one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use rustc_hash::FxHashMap;

use super::early_priorities::EarlyPriorities;
use super::event::Event;
use super::field_block::HeaderBlock;
use super::frame_codec::INITIAL_WINDOW;
use super::hpack::{Decoder, Encoder};
use super::limits::Limits;
use super::reset_streams::ResetStreams;
use super::scheduler::Scheduler;
use super::settings::PeerSettings;
use super::stream::Stream;
use super::useless_frame_budget::UselessFrameBudget;
use crate::concurrent_requests::exchanges::Exchanges;
use crate::concurrent_requests::idle_timer::IdleTimer;
use crate::concurrent_requests::rapid_reset_limit::RapidResetLimit;
use crate::concurrent_requests::slowly_read_responses::SlowlyReadResponses;
use crate::slow_reader_detection::ReadProgress;
use crate::tcp_output::{Closing, Output, Source};
use shutdown::GoingAway;

mod arriving_requests;
mod content_sending;
mod control_frames;
mod frame_dispatch;
mod response_commands;
mod shutdown;
mod timeouts;

/// HTTP/2 on a server's connection.
///
/// The host calls [`receive`](Self::receive) with received bytes, and [`tick`](Self::tick) about once a second. After
/// either call, it calls [`poll_event`](Self::poll_event) until that returns `None`. Commands are possible at any time.
/// After all of these, the host calls [`fill_output`](Self::fill_output), writes the [`output`](Source::output), calls
/// [`written`](Source::written), and repeats that while there is output and its transport accepts more. It closes the
/// connection if [`take_closing`](Self::take_closing) says so.
///
/// Bounds: [`Limits`] bounds a header section and the number of requests. Flow control bounds content that the host
/// does not take. Content of responses waits in a queue for each stream; while [`is_held_up`](Self::is_held_up) is true
/// the host must send no more of a response.
pub struct Connection {
    limits: Arc<Limits>,
    /// Received bytes that are still to be read.
    input: BytesMut,
    phase: Phase,
    /// The time since which the preface, a field block, or a frame other than DATA is incomplete.
    incomplete_since: Option<Instant>,
    block: Option<HeaderBlock>,
    decoder: Decoder,
    encoder: Encoder,
    peer: PeerSettings,
    streams: FxHashMap<u32, Stream>,
    /// The highest stream identifier that the client has used.
    last_stream: u32,
    reset_streams: ResetStreams,
    early_priorities: EarlyPriorities,
    exchanges: Exchanges,
    slowly_read_responses: SlowlyReadResponses,
    rapid_resets: RapidResetLimit,
    useless_frames: UselessFrameBudget,
    idle_timer: IdleTimer,
    /// True if data has arrived since the last `tick`.
    has_data_arrived: bool,
    /// The number of requests so far.
    requests: u64,
    /// The connection's window for content of requests, and the bytes for which the client gets new credit.
    receive_window: i64,
    owed_credit: u32,
    /// True while the client gets no new credit for the connection, because the server has no memory for its content.
    is_credit_withheld: bool,
    /// The connection's window for content of responses.
    send_window: i64,
    scheduler: Scheduler,
    /// The number of bytes in the queues of all streams.
    queued_bytes: usize,
    /// True if the transport accepts more output.
    is_writable: bool,
    output: Output,
    events: VecDeque<Event>,
    going_away: GoingAway,
    closing: Option<Closing>,
    is_closed_for_abuse: bool,
    /// The number of bytes that the host has written so far.
    written: u64,
    /// How fast the client receives what was written. `None` while it has received everything.
    read_progress: Option<ReadProgress>,
}

/// The meaning of the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The bytes that a client sends first (RFC 9113 section 3.4).
    Preface,
    /// The frame SETTINGS, which is the first one of a client.
    FirstSettings,
    Frames,
    /// This side has closed its direction, and drops all input until the client closes.
    Linger {
        left: usize,
        /// The time at which `tick` has found that all output was sent.
        since: Option<Instant>,
    },
    /// All further input is dropped.
    Over,
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
    /// Makes a new connection. Its SETTINGS are in the output (RFC 9113 section 3.4).
    pub fn new(limits: Arc<Limits>, now: Instant) -> Self {
        let mut connection = Self {
            input: BytesMut::new(),
            phase: Phase::Preface,
            incomplete_since: Some(now),
            block: None,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            peer: PeerSettings::default(),
            streams: FxHashMap::default(),
            last_stream: 0,
            reset_streams: ResetStreams::default(),
            early_priorities: EarlyPriorities::default(),
            exchanges: Exchanges::default(),
            slowly_read_responses: SlowlyReadResponses::default(),
            rapid_resets: RapidResetLimit::new(&limits.requests),
            useless_frames: UselessFrameBudget::default(),
            idle_timer: IdleTimer::new(now),
            has_data_arrived: false,
            requests: 0,
            receive_window: INITIAL_WINDOW,
            owed_credit: 0,
            is_credit_withheld: false,
            send_window: INITIAL_WINDOW,
            scheduler: Scheduler::default(),
            queued_bytes: 0,
            is_writable: true,
            output: Output::default(),
            events: VecDeque::new(),
            going_away: GoingAway::No,
            closing: None,
            is_closed_for_abuse: false,
            written: 0,
            read_progress: None,
            limits,
        };
        connection.send_settings();
        connection
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

    /// The number of bytes that the connection holds for its client: incomplete frames, and responses.
    pub fn held_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |it| it.fragments.len());
        self.input.len() + block + self.queued_bytes
    }

    /// True if the connection was closed because its client misused the protocol. Its applications should be cancelled.
    pub fn is_closed_for_abuse(&self) -> bool {
        self.is_closed_for_abuse
    }

    /// True if the request is open and its response is not complete.
    pub fn is_waited_for(&self, stream_id: u64) -> bool {
        self.exchanges.is_unanswered(stream_id)
    }

    /// Handles that the transport accepts more output, or does not.
    pub fn set_writable(&mut self, is_writable: bool) {
        self.is_writable = is_writable;
    }

    /// Stops or continues giving credit for content, because the server has no memory for this client.
    pub fn set_credit_withheld(&mut self, is_withheld: bool) {
        self.is_credit_withheld = is_withheld;
        self.give_credit();
    }
}
