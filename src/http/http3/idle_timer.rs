//! The time without requests: after a short one unused capacity is freed, after a long one the connection ends.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct IdleTimer {
    /// Since when no request is open.
    since: Instant,
    /// Nothing has arrived since unused capacity was freed.
    is_resting: bool,
}

impl IdleTimer {
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            is_resting: false,
        }
    }

    /// The last request has ended.
    pub fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// Something has arrived.
    pub fn disturb(&mut self) {
        self.is_resting = false;
    }

    /// Unused capacity was freed.
    pub fn rested(&mut self) {
        self.is_resting = true;
    }

    /// True if unused capacity can be freed.
    pub fn may_rest(&self, now: Instant) -> bool {
        !self.is_resting && self.lasts(RESTS_AFTER, now)
    }

    /// True if there were no requests for longer than `time`.
    pub fn lasts(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > time
    }
}

/// The idle time after which a connection frees its capacity: the client's next requests cost a few allocations once.
const RESTS_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_frees_its_capacity_once_until_data_arrives() {
        let begin = Instant::now();
        let mut quiet = IdleTimer::new(begin);
        let later = begin + RESTS_AFTER + Duration::from_millis(1);
        assert!(!quiet.may_rest(begin + RESTS_AFTER) && quiet.may_rest(later));
        quiet.rested();
        assert!(!quiet.may_rest(later) && quiet.lasts(RESTS_AFTER, later));
        quiet.disturb();
        assert!(quiet.may_rest(later));
        quiet.begin(later);
        assert!(!quiet.may_rest(later) && !quiet.lasts(Duration::ZERO, later));
    }
}
