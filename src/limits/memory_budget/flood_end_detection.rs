//! Detects the end of a flood of clients' data, after which freed memory is returned to the system.
//!
//! All endpoints of a process share one detector, because they share the heap. Not here: trimming the heap
//! (`uringcore_io::heap_trim`).
//!
//! A flood has ended when the bytes of one kind (data, or the connections themselves) have fallen to a quarter of
//! their peak, and the peak was at least a sixteenth of the budget (between 16 MiB and 32 MiB). The heap is trimmed
//! three seconds later.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct FloodRecovery {
    /// The smallest peak, in bytes, that counts as a flood.
    least: usize,
    /// The peak of each kind of bytes since the last flood: connections themselves, and data. The kinds are separate
    /// so that a steady load of one kind does not hide the fall of the other.
    peaks: [AtomicUsize; KINDS],
    /// True if `schedule.at` is set. It is read without the lock of `schedule`.
    is_scheduled: AtomicBool,
    schedule: Mutex<Schedule>,
}

#[derive(Debug, Default)]
struct Schedule {
    at: Option<Instant>,
    last: Option<Instant>,
}

impl FloodRecovery {
    /// Makes a detector for a budget of `limit` bytes.
    pub fn within(limit: usize) -> Self {
        Self {
            least: (limit / PART).clamp(LEAST, MOST),
            peaks: Default::default(),
            is_scheduled: AtomicBool::default(),
            schedule: Mutex::default(),
        }
    }

    /// Records the bytes of each kind that are held now: those of connections themselves, and data. Returns the time
    /// at which a flood that has receded counts as ended.
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

    /// True once after each flood of data, when the time of its end has come.
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
        // No code panics while it holds this lock, so the schedule is consistent even if the mutex is poisoned.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const KINDS: usize = 2;
/// A flood has receded when the held bytes have fallen to the peak divided by this number.
const RECEDED: usize = 4;
/// A peak counts as a flood from this part of the budget (a sixteenth) on, but at least `LEAST` and at most `MOST`
/// bytes.
const PART: usize = 16;
const LEAST: usize = 16 << 20;
const MOST: usize = 32 << 20;
/// The heap is trimmed this long after the flood has receded, so that programs can free their own memory first.
const DELAY: Duration = Duration::from_secs(3);
/// The minimum time between the ends of two floods.
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
        // A second endpoint that observes the same flood gets the same time.
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
