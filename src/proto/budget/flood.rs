//! The time at which memory that clients have filled can go back to the system: some seconds after they have gone.
//!
//! One for all endpoints of a process, because they share its heap. Not here: how it goes back (`uringcore_io::heap`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct Flood {
    /// The most that was held since the last flood.
    peak: AtomicUsize,
    /// There is a time in `schedule`.
    is_scheduled: AtomicBool,
    schedule: Mutex<Schedule>,
}

#[derive(Debug, Default)]
struct Schedule {
    at: Option<Instant>,
    last: Option<Instant>,
}

impl Flood {
    /// So much is held now. Returns when the flood will be over.
    pub fn look(&self, now: Instant, held: usize) -> Option<Instant> {
        let mut peak = self.peak.load(Ordering::Relaxed);
        if held > peak {
            peak = self.peak.fetch_max(held, Ordering::Relaxed).max(held);
        }
        let has_gone = peak >= MUCH && held <= peak / 4;
        if !has_gone && !self.is_scheduled.load(Ordering::Relaxed) {
            return None;
        }
        let mut schedule = self.schedule();
        schedule.at = match has_gone {
            true => schedule.at.or_else(|| {
                let after_last = schedule.last.map_or(now, |last| last + INTERVAL);
                Some(after_last.max(now + DELAY))
            }),
            false => None,
        };
        self.is_scheduled
            .store(schedule.at.is_some(), Ordering::Relaxed);
        schedule.at
    }

    /// True once after each flood, when its end is due.
    pub fn take_over(&self, now: Instant) -> bool {
        let mut schedule = self.schedule();
        let is_due = schedule.at.is_some_and(|at| at <= now);
        if is_due {
            schedule.at = None;
            schedule.last = Some(now);
            self.peak.store(0, Ordering::Relaxed);
            self.is_scheduled.store(false, Ordering::Relaxed);
        }
        is_due
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        // Nothing in here panics half-way.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an idle heap may keep.
const MUCH: usize = 16 << 20;
/// Within which programs let go of what was theirs.
const DELAY: Duration = Duration::from_secs(3);
/// Between two floods' ends.
const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_ends_once_and_another_soon_after_waits() {
        let begin = Instant::now();
        let flood = Flood::default();
        assert_eq!(flood.look(begin, MUCH - 1), None);
        assert_eq!(flood.look(begin, 0), None);
        assert_eq!(flood.look(begin, 4 * MUCH), None);
        assert_eq!(flood.look(begin, MUCH + 1), None);
        let at = begin + DELAY;
        assert_eq!(flood.look(begin, MUCH), Some(at));
        // Another endpoint looks, which sees the same end.
        assert_eq!(flood.look(begin + DELAY / 2, 0), Some(at));
        assert!(!flood.take_over(begin));
        assert!(flood.take_over(at) && !flood.take_over(at));
        assert_eq!(flood.look(at + INTERVAL, 0), None);
        flood.look(at, 4 * MUCH);
        assert_eq!(flood.look(at, 0), Some(at + INTERVAL));
    }

    #[test]
    fn a_flood_that_comes_back_is_not_over() {
        let now = Instant::now();
        let flood = Flood::default();
        flood.look(now, 4 * MUCH);
        assert!(flood.look(now, 0).is_some());
        assert_eq!(flood.look(now, 3 * MUCH), None);
        assert!(!flood.take_over(now + 2 * DELAY));
    }
}
