//! When the memory that clients have filled goes back to the system: after they have gone, and once more for what
//! programs let go of late.
//!
//! Not here: how much they hold (`uringcore_proto::budget`), and the heap (`uringcore_io::heap`).

use std::time::{Duration, Instant};

/// Watches what is held for the end of a flood.
#[derive(Default)]
pub(super) struct Trimming {
    /// The most that was held since the last time.
    peak: usize,
    at: Option<Instant>,
    last: Option<Instant>,
    /// `at` is for what programs have let go of late.
    is_second: bool,
}

impl Trimming {
    /// So much is held now.
    pub fn look(&mut self, now: Instant, held: usize) {
        self.peak = self.peak.max(held);
        let is_over = self.peak >= MUCH && held <= self.peak / 4;
        if is_over && self.at.is_none() {
            let after_last = self.last.map(|last| last + INTERVAL);
            self.at = Some(after_last.map_or(now + DELAY, |at| at.max(now + DELAY)));
        } else if !is_over && !self.is_second {
            self.at = None;
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// True if the heap is to be trimmed now. Said twice after a flood, an interval apart.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.at.is_some_and(|at| at <= now);
        if is_due {
            let is_second = !self.is_second;
            *self = Self {
                peak: 0,
                at: is_second.then(|| now + INTERVAL),
                last: Some(now),
                is_second,
            };
        }
        is_due
    }
}

/// What an idle heap may keep.
const MUCH: usize = 16 << 20;
/// Within which programs let go of what was theirs.
const DELAY: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_that_has_gone_is_trimmed_twice_and_another_soon_after_waits() {
        let begin = Instant::now();
        let mut trimming = Trimming::default();
        trimming.look(begin, MUCH - 1);
        trimming.look(begin, 0);
        assert_eq!(trimming.deadline(), None);
        trimming.look(begin, 4 * MUCH);
        trimming.look(begin, MUCH + 1);
        assert_eq!(trimming.deadline(), None);
        trimming.look(begin, MUCH);
        let at = begin + DELAY;
        assert_eq!(trimming.deadline(), Some(at));
        assert!(!trimming.take_due(begin));
        assert!(trimming.take_due(at) && !trimming.take_due(at));
        let second = at + INTERVAL;
        assert_eq!(trimming.deadline(), Some(second));
        assert!(trimming.take_due(second) && trimming.deadline().is_none());
        trimming.look(second, 4 * MUCH);
        trimming.look(second, 0);
        assert_eq!(trimming.deadline(), Some(second + INTERVAL));
    }

    #[test]
    fn a_flood_that_comes_back_is_not_trimmed() {
        let now = Instant::now();
        let mut trimming = Trimming::default();
        trimming.look(now, 4 * MUCH);
        trimming.look(now, 0);
        trimming.look(now, 3 * MUCH);
        assert!(!trimming.take_due(now + 2 * DELAY));
    }
}
