//! Limits the completions that a loop iteration handles while the host receives from streams itself
//! (`transport::stream`).
//!
//! The callbacks after a loop iteration handle the received bytes, and the tasks that they wake run in the next loop
//! iteration. If many streams have much data at the same time, all their bytes would be received before the first are
//! handled: they would no longer be in the processor's cache, and the heap would grow and shrink by all of them. So
//! such a loop iteration handles only a few completions. Receives through the ring are not limited, because many of
//! them in one loop iteration make it cheap.
//!
//! With this limit, 100 connections that receive 100 KiB each through `StreamReader` take a third to a half less
//! processor time.

pub(crate) struct ReceiveBudget {
    /// The number of bytes that the host has received in this loop iteration.
    received: usize,
    /// The maximum number of completions in a loop iteration.
    limit: usize,
    /// The number of loop iterations with this limit in which fewer than [`BYTES_PER_ITERATION`] bytes were received.
    iterations: u32,
}

impl ReceiveBudget {
    pub(crate) fn new() -> Self {
        Self {
            received: 0,
            limit: usize::MAX,
            iterations: 0,
        }
    }

    /// Records that the host has received `bytes` bytes.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.received += bytes;
    }

    /// Begins a loop iteration. Returns the maximum number of completions that it may handle.
    pub(crate) fn next_iteration(&mut self) -> usize {
        if std::mem::take(&mut self.received) > BYTES_PER_ITERATION {
            (self.limit, self.iterations) = (LIMIT_MIN, 0);
        } else if self.limit != usize::MAX {
            self.iterations += 1;
            if self.iterations == ITERATIONS_BEFORE_MORE {
                self.iterations = 0;
                self.limit *= 2;
            }
            if self.limit > LIMIT_MAX {
                self.limit = usize::MAX;
            }
        }
        self.limit
    }
}

/// The number of bytes that a loop iteration should receive at most: about the size of a processor core's cache.
const BYTES_PER_ITERATION: usize = 1 << 20;
/// The lowest limit of completions. If the host receives for only so few, it receives fewer than
/// [`BYTES_PER_ITERATION`] bytes in most cases.
const LIMIT_MIN: usize = 8;
/// A limit above this value is not applied, because a loop iteration never has so many completions.
const LIMIT_MAX: usize = 256;
/// The limit doubles after this number of loop iterations. If a loop iteration then receives too much, it falls to
/// [`LIMIT_MIN`].
const ITERATIONS_BEFORE_MORE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_completions_at_once_lower_the_budget_of_later_iterations() {
        let mut receive_budget = ReceiveBudget::new();
        assert_eq!(receive_budget.next_iteration(), usize::MAX);
        receive_budget.note(BYTES_PER_ITERATION);
        assert_eq!(
            receive_budget.next_iteration(),
            usize::MAX,
            "this amount is within the budget"
        );
        receive_budget.note(BYTES_PER_ITERATION);
        receive_budget.note(1);
        let limits: Vec<_> = (0..64 * 6 + 1)
            .map(|_| receive_budget.next_iteration())
            .collect();
        let at: Vec<_> = limits.iter().step_by(64).copied().collect();
        assert_eq!(at, [8, 16, 32, 64, 128, 256, usize::MAX]);
    }

    #[test]
    fn the_budget_grows_and_falls_again_if_the_iterations_get_too_long() {
        let mut receive_budget = ReceiveBudget::new();
        receive_budget.note(BYTES_PER_ITERATION + 1);
        let mut tried = 0;
        for _ in 0..6400 {
            let limit = receive_budget.next_iteration();
            tried += usize::from(limit > LIMIT_MIN);
            receive_budget.note(limit * 100 * 1024);
        }
        assert_eq!(tried, 6400 / 65);
    }
}
