//! The most completions that a turn takes while the host receives from streams (`transport::stream`).
//!
//! The callbacks after a turn handle its received bytes; tasks that were woken run in the next turn. If many streams have
//! much data at once, their bytes leave the processor's cache, and the heap grows and shrinks by all of them, before the
//! first is handled. So such a turn takes a few completions at a time. Receives through the ring are not limited: many of
//! them in a turn make it cheap.
//!
//! With this limit, 100 connections with 100 KiB each through `StreamReader` take a third to a half less processor time.

pub(crate) struct ReceiveBudget {
    /// Bytes that the host has received in this turn.
    received: usize,
    /// The most completions of a turn.
    limit: usize,
    /// Turns with this limit that received less than [`BYTES_PER_TURN`].
    turns: u32,
}

impl ReceiveBudget {
    pub(crate) fn new() -> Self {
        Self {
            received: 0,
            limit: usize::MAX,
            turns: 0,
        }
    }

    /// The host has received `bytes` bytes.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.received += bytes;
    }

    /// A turn begins: returns the most completions that it takes.
    pub(crate) fn next_turn(&mut self) -> usize {
        if std::mem::take(&mut self.received) > BYTES_PER_TURN {
            (self.limit, self.turns) = (LIMIT_MIN, 0);
        } else if self.limit != usize::MAX {
            self.turns += 1;
            if self.turns == TURNS_BEFORE_MORE {
                self.turns = 0;
                self.limit *= 2;
            }
            if self.limit > LIMIT_MAX {
                self.limit = usize::MAX;
            }
        }
        self.limit
    }
}

/// About the size of a processor core's cache.
const BYTES_PER_TURN: usize = 1 << 20;
/// This number of receives by the host stays below [`BYTES_PER_TURN`].
const LIMIT_MIN: usize = 8;
/// A higher limit has no effect.
const LIMIT_MAX: usize = 256;
/// After this number of turns the limit doubles. If that is too much, the next turn sets it back.
const TURNS_BEFORE_MORE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_completions_at_once_lower_the_budget_of_later_turns() {
        let mut receive_budget = ReceiveBudget::new();
        assert_eq!(receive_budget.next_turn(), usize::MAX);
        receive_budget.note(BYTES_PER_TURN);
        assert_eq!(
            receive_budget.next_turn(),
            usize::MAX,
            "this amount is within the budget"
        );
        receive_budget.note(BYTES_PER_TURN);
        receive_budget.note(1);
        let limits: Vec<_> = (0..64 * 6 + 1)
            .map(|_| receive_budget.next_turn())
            .collect();
        let at: Vec<_> = limits.iter().step_by(64).copied().collect();
        assert_eq!(at, [8, 16, 32, 64, 128, 256, usize::MAX]);
    }

    #[test]
    fn the_budget_grows_and_falls_again_if_the_turns_get_too_long() {
        let mut receive_budget = ReceiveBudget::new();
        receive_budget.note(BYTES_PER_TURN + 1);
        let mut tried = 0;
        for _ in 0..6400 {
            let limit = receive_budget.next_turn();
            tried += usize::from(limit > LIMIT_MIN);
            receive_budget.note(limit * 100 * 1024);
        }
        assert_eq!(tried, 6400 / 65);
    }
}
