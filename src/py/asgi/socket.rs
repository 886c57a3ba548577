//! One WebSocket: what has come, what waits for the application, and how it stands.
//!
//! Here: state, which Python sees nothing of. What the messages make of it is in `websocket`.
//!
//! Towards the application so many messages wait as the server's limit says, or [`HELD_HIGH_WATER`] bytes,
//! what has come of a message that is not whole among them; above that the client is stopped, unless the
//! application waits: then one message of the largest size may come, if there is a [`Permit`] for it among the client's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uringcore_proto::permits::{Permit, Permits};
use uringcore_proto::ws::{Close, Event, Fault, Reader, Side, code};

/// What one WebSocket may do: `max_size` bytes of a message, `max_queue` messages that wait for the application.
/// `ping_interval` is in seconds, or None for no pings, and so is `ping_timeout`, within which each is answered.
#[pyclass(frozen, module = "uringcore._uringcore")]
#[derive(Clone)]
pub struct WebSocketLimits {
    max_size: usize,
    max_queue: usize,
    ping_interval: Option<Duration>,
    ping_timeout: Option<Duration>,
}

#[pymethods]
impl WebSocketLimits {
    #[new]
    #[pyo3(signature = (*, max_size, max_queue, ping_interval, ping_timeout))]
    fn new(
        max_size: usize,
        max_queue: usize,
        ping_interval: Option<f64>,
        ping_timeout: Option<f64>,
    ) -> PyResult<Self> {
        let seconds = |name: &str, value: Option<f64>| match value {
            // uvicorn takes 0 for "never".
            None | Some(0.0) => Ok(None),
            Some(value) => Duration::try_from_secs_f64(value).map(Some).map_err(|_| {
                PyValueError::new_err(format!("{name}: not a number of seconds: {value}"))
            }),
        };
        Ok(Self {
            max_size,
            max_queue: max_queue.max(1),
            ping_interval: seconds("ping_interval", ping_interval)?,
            ping_timeout: seconds("ping_timeout", ping_timeout)?,
        })
    }
}

pub struct Socket {
    pub phase: Phase,
    reader: Reader,
    limits: WebSocketLimits,
    /// The application knows that there is somebody.
    pub connect_told: bool,
    /// Messages for the application, and how much they keep.
    queue: VecDeque<Event>,
    queued_bytes: usize,
    /// What has come and is to be read when the queue has room, or when the handshake is done.
    unread: BytesMut,
    /// Nothing follows that.
    fin: bool,
    /// The application waits in `receive`.
    pub is_awaited: bool,
    /// What the last message to the application says.
    pub ended: Option<Close>,
    /// The end was the application's wish.
    pub closed_by_application: bool,
    /// A Ping that is to be answered: of several the last, as RFC 6455 section 5.5.3 allows.
    pub pong: Option<Vec<u8>>,
    next_ping: Option<Instant>,
    ping: Option<Pinged>,
    pings: u32,
    pub permits: Arc<Permits>,
    /// While more is held than everybody may.
    permit: Option<Permit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The application has not answered.
    Connecting,
    /// It answers with a response of HTTP's.
    Denied,
    Open,
    /// Our Close has left, or will never leave.
    Closed,
}

/// A Ping that waits for its Pong.
struct Pinged {
    payload: [u8; 4],
    since: Instant,
}

/// Why no more is read.
pub enum Stop {
    Closed(Close),
    Fault(Fault),
    /// The stream has ended without a word.
    Lost,
}

impl Socket {
    /// `ended`: nothing follows its request. `permits`: its client's for large messages.
    pub fn new(limits: &WebSocketLimits, ended: bool, permits: Arc<Permits>) -> Self {
        Self {
            permits,
            permit: None,
            phase: Phase::Connecting,
            reader: Reader::new(Side::Server, limits.max_size),
            limits: limits.clone(),
            connect_told: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            unread: BytesMut::new(),
            fin: ended,
            is_awaited: false,
            ended: None,
            closed_by_application: false,
            pong: None,
            next_ping: None,
            ping: None,
            pings: 0,
        }
    }

    /// Reads as many messages as may wait, and leaves the rest of `input`.
    fn read(&mut self, input: &mut &[u8]) -> Option<Stop> {
        while self.queue.len() < self.limits.max_queue {
            match self.reader.read(input) {
                Ok(Some(Event::Ping(payload))) => self.pong = Some(payload),
                Ok(Some(Event::Pong(payload))) => {
                    self.ping.take_if(|ping| payload == ping.payload);
                }
                Ok(Some(Event::Close(close))) => return Some(Stop::Closed(close)),
                Ok(Some(message)) => {
                    self.is_awaited = false;
                    self.queued_bytes += message.size();
                    self.queue.push_back(message);
                }
                Ok(None) => return None,
                Err(fault) => return Some(Stop::Fault(fault)),
            }
        }
        None
    }

