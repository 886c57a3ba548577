//! Which connection is to be woken next.
//!
//! A connection's deadline moves with nearly every packet, mostly to later. So a moved deadline is
//! only entered when it is earlier than the one entered before; a wake-up that comes too early looks
//! at the real deadline and enters that. One entry a connection at any time.

use std::{collections::BTreeSet, time::Instant};

#[derive(Default)]
pub(super) struct Timers {
    entries: BTreeSet<(Instant, usize)>,
}

impl Timers {
    pub fn next(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// Moves the entry of `index`, which `entered` remembers, to `deadline` if that is earlier.
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

    /// Takes out an entry that is due. The caller clears what `entered` remembered.
    pub fn pop_due(&mut self, now: Instant) -> Option<usize> {
        match self.entries.first() {
            Some((at, _)) if *at <= now => self.entries.pop_first().map(|(_, index)| index),
            _ => None,
        }
    }
}
