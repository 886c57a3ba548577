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
    pub fn data_arrived(&mut self) {
        self.is_resting = false;
    }

    /// Unused capacity was freed.
    pub fn capacity_freed(&mut self) {
        self.is_resting = true;
    }

    /// True if unused capacity can be freed.
    pub fn may_free_capacity(&self, now: Instant) -> bool {
        !self.is_resting && self.has_lasted(RESTS_AFTER, now)
    }

    /// True if there were no requests for longer than `time`.
    pub fn has_lasted(&self, time: Duration, now: Instant) -> bool {
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
        let mut idle_timer = IdleTimer::new(begin);
        let later = begin + RESTS_AFTER + Duration::from_millis(1);
        assert!(!idle_timer.may_free_capacity(begin + RESTS_AFTER) && idle_timer.may_free_capacity(later));
        idle_timer.capacity_freed();
        assert!(!idle_timer.may_free_capacity(later) && idle_timer.has_lasted(RESTS_AFTER, later));
        idle_timer.data_arrived();
        assert!(idle_timer.may_free_capacity(later));
        idle_timer.begin(later);
        assert!(!idle_timer.may_free_capacity(later) && !idle_timer.has_lasted(Duration::ZERO, later));
    }
}
