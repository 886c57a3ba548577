//! How much a turn takes on where its streams are left to the host to receive from (`stream`).
//!
//! What a turn receives is worked off by the callbacks after it: tasks that were woken run in the next
//! turn. Where many streams have much at once, their bytes leave the processor's cache, and the heap grows
//! and shrinks by all of them, before the first is looked at. So such turns take a few at a time. Streams
//! whose receives the kernel makes are not held back: their number in a turn is what makes a turn cheap.

pub(crate) struct Pace {
    /// In this turn so far.
    received: usize,
    /// So many turns take a few.
    slow_turns: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            received: 0,
            slow_turns: 0,
        }
    }

    /// The host has received so much.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.received += bytes;
    }

    /// How many completions the turn that begins takes on.
    pub(crate) fn next_turn(&mut self) -> usize {
        if std::mem::take(&mut self.received) > BYTES_PER_TURN {
            self.slow_turns = SLOW_TURNS;
        }
        if self.slow_turns == 0 {
            return usize::MAX;
        }
        self.slow_turns -= 1;
        COMPLETIONS_OF_SLOW_TURN
    }
}

/// What a processor's own cache holds. A few large receives are less.
const BYTES_PER_TURN: usize = 1 << 20;
const COMPLETIONS_OF_SLOW_TURN: usize = 8;
/// Turns until it is seen again whether all at once is still too much.
const SLOW_TURNS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_at_once_slows_the_turns_after_it() {
        let mut pace = Pace::new();
        assert_eq!(pace.next_turn(), usize::MAX);
        pace.note(BYTES_PER_TURN);
        assert_eq!(pace.next_turn(), usize::MAX, "so much is not too much");
        pace.note(BYTES_PER_TURN);
        pace.note(1);
        for _ in 0..SLOW_TURNS {
            assert_eq!(pace.next_turn(), COMPLETIONS_OF_SLOW_TURN);
        }
        assert_eq!(pace.next_turn(), usize::MAX);
    }
}
