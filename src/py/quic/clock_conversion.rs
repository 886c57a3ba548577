//! Conversion between Python's clock (a float of seconds from any origin, which never decreases) and the state
//! machine's `Instant`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock of the program. The first time that the program passes corresponds to the moment at which this object was
/// made.
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

    /// Makes a clock that advances by itself: the program's seconds are those of CLOCK_MONOTONIC, as in every event
    /// loop, and the current time is `now`.
    pub fn running(now: f64) -> Self {
        Self {
            origin: Some(now),
            ..Self::new()
        }
    }

    /// Converts `now` to an instant. A time before the first converted one becomes that first instant, because clocks
    /// here never run backwards.
    pub fn instant(&mut self, now: f64) -> Instant {
        let origin = *self.origin.get_or_insert(now);
        let passed = Duration::try_from_secs_f64(now - origin).unwrap_or_default();
        // The limit keeps sums of the result and timer intervals in the range of `Instant`.
        self.base + passed.min(PASSED_MAX)
    }

    /// Converts `instant` to Python's seconds. The result is rounded up, so that a timer that fires at that time is not
    /// early.
    pub fn seconds(&self, instant: Instant) -> f64 {
        let passed = instant.saturating_duration_since(self.base).as_secs_f64();
        self.origin.unwrap_or(0.0) + passed + ROUNDING
    }
}

/// The longest time after the start of the clock. No program runs so long.
const PASSED_MAX: Duration = Duration::from_secs(1 << 40);

/// Seconds that are added to a time: more than the rounding error of an `f64` of the seconds since the machine's
/// start.
const ROUNDING: f64 = 1e-6;

/// The wall-clock time of an instant, calculated from one read of both clocks.
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

    /// The wall-clock time of `at` in seconds since 1970. `None` means the moment at which the clocks were read.
    pub fn seconds(&self, at: Option<Instant>) -> f64 {
        let at = at.unwrap_or(self.instant);
        let later = at.saturating_duration_since(self.instant).as_secs_f64();
        let earlier = self.instant.saturating_duration_since(at).as_secs_f64();
        self.wall + later - earlier
    }
}