    /// More has come.
    pub fn received(&mut self, data: &[u8], ended: bool) -> Option<Stop> {
        self.fin |= ended;
        match self.phase {
            Phase::Open if self.unread.is_empty() => {
                let mut rest = data;
                let stop = self.read(&mut rest);
                self.unread.extend_from_slice(rest);
                stop.or_else(|| self.lost())
            }
            Phase::Open => {
                self.unread.extend_from_slice(data);
                self.read_on()
            }
            Phase::Connecting => {
                self.unread.extend_from_slice(data);
                None
            }
            Phase::Denied | Phase::Closed => None,
        }
    }

    /// Reads on where the queue was full.
    pub fn read_on(&mut self) -> Option<Stop> {
        let mut unread = std::mem::take(&mut self.unread);
        let mut rest = &unread[..];
        let stop = self.read(&mut rest);
        let read = unread.len() - rest.len();
        // Without moving what is left: there may be very many small messages.
        unread.advance(read);
        self.unread = unread;
        stop.or_else(|| self.lost())
    }

    /// All has been read, and nothing follows.
    fn lost(&self) -> Option<Stop> {
        (self.fin && self.unread.is_empty()).then_some(Stop::Lost)
    }

    pub fn next(&mut self) -> Option<Event> {
        let message = self.queue.pop_front()?;
        self.queued_bytes -= message.size();
        Some(message)
    }

    /// Whether the client has to wait for the application.
    pub fn is_full(&mut self) -> bool {
        let held = self.queued_bytes + self.unread.len() + self.reader.held_bytes();
        let is_large = held > HELD_HIGH_WATER;
        if !is_large {
            self.permit = None;
        }
        let is_over = self.fin || matches!(self.phase, Phase::Denied | Phase::Closed);
        let is_full = self.queue.len() >= self.limits.max_queue || is_large;
        // Before the handshake is done nothing is read, whoever waits.
        let is_read = self.is_awaited && self.phase == Phase::Open;
        is_full && !is_over && !(is_read && self.may_hold(is_large))
    }

    fn may_hold(&mut self, is_large: bool) -> bool {
        if is_large && self.permit.is_none() {
            self.permit = self.permits.take();
        }
        !is_large || self.permit.is_some()
    }

    /// The application has accepted.
    pub fn open(&mut self, now: Instant) -> Option<Stop> {
        self.phase = Phase::Open;
        self.next_ping = self.limits.ping_interval.map(|interval| now + interval);
        self.read_on()
    }

    /// Nothing more comes of it but what is queued, and then this.
    pub fn end(&mut self, close: Close) {
        self.phase = Phase::Closed;
        self.unread = BytesMut::new();
        self.permit = None;
        self.pong = None;
        self.reader.stop();
        self.ended.get_or_insert(close);
    }

    /// A Ping that is due.
    pub fn take_ping(&mut self, now: Instant) -> Option<[u8; 4]> {
        let interval = self.limits.ping_interval?;
        let is_due = self.next_ping.is_some_and(|next| next <= now);
        if self.phase != Phase::Open || self.ping.is_some() || !is_due {
            return None;
        }
        self.next_ping = Some(now + interval);
        self.pings = self.pings.wrapping_add(1);
        let payload = self.pings.to_be_bytes();
        if self.limits.ping_timeout.is_some() {
            self.ping = Some(Pinged {
                payload,
                since: now,
            });
        }
        Some(payload)
    }

    /// Whether a Ping has not been answered in time. Not while the application keeps us from reading the answer.
    pub fn is_deaf(&mut self, now: Instant) -> bool {
        let is_full = self.is_full();
        match (&mut self.ping, self.limits.ping_timeout) {
            (Some(ping), Some(timeout)) if self.phase == Phase::Open => {
                if is_full {
                    ping.since = now;
                }
                now.saturating_duration_since(ping.since) > timeout
            }
            _ => false,
        }
    }
}

/// The stream has ended without a word.
pub(super) fn abnormal() -> Close {
    Close {
        code: code::ABNORMAL,
        reason: String::new(),
    }
}

/// Bytes that may wait for the application before the client is stopped.
const HELD_HIGH_WATER: usize = 256 * 1024;
