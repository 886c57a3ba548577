//! One request and its response, as far as the connection needs both.
//!
//! Not here: the state of the application (the host's).

use std::time::{Duration, Instant};

use super::datagram::Datagrams;
use super::response_priority::ResponsePriority;
use super::stalled_responses::Writing;

/// An open exchange: from its request's header section until the host has finished it.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The whole request has arrived.
    pub ended: bool,
    /// The whole response was passed to QUIC, or it was abandoned.
    pub answered: bool,
    /// The client does not wait for it any more.
    pub is_abandoned: bool,
    /// The final response's head was sent.
    pub has_begun: bool,
    /// The host waits for content.
    pub reading: Option<Reading>,
    /// The host waits for room.
    pub writing: Option<Writing>,
    /// The priority of the response.
    pub priority: ResponsePriority,
    pub datagrams: Datagrams,
}

/// The host waits for content of the request.
#[derive(Debug)]
pub(super) struct Reading {
    pub since: Instant,
    /// The earlier waiting time, and the received bytes: slow content is timed as a whole.
    pub waited: Duration,
    pub received: u64,
    pub is_waiting: bool,
}

impl Exchange {
    pub fn new(ended: bool) -> Self {
        Self {
            ended,
            answered: false,
            is_abandoned: false,
            has_begun: false,
            reading: None,
            writing: None,
            priority: ResponsePriority::default(),
            datagrams: Datagrams::default(),
        }
    }

    /// Counts received content; `ended` is true with the last.
    pub fn received(&mut self, size: usize, ended: bool, now: Instant) {
        self.ended |= ended;
        if ended {
            self.reading = None;
        } else if let Some(reading) = &mut self.reading {
            reading.received += size as u64;
            reading.stop_waiting(now);
        }
    }

    /// The host begins to wait for content.
    pub fn wait(&mut self, now: Instant) {
        if self.ended || self.answered {
            return;
        }
        let reading = self.reading.get_or_insert(Reading {
            since: now,
            waited: Duration::ZERO,
            received: 0,
            is_waiting: false,
        });
        if !reading.is_waiting {
            reading.is_waiting = true;
            reading.since = now;
        }
    }
}

impl Reading {
    fn stop_waiting(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_waiting) {
            self.waited += now.saturating_duration_since(self.since);
        }
    }

    /// True if the client's time has run out: `timeout` for the next piece, or, for all pieces together, the
    /// time that they take at `rate` bytes a second.
    pub fn is_over(&self, timeout: Duration, rate: u64, now: Instant) -> bool {
        if !self.is_waiting {
            return false;
        }
        let waiting = now.saturating_duration_since(self.since);
        let earned = Duration::from_secs(self.received / rate.max(1));
        waiting > timeout || self.waited + waiting > timeout + earned
    }
}
