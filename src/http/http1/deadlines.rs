//! The time-outs of a request's content, and of a response that its client has to read.
//!
//! Content has a time-out for each piece, and a minimum rate for all pieces together. A response has a time-out for
//! each read, and a minimum rate with a balance of seconds, which `http3::stalled_responses` explains. Here a
//! connection has one response at a time, so a response needs no share of the client's rate.
//!
//! Not here: the time-out of a header section (`connection`).

use std::time::{Duration, Instant};

use super::limits::Limits;
use crate::message::TooSlow;

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

/// The progress of a response that waits for its client to read.
#[derive(Debug)]
pub(super) struct Stall {
    /// The time since which the client has read nothing.
    since: Instant,
    /// The number of bytes of the connection that the client had read at the time `since`.
    taken: u64,
    /// The time in seconds for which the client may still stay below the minimum rate.
    balance: f64,
}

impl Stall {
    pub fn new(taken: u64, limits: &Limits, now: Instant) -> Self {
        Self {
            since: now,
            taken,
            balance: limits.send_rate_grace.as_secs_f64(),
        }
    }

    /// Updates the balance. `taken` is the number of bytes that the client has read by `now`. Returns the reason if the
    /// response has to be abandoned.
    pub fn check(&mut self, taken: u64, limits: &Limits, now: Instant) -> Option<TooSlow> {
        let gap = now.saturating_duration_since(self.since);
        let read = taken.saturating_sub(self.taken);
        if read == 0 {
            return (gap > limits.send_timeout).then_some(TooSlow::Nothing);
        }
        let grace = limits.send_rate_grace.as_secs_f64();
        let earned = read as f64 / limits.send_rate.max(1) as f64;
        self.balance = (self.balance - gap.as_secs_f64().min(grace) + earned).min(grace);
        self.since = now;
        self.taken = taken;
        (limits.send_rate > 0 && self.balance < 0.0).then_some(TooSlow::Little)
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
            send_timeout: 30 * SECOND,
            send_rate: 100,
            send_rate_grace: 5 * SECOND,
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

    #[test]
    fn a_response_is_abandoned_if_nothing_or_too_little_is_read() {
        let (limits, begin) = (limits(), Instant::now());
        let mut stall = Stall::new(0, &limits, begin);
        assert_eq!(stall.check(0, &limits, begin + 30 * SECOND), None);
        assert_eq!(
            stall.check(0, &limits, begin + 31 * SECOND),
            Some(TooSlow::Nothing)
        );
        let mut stall = Stall::new(0, &limits, begin);
        let mut taken = 0;
        let mut abandoned = None;
        for second in 1..20 {
            taken += 50;
            abandoned = abandoned.or(stall.check(taken, &limits, begin + second * SECOND));
        }
        assert_eq!(abandoned, Some(TooSlow::Little));
        let mut stall = Stall::new(0, &limits, begin);
        let fast = (1..20).map(|second: u32| {
            stall.check(u64::from(second) * 100, &limits, begin + second * SECOND)
        });
        assert!(fast.into_iter().all(|why| why.is_none()));
        let none = Limits {
            send_rate: 0,
            ..limits
        };
        let mut stall = Stall::new(0, &none, begin);
        let slow =
            (1..20).map(|second: u32| stall.check(second.into(), &none, begin + second * SECOND));
        assert!(slow.into_iter().all(|why| why.is_none()));
    }
}
