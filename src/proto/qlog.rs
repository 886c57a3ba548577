//! What a connection's packets say, as qlog events (draft-ietf-quic-qlog-main-schema-02 and
//! draft-ietf-quic-qlog-quic-events, which qvis reads).
//!
//! - `frames`: a packet's payload in words.
//! - `header`: its header.
//! - `parameters`: transport parameters.
//! - `json`: writing JSON.
//!
//! A [`Recorder`] belongs to one connection and is fed by its packet keys (`tls::tap`), which see
//! every packet in the clear, and by the connection. The data of an event is JSON; what it is called
//! and when it happened is beside it. Not here: files, the wall clock, what a host adds of its own.

mod frames;
mod header;
mod json;
mod parameters;

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use json::Object;
pub(crate) use parameters::ConnectionIds;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When; `None` while no time had been named.
    pub at: Option<Instant>,
    /// Category and type, as qlog joins them: `transport:packet_sent`.
    pub name: &'static str,
    /// The event's data, a JSON object.
    pub data: String,
}

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// Which keys a packet was sealed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Initial,
    Handshake,
    Data,
}

/// A packet in the clear.
pub(crate) struct Packet<'a> {
    pub direction: Direction,
    pub level: Level,
    pub number: u64,
    pub header: &'a [u8],
    pub payload: &'a [u8],
    pub tag_len: usize,
}

/// What recovery knows, for `recovery:metrics_updated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metrics {
    pub congestion_window: u64,
    pub smoothed_rtt: Duration,
    pub min_rtt: Duration,
    pub packets_lost: u64,
}

/// The events of one connection since they were taken last: the newest [`EVENTS_MAX`].
#[derive(Debug, Default)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now: Option<Instant>,
    events: VecDeque<Recorded>,
    metrics: Option<Metrics>,
    /// How the peer scales the delays in its ACK frames (RFC 9000 section 18.2).
    peer_ack_delay_exponent: Option<u32>,
    has_remote_parameters: bool,
}

impl Recorder {
    /// The events so far, which are forgotten here.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.state().events).into()
    }

    /// From now on it is `now`.
    pub(crate) fn set_time(&self, now: Instant) {
        self.state().now = Some(now);
    }

    pub(crate) fn packet(&self, packet: &Packet<'_>) {
        let mut state = self.state();
        let exponent = match packet.direction {
            Direction::Sent => ACK_DELAY_EXPONENT,
            Direction::Received => state.peer_ack_delay_exponent.unwrap_or(ACK_DELAY_EXPONENT),
        };
        let mut data = Object::new();
        data.raw("frames", &frames::to_json(packet.payload, exponent));
        data.raw("header", &header::to_json(packet));
        let mut raw = Object::new();
        let length = packet.header.len() + packet.payload.len() + packet.tag_len;
        raw.number("length", length as u64);
        data.raw("raw", &raw.finish());
        let name = match packet.direction {
            Direction::Sent => "transport:packet_sent",
            Direction::Received => "transport:packet_received",
        };
        state.push(name, data.finish());
    }

    /// A Retry packet, which no key protects. `header` ends before the token.
    pub(crate) fn retry(&self, header: &[u8], token_len: usize) {
        let mut data = Object::new();
        data.raw("frames", "[]");
        data.raw("header", &header::retry_to_json(header));
        let mut raw = Object::new();
        raw.number("length", (header.len() + token_len) as u64);
        data.raw("raw", &raw.finish());
        self.state()
            .push("transport:packet_received", data.finish());
    }

    /// `count` datagrams of `size` bytes at most and `total` altogether.
    pub(crate) fn datagrams(&self, direction: Direction, total: usize, size: usize) {
        let size = size.clamp(1, total.max(1));
        let mut lengths = json::List::new();
        let mut rest = total;
        while rest > 0 {
            let one = rest.min(size);
            let mut raw = Object::new();
            raw.number("length", (one + UDP_HEADER) as u64);
            raw.number("payload_length", one as u64);
            lengths.raw(&raw.finish());
            rest -= one;
        }
        let mut data = Object::new();
        data.number("count", total.div_ceil(size) as u64);
        data.raw("raw", &lengths.finish());
        let name = match direction {
            Direction::Sent => "transport:datagrams_sent",
            Direction::Received => "transport:datagrams_received",
        };
        self.state().push(name, data.finish());
    }

    pub(crate) fn local_parameters(&self, encoded: &[u8]) {
        let data = parameters::to_json("local", encoded);
        self.state().push("transport:parameters_set", data);
    }

    /// The peer's, the first time that they are given.
    pub(crate) fn remote_parameters(&self, encoded: &[u8]) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.has_remote_parameters, true) {
            state.peer_ack_delay_exponent = parameters::ack_delay_exponent(encoded);
            state.push(
                "transport:parameters_set",
                parameters::to_json("remote", encoded),
            );
        }
    }

    /// Noted when something changed.
    pub(crate) fn metrics(&self, metrics: Metrics) {
        let mut state = self.state();
        let before = state.metrics.replace(metrics);
        if before == Some(metrics) {
            return;
        }
        let mut data = Object::new();
        data.number("cwnd", metrics.congestion_window);
        data.milliseconds("smoothed_rtt", metrics.smoothed_rtt);
        data.milliseconds("min_rtt", metrics.min_rtt);
        data.number("packets_lost", metrics.packets_lost);
        state.push("recovery:metrics_updated", data.finish());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, name: &'static str, data: String) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Recorded {
            at: self.now,
            name,
            data,
        });
    }
}

/// How many events wait to be taken; of more, the oldest are dropped.
pub const EVENTS_MAX: usize = 65_536;
/// RFC 9000 section 18.2, and what quinn-proto uses.
const ACK_DELAY_EXPONENT: u32 = 3;
const UDP_HEADER: usize = 8;
