//! Finds clients that read nothing of what was written to their TCP connection, or too little.
//!
//! There is a time-out for each read, and a minimum rate with a balance of seconds, which
//! `concurrent_requests::slowly_read_responses` explains. This covers the bytes of the whole connection, so no response
//! needs a share of the client's rate.

use std::time::{Duration, Instant};

use crate::response_errors::TooSlow;

/// How long a client may take to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The time in which a client must read something.
    pub timeout: Duration,
    /// The minimum rate in bytes per second. 0 means no minimum.
    pub rate: u64,
    /// The time for which a client may stay below the rate.
    pub grace: Duration,
}

/// The progress of written bytes that wait for its client to read.
#[derive(Debug)]
pub(crate) struct ReadProgress {
    /// The time since which the client has read nothing.
    since: Instant,
    /// The number of bytes of the connection that the client had read at the time `since`.
    taken: u64,
    /// The time in seconds for which the client may still stay below the minimum rate.
    balance: f64,
}

impl ReadProgress {
    pub fn new(taken: u64, patience: Patience, now: Instant) -> Self {
        Self {
            since: now,
            taken,
            balance: patience.grace.as_secs_f64(),
        }
    }

    /// Updates the balance. `taken` is the number of bytes that the client has read by `now`. Returns the reason if the
    /// response has to be abandoned.
    pub fn check(&mut self, taken: u64, patience: Patience, now: Instant) -> Option<TooSlow> {
        let gap = now.saturating_duration_since(self.since);
        let read = taken.saturating_sub(self.taken);
        if read == 0 {
            return (gap > patience.timeout).then_some(TooSlow::Nothing);
        }
        let grace = patience.grace.as_secs_f64();
        let earned = read as f64 / patience.rate.max(1) as f64;
        self.balance = (self.balance - gap.as_secs_f64().min(grace) + earned).min(grace);
        self.since = now;
        self.taken = taken;
        (patience.rate > 0 && self.balance < 0.0).then_some(TooSlow::Little)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_response_is_abandoned_if_nothing_or_too_little_is_read() {
        let begin = Instant::now();
        let patience = Patience {
            timeout: 30 * SECOND,
            rate: 100,
            grace: 5 * SECOND,
        };
        let mut progress = ReadProgress::new(0, patience, begin);
        assert_eq!(progress.check(0, patience, begin + 30 * SECOND), None);
        assert_eq!(
            progress.check(0, patience, begin + 31 * SECOND),
            Some(TooSlow::Nothing)
        );
        let mut progress = ReadProgress::new(0, patience, begin);
        let mut taken = 0;
        let mut abandoned = None;
        for second in 1..20 {
            taken += 50;
            abandoned = abandoned.or(progress.check(taken, patience, begin + second * SECOND));
        }
        assert_eq!(abandoned, Some(TooSlow::Little));
        let mut progress = ReadProgress::new(0, patience, begin);
        let fast = (1..20).map(|second: u32| {
            progress.check(u64::from(second) * 100, patience, begin + second * SECOND)
        });
        assert!(fast.into_iter().all(|why| why.is_none()));
        let none = Patience {
            rate: 0,
            ..patience
        };
        let mut progress = ReadProgress::new(0, none, begin);
        let slow =
            (1..20).map(|second: u32| progress.check(second.into(), none, begin + second * SECOND));
        assert!(slow.into_iter().all(|why| why.is_none()));
    }
}
