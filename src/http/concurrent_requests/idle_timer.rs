//! The time since the last request of a connection. After one second the connection frees unused capacity, and after
//! the keep-alive time it is closed.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct IdleTimer {
    /// The time since which no request is open.
    since: Instant,
    /// True if unused capacity was freed and no data has arrived since.
    is_resting: bool,
}

impl IdleTimer {
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            is_resting: false,
        }
    }

    /// Starts the timer when the last open request has ended.
    pub fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// Records that data has arrived.
    pub fn data_arrived(&mut self) {
        self.is_resting = false;
    }

    /// Records that the connection has freed its unused capacity.
    pub fn capacity_freed(&mut self) {
        self.is_resting = true;
    }

    /// True if the connection has been idle for so long that it should free its unused capacity.
    pub fn may_free_capacity(&self, now: Instant) -> bool {
        !self.is_resting && self.has_lasted(RESTS_AFTER, now)
    }

    /// True if there was no request for longer than `time`.
    pub fn has_lasted(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > time
    }
}

/// The idle time after which a connection frees unused capacity. The next request then costs a few allocations.
const RESTS_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_frees_its_capacity_once_until_data_arrives() {
        let begin = Instant::now();
        let mut idle_timer = IdleTimer::new(begin);
        let later = begin + RESTS_AFTER + Duration::from_millis(1);
        assert!(
            !idle_timer.may_free_capacity(begin + RESTS_AFTER)
                && idle_timer.may_free_capacity(later)
        );
        idle_timer.capacity_freed();
        assert!(!idle_timer.may_free_capacity(later) && idle_timer.has_lasted(RESTS_AFTER, later));
        idle_timer.data_arrived();
        assert!(idle_timer.may_free_capacity(later));
        idle_timer.begin(later);
        assert!(
            !idle_timer.may_free_capacity(later) && !idle_timer.has_lasted(Duration::ZERO, later)
        );
    }
}
