//! Deadlines of connections.
//!
//! A connection's deadline moves with nearly every packet, mostly to later. So a moved deadline is only entered if
//! it is earlier than the entry; an early wake-up checks the real deadline and enters that. Each connection has at
//! most one entry.

use std::{collections::BTreeSet, time::Instant};

#[derive(Default)]
pub(crate) struct Timers {
    entries: BTreeSet<(Instant, usize)>,
}

impl Timers {
    pub fn next(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// Moves the entry of `index`, whose time is in `entered`, to `deadline` if that is earlier.
    pub fn advance(
        &mut self,
        index: usize,
        entered: &mut Option<Instant>,
        deadline: Option<Instant>,
    ) {
        let Some(deadline) = deadline else { return };
        match *entered {
            Some(at) if at <= deadline => return,
            Some(at) => self.entries.remove(&(at, index)),
            None => false,
        };
        self.entries.insert((deadline, index));
        *entered = Some(deadline);
    }

    pub fn remove(&mut self, index: usize, entered: &mut Option<Instant>) {
        if let Some(at) = entered.take() {
            self.entries.remove(&(at, index));
        }
    }

    /// Removes and returns all due entries. The caller clears `entered`.
    pub fn take_due(&mut self, now: Instant) -> Vec<usize> {
        let mut due = Vec::new();
        while self.entries.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(self.entries.pop_first().map(|(_, index)| index));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_earlier_deadlines_move_an_entry_and_there_is_one_each() {
        let begin = Instant::now();
        let at = |seconds| Some(begin + Duration::from_secs(seconds));
        let mut timers = Timers::default();
        let (mut first, mut second) = (None, None);
        timers.advance(1, &mut first, at(10));
        timers.advance(2, &mut second, at(20));
        timers.advance(1, &mut first, at(15));
        timers.advance(1, &mut first, None);
        assert_eq!((timers.next(), first), (at(10), at(10)));
        timers.advance(2, &mut second, at(5));
        assert_eq!((timers.next(), timers.entries.len()), (at(5), 2));
        assert_eq!(timers.take_due(begin + Duration::from_secs(5)), [2]);
        timers.remove(1, &mut first);
        assert_eq!((timers.next(), first), (None, None));
    }
}
