//! The time-outs of a request's content: one for each piece, and a minimum rate for all pieces together.
//!
//! Not here: the time-out of a header section (`connection`), and responses that are not read
//! (`slow_reader_detection`).

use std::time::{Duration, Instant};

use super::limits::Limits;

/// How long the host has waited for the content of a request.
#[derive(Debug, Default)]
pub(super) struct ContentWait {
    /// The begin of the current wait; `None` if the host does not wait.
    since: Option<Instant>,
    /// The sum of earlier waits.
    waited: Duration,
    /// The number of received bytes.
    received: u64,
}

impl ContentWait {
    /// Starts the time-out, because the host waits for content now.
    pub fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Counts received content, which ends the current wait.
    pub fn received(&mut self, bytes: usize, now: Instant) {
        self.received += bytes as u64;
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }

    /// True if the time-out has expired: the next piece takes longer than the time-out, or all waits together take
    /// longer than the time-out and the time that the received bytes last at the minimum rate.
    pub fn is_over(&self, limits: &Limits, now: Instant) -> bool {
        let Some(since) = self.since else {
            return false;
        };
        let waiting = now.saturating_duration_since(since);
        let earned = Duration::from_secs(self.received / limits.body_rate.max(1));
        waiting > limits.body_timeout || self.waited + waiting > limits.body_timeout + earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits {
            body_timeout: 10 * SECOND,
            body_rate: 100,
            ..Limits::default()
        }
    }

    #[test]
    fn content_has_a_time_for_a_piece_and_a_rate_for_all() {
        let (limits, begin) = (limits(), Instant::now());
        let mut wait = ContentWait::default();
        assert!(!wait.is_over(&limits, begin + 1000 * SECOND));
        wait.begin(begin);
        wait.begin(begin + 5 * SECOND);
        assert!(!wait.is_over(&limits, begin + 10 * SECOND));
        assert!(wait.is_over(&limits, begin + 11 * SECOND));
        // At the minimum rate, 1,000 bytes last ten seconds, which the client gets in addition.
        wait.received(1000, begin + 8 * SECOND);
        assert!(!wait.is_over(&limits, begin + 1000 * SECOND));
        for second in [20, 30] {
            wait.begin(begin + second * SECOND);
            assert!(!wait.is_over(&limits, begin + (second + 6) * SECOND));
            wait.received(1, begin + (second + 6) * SECOND);
        }
        wait.begin(begin + 50 * SECOND);
        assert!(wait.is_over(&limits, begin + 51 * SECOND));
    }
}
