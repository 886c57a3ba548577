//! An ordered set of deadlines: of connections, of clients that wait to be accepted, and of an application's
//! endpoints.
//!
//! Each owner stores the time of its own entry (`entered`), so the set needs no second index. A connection's deadline
//! moves with nearly every packet, mostly to a later time. So [`advance`](Deadlines::advance) moves an entry only to
//! an earlier time: when the old entry is due, the owner compares it with its real deadline, and enters that one.

use std::{collections::BTreeSet, time::Instant};

/// The deadlines of all owners. `K` identifies an owner, which has at most one entry.
#[derive(Debug)]
pub struct Deadlines<K>(BTreeSet<(Instant, K)>);

/// The earlier of two times. `None`: none.
#[inline]
pub fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Sets the deadline of `key`. `entered` is the time of its present entry.
    pub fn set(&mut self, key: K, entered: &mut Option<Instant>, deadline: Option<Instant>) {
        if *entered != deadline {
            self.remove(key, entered);
            if let Some(at) = deadline {
                self.0.insert((at, key));
            }
            *entered = deadline;
        }
    }

    /// Sets the deadline of `key` to `deadline`, unless the set has an earlier entry for the key.
    pub fn advance(&mut self, key: K, entered: &mut Option<Instant>, deadline: Option<Instant>) {
        let Some(at) = deadline else { return };
        if entered.is_none_or(|entered| at < entered) {
            self.set(key, entered, deadline);
        }
    }

    pub fn remove(&mut self, key: K, entered: &mut Option<Instant>) {
        if let Some(at) = entered.take() {
            self.0.remove(&(at, key));
        }
    }

    /// Removes and returns the earliest key, if its deadline has come. The caller must set the `entered` of that key to
    /// `None`.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let is_due = self.next().is_some_and(|at| at <= now);
        is_due.then(|| self.0.pop_first())?.map(|(_, key)| key)
    }

    /// Removes and returns all keys whose deadline has come. The caller must set the `entered` of each to `None`.
    pub fn take_due(&mut self, now: Instant) -> Vec<K> {
        std::iter::from_fn(|| self.pop_due(now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(begin: Instant, seconds: u64) -> Option<Instant> {
        Some(begin + Duration::from_secs(seconds))
    }

    #[test]
    fn advance_moves_an_entry_only_to_an_earlier_time() {
        let begin = Instant::now();
        let at = |seconds| after(begin, seconds);
        let mut deadlines = Deadlines::default();
        let (mut first, mut second) = (None, None);
        deadlines.advance(1, &mut first, at(10));
        deadlines.advance(2, &mut second, at(20));
        deadlines.advance(1, &mut first, at(15));
        deadlines.advance(1, &mut first, None);
        assert_eq!((deadlines.next(), first), (at(10), at(10)));
        deadlines.advance(2, &mut second, at(5));
        assert_eq!((deadlines.next(), deadlines.0.len()), (at(5), 2));
        assert_eq!(deadlines.take_due(begin + Duration::from_secs(5)), [2]);
        deadlines.remove(1, &mut first);
        assert_eq!((deadlines.next(), first), (None, None));
    }

    #[test]
    fn set_moves_an_entry_to_any_time() {
        let begin = Instant::now();
        let at = |seconds| after(begin, seconds);
        let mut deadlines = Deadlines::default();
        let mut entered = None;
        for deadline in [at(10), at(15), at(15), at(5)] {
            deadlines.set('a', &mut entered, deadline);
            assert_eq!((deadlines.next(), entered), (deadline, deadline));
            assert_eq!(deadlines.0.len(), 1);
        }
        deadlines.set('a', &mut entered, None);
        assert!(deadlines.is_empty() && entered.is_none());
    }

    #[test]
    fn due_entries_are_sorted_by_time_and_then_by_key() {
        let begin = Instant::now();
        let mut deadlines = Deadlines::default();
        for (key, seconds) in [(3, 1), (1, 2), (2, 1), (4, 3)] {
            deadlines.set(key, &mut None, after(begin, seconds));
        }
        assert_eq!(deadlines.pop_due(begin), None);
        assert_eq!(
            deadlines.take_due(begin + Duration::from_secs(2)),
            [2, 3, 1]
        );
        assert_eq!(deadlines.pop_due(begin + Duration::from_secs(3)), Some(4));
    }
}
