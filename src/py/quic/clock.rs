//! Python's clock (any float of seconds that only grows) beside the state machine's `Instant`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Ties the first time that Python names to the moment when the clock was made.
pub struct Clock {
    base: Instant,
    origin: Option<f64>,
}

impl Clock {
    pub fn new() -> Self {
        Self {
            base: Instant::now(),
            origin: None,
        }
    }

    /// A clock that runs by itself: it is `now`, and the caller's seconds are this machine's
    /// (CLOCK_MONOTONIC), as those of every event loop are.
    pub fn running(now: f64) -> Self {
        Self {
            origin: Some(now),
            ..Self::new()
        }
    }

    /// `now` as an instant. A time before the first one named counts as that one.
    pub fn instant(&mut self, now: f64) -> Instant {
        let origin = *self.origin.get_or_insert(now);
        let passed = Duration::try_from_secs_f64(now - origin).unwrap_or_default();
        // Timers are set to later moments than this, which have to be moments as well.
        self.base + passed.min(PASSED_MAX)
    }

    /// `instant` in Python's seconds, rounded up, so that a timer set to it finds itself due.
    pub fn seconds(&self, instant: Instant) -> f64 {
        let passed = instant.saturating_duration_since(self.base).as_secs_f64();
        self.origin.unwrap_or(0.0) + passed + ROUNDING
    }
}

/// Of a program's clock: longer than it can run.
const PASSED_MAX: Duration = Duration::from_secs(1 << 40);

/// More than what an `f64` of seconds since the machine's start can lose.
const ROUNDING: f64 = 1e-6;

/// The wall clock's time of an instant, by one look at both clocks.
#[derive(Clone, Copy)]
pub struct WallTime {
    instant: Instant,
    /// Seconds since 1970 at `instant`.
    wall: f64,
}

impl WallTime {
    pub fn now() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |passed| passed.as_secs_f64());
        Self {
            instant: Instant::now(),
            wall,
        }
    }

    /// Seconds since 1970; `None` is when the clocks were looked at.
    pub fn seconds(&self, at: Option<Instant>) -> f64 {
        let at = at.unwrap_or(self.instant);
        let later = at.saturating_duration_since(self.instant).as_secs_f64();
        let earlier = self.instant.saturating_duration_since(at).as_secs_f64();
        self.wall + later - earlier
    }
}
