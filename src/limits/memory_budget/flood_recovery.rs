//! The return of memory that clients have filled to the system, some seconds after a flood.
//!
//! All endpoints of a process share one, because they share the heap. Not here: how the heap is trimmed
//! (`uringcore_io::heap_trim`).
//!
//! A flood has ended when the clients' data, or their connections, have fallen to a quarter of their peak,
//! and the peak was at least a sixteenth of the budget (between 16 MiB and 32 MiB). The heap is trimmed three
//! seconds later.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct FloodRecovery {
    /// The smallest peak that counts as a flood.
    least: usize,
    /// The peak of each kind since the last flood. Kinds are separate so that the steady load of one does not hide
    /// the drop of another.
    peaks: [AtomicUsize; KINDS],
    /// True if `schedule` has a time.
    is_scheduled: AtomicBool,
    schedule: Mutex<Schedule>,
}

#[derive(Debug, Default)]
struct Schedule {
    at: Option<Instant>,
    last: Option<Instant>,
}

impl FloodRecovery {
    /// Creates the state for a budget of this limit.
    pub fn within(limit: usize) -> Self {
        Self {
            least: (limit / PART).clamp(LEAST, MOST),
            peaks: Default::default(),
            is_scheduled: AtomicBool::default(),
            schedule: Mutex::default(),
        }
    }

    /// Records the bytes of each kind that are held now: by connections themselves, and beside them. Returns when
    /// the flood will be over.
    pub fn observe(&self, now: Instant, held: [usize; KINDS]) -> Option<Instant> {
        let mut has_gone = false;
        for (peak, held) in self.peaks.iter().zip(held) {
            let mut most = peak.load(Ordering::Relaxed);
            if held > most {
                most = peak.fetch_max(held, Ordering::Relaxed).max(held);
            }
            has_gone |= most >= self.least && held <= most / RECEDED;
        }
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
    pub fn take_end(&self, now: Instant) -> bool {
        let mut schedule = self.schedule();
        let is_due = schedule.at.is_some_and(|at| at <= now);
        if is_due {
            schedule.at = None;
            schedule.last = Some(now);
            for peak in &self.peaks {
                peak.store(0, Ordering::Relaxed);
            }
            self.is_scheduled.store(false, Ordering::Relaxed);
        }
        is_due
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        // No code that holds this lock panics, so the state is whole.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const KINDS: usize = 2;
/// A flood is over when this part of its peak is left.
const RECEDED: usize = 4;
/// An idle heap may keep this part of the budget, clamped to the bounds below.
const PART: usize = 16;
const LEAST: usize = 16 << 20;
const MOST: usize = 32 << 20;
/// Time for programs to release their own memory.
const DELAY: Duration = Duration::from_secs(3);
/// Minimum time between the ends of two floods.
const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_ends_once_and_the_end_of_a_second_one_is_delayed() {
        let begin = Instant::now();
        let flood = FloodRecovery::within(0);
        assert_eq!(flood.observe(begin, [LEAST - 1, 0]), None);
        assert_eq!(flood.observe(begin, [0, 0]), None);
        assert_eq!(flood.observe(begin, [4 * LEAST, 0]), None);
        assert_eq!(flood.observe(begin, [LEAST + 1, 0]), None);
        let at = begin + DELAY;
        assert_eq!(flood.observe(begin, [LEAST, 0]), Some(at));
        // A second endpoint that calls this gets an equal time.
        assert_eq!(flood.observe(begin + DELAY / 2, [0, 0]), Some(at));
        assert!(!flood.take_end(begin));
        assert!(flood.take_end(at) && !flood.take_end(at));
        assert_eq!(flood.observe(at + INTERVAL, [0, 0]), None);
        flood.observe(at, [4 * LEAST, 0]);
        assert_eq!(flood.observe(at, [0, 0]), Some(at + INTERVAL));
    }

    #[test]
    fn a_flood_that_grows_again_has_not_ended() {
        let now = Instant::now();
        let flood = FloodRecovery::within(0);
        flood.observe(now, [4 * LEAST, 0]);
        assert!(flood.observe(now, [0, 0]).is_some());
        assert_eq!(flood.observe(now, [3 * LEAST, 0]), None);
        assert!(!flood.take_end(now + 2 * DELAY));
    }

    #[test]
    fn the_fall_of_one_kind_is_seen_beside_a_steady_load_of_the_other() {
        let now = Instant::now();
        for (before, after) in [([8, 4], [8, 0]), ([4, 8], [0, 8])] {
            let flood = FloodRecovery::within(0);
            let scaled = |held: [usize; KINDS]| held.map(|count| count * LEAST);
            assert_eq!(flood.observe(now, scaled(before)), None);
            assert_eq!(flood.observe(now, scaled(after)), Some(now + DELAY));
            assert!(flood.take_end(now + DELAY));
            assert_eq!(flood.observe(now + DELAY, scaled(after)), None);
        }
    }

    #[test]
    fn a_peak_counts_as_a_flood_from_a_sixteenth_of_the_budget_within_bounds() {
        let now = Instant::now();
        for (limit, least) in [
            (PART * LEAST * 3 / 2, LEAST * 3 / 2),
            (4 * PART * MOST, MOST),
            (usize::MAX, MOST),
        ] {
            let flood = FloodRecovery::within(limit);
            flood.observe(now, [least - 1, least - 1]);
            assert_eq!(flood.observe(now, [0, 0]), None);
            flood.observe(now, [least, 0]);
            assert!(flood.observe(now, [0, 0]).is_some());
        }
    }
}
