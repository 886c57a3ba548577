//! Conversion between Python's clock (any float of seconds that only grows) and the state machine's `Instant`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maps the first time from Python to the moment at which the clock was made.
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

    /// Makes a clock that runs by itself: the caller's seconds are those of this machine (CLOCK_MONOTONIC), as in every
    /// event loop, and the time is `now`.
    pub fn running(now: f64) -> Self {
        Self {
            origin: Some(now),
            ..Self::new()
        }
    }

    /// `now` as an instant. A time before the first one counts as that one.
    pub fn instant(&mut self, now: f64) -> Instant {
        let origin = *self.origin.get_or_insert(now);
        let passed = Duration::try_from_secs_f64(now - origin).unwrap_or_default();
        // Timers are set to later instants, which must not overflow.
        self.base + passed.min(PASSED_MAX)
    }

    /// `instant` in Python's seconds, rounded up, so that a timer is due at that time.
    pub fn seconds(&self, instant: Instant) -> f64 {
        let passed = instant.saturating_duration_since(self.base).as_secs_f64();
        self.origin.unwrap_or(0.0) + passed + ROUNDING
    }
}

/// A longer time than any program runs.
const PASSED_MAX: Duration = Duration::from_secs(1 << 40);

/// More than the rounding error of an `f64` of seconds since the machine's start.
const ROUNDING: f64 = 1e-6;

/// The wall-clock time of an instant, by one read of both clocks.
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

    /// Seconds since 1970 at an instant. `None` is the time at which the clocks were read.
    pub fn seconds(&self, at: Option<Instant>) -> f64 {
        let at = at.unwrap_or(self.instant);
        let later = at.saturating_duration_since(self.instant).as_secs_f64();
        let earlier = self.instant.saturating_duration_since(at).as_secs_f64();
        self.wall + later - earlier
    }
}
