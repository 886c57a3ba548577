//! One request and its response, as far as the connection has to know both.
//!
//! Not here: what the application has been told and what it has said (the host's).

use std::time::{Duration, Instant};

use super::datagram::Datagrams;
use super::priority::Wishes;
use super::stalls::Writing;

/// An open exchange: from its request's header section to the moment when the host is done with it.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The whole request has arrived.
    pub ended: bool,
    /// The response has been handed to QUIC whole, or given up.
    pub answered: bool,
    /// Nobody waits for it any more.
    pub is_abandoned: bool,
    /// The final response's head has left.
    pub has_begun: bool,
    /// The host waits for content.
    pub reading: Option<Reading>,
    /// The host waits for room.
    pub writing: Option<Writing>,
    /// How the response is to be served beside others.
    pub wishes: Wishes,
    pub datagrams: Datagrams,
}

/// The host waits for content of the request.
#[derive(Debug)]
pub(super) struct Reading {
    pub since: Instant,
    /// What it has waited before, and how much has come in all: what trickles in is timed as a whole.
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
            wishes: Wishes::default(),
            datagrams: Datagrams::default(),
        }
    }

    /// So much content has come, and `ended` says whether it was the last.
    pub fn received(&mut self, size: usize, ended: bool, now: Instant) {
        self.ended |= ended;
        if ended {
            self.reading = None;
        } else if let Some(reading) = &mut self.reading {
            reading.received += size as u64;
            reading.rest(now);
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
    fn rest(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_waiting) {
            self.waited += now.saturating_duration_since(self.since);
        }
    }

    /// True if the client has had its time: `timeout` for the next piece, or for all of them together what
    /// `rate` bytes a second take.
    pub fn is_over(&self, timeout: Duration, rate: u64, now: Instant) -> bool {
        if !self.is_waiting {
            return false;
        }
        let waiting = now.saturating_duration_since(self.since);
        let earned = Duration::from_secs(self.received / rate.max(1));
        waiting > timeout || self.waited + waiting > timeout + earned
    }
}
