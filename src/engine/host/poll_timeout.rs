//! The longest time that a loop iteration without work may block in the kernel.
//!
//! The deadlines come from timers, QUIC sockets and queues of operations.

use std::time::{Duration, Instant};

/// The time until the earliest deadline. Without a deadline (`None`) a loop iteration blocks until an operation
/// completes or the host is woken. A clock is read only if it has a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollTimeout(Option<Duration>);

impl PollTimeout {
    /// The time-out for [`Engine::enter`](crate::Engine::enter).
    pub fn timeout(self) -> Option<Duration> {
        self.0
    }

    /// Shortens the time-out to `limit`.
    pub fn at_most(self, limit: Option<Duration>) -> Self {
        Self(self.0.into_iter().chain(limit).min())
    }

    /// Shortens the time-out to end at `deadline`. If `deadline` has passed, the time-out is zero.
    pub fn until(self, deadline: Option<Instant>, now: impl FnOnce() -> Instant) -> Self {
        self.at_most(deadline.map(|deadline| deadline.saturating_duration_since(now())))
    }

    /// Shortens the time-out to end at `due`, in seconds on the clock of the host's timers.
    pub fn until_due(self, due: Option<f64>, now: impl FnOnce() -> f64) -> Self {
        self.at_most(due.map(|due| Self::seconds(due - now())))
    }

    /// Converts seconds to a duration of at most a day, and negative numbers and NaN to zero. A program may define the
    /// clock, so any value is possible.
    pub fn seconds(seconds: f64) -> Duration {
        let positive = if seconds > 0.0 { seconds } else { 0.0 };
        Duration::from_secs_f64(positive.min(SECONDS_MAX))
    }
}

/// The maximum in seconds: asyncio's MAXIMUM_SELECT_TIMEOUT.
const SECONDS_MAX: f64 = 24.0 * 3600.0;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn without_a_deadline_the_iteration_may_block_forever() {
        let unasked = || -> Instant { panic!("this clock must not be read") };
        let timeout = PollTimeout::default()
            .at_most(None)
            .until(None, unasked)
            .until_due(None, || panic!("this clock must not be read either"));
        assert_eq!(timeout.timeout(), None);
    }

    #[test]
    fn the_earliest_deadline_is_the_time_out() {
        let now = Instant::now();
        let timeout = |timer: u32, deadline: u32, limit: u32| {
            PollTimeout::default()
                .until_due(Some(100.0 + f64::from(timer)), || 100.0)
                .until(Some(now + deadline * SECOND), || now)
                .at_most(Some(limit * SECOND))
                .timeout()
        };
        for (timer, deadline, limit) in [(1, 2, 3), (3, 1, 2), (2, 3, 1), (1, 1, 1)] {
            assert_eq!(timeout(timer, deadline, limit), Some(SECOND));
        }
    }

    #[test]
    fn an_overdue_deadline_gives_a_time_out_of_zero() {
        let now = Instant::now() + SECOND;
        let passed = PollTimeout::default().until(Some(now - SECOND), || now);
        assert_eq!(passed.timeout(), Some(Duration::ZERO));
        let passed = PollTimeout::default().until_due(Some(5.0), || 6.5);
        assert_eq!(passed.timeout(), Some(Duration::ZERO));
        assert_eq!(passed.at_most(Some(SECOND)), passed);
    }

    #[test]
    fn any_value_of_the_clock_gives_a_valid_time_out() {
        assert_eq!(PollTimeout::seconds(0.25), SECOND / 4);
        for none in [-1.0, -0.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(PollTimeout::seconds(none), Duration::ZERO, "{none}");
        }
        for day in [86_400.0, 1e30, f64::INFINITY] {
            assert_eq!(PollTimeout::seconds(day), 86_400 * SECOND, "{day}");
        }
    }
}
