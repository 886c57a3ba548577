//! One request and its response (an HTTP exchange), as far as the connection tracks them.
//!
//! Not here: the state of the application, which the host has.

use std::time::{Duration, Instant};

use super::http_datagram::Datagrams;
use super::response_priority::ResponsePriority;
use super::slowly_read_responses::Writing;

/// An open exchange. It begins with the request's header section, and ends when the host has finished it.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// True if the whole request has arrived.
    pub ended: bool,
    /// True if the whole response is in QUIC's queues, or was abandoned.
    pub answered: bool,
    /// True if the client has abandoned the request.
    pub is_abandoned: bool,
    /// True if the header section of the final response was sent.
    pub has_begun: bool,
    /// The time-out of the request's content; `None` if the host has never waited for content, or it has ended.
    pub reading: Option<Reading>,
    /// The time-out of the response; `None` if the host does not wait for room in the queues.
    pub writing: Option<Writing>,
    /// The priority of the response.
    pub priority: ResponsePriority,
    pub datagrams: Datagrams,
}

/// How long the host has waited for the request's content.
#[derive(Debug)]
pub(crate) struct Reading {
    pub since: Instant,
    /// The sum of earlier waits, and the number of received bytes. They show if the content is too slow on average.
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

    /// Counts received content of `size` bytes. `ended` is true for the last content.
    pub fn received(&mut self, size: usize, ended: bool, now: Instant) {
        self.ended |= ended;
        if ended {
            self.reading = None;
        } else if let Some(reading) = &mut self.reading {
            reading.received += size as u64;
            reading.stop_waiting(now);
        }
    }

    /// Starts the time-out: the host waits for content now.
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

    /// True if the time-out has expired: the next piece takes longer than `timeout`, or all waits together take longer
    /// than `timeout` and the time that the received bytes last at `rate` bytes a second.
    pub fn is_over(&self, timeout: Duration, rate: u64, now: Instant) -> bool {
        if !self.is_waiting {
            return false;
        }
        let waiting = now.saturating_duration_since(self.since);
        let earned = Duration::from_secs(self.received / rate.max(1));
        waiting > timeout || self.waited + waiting > timeout + earned
    }
}
