//! The heap of scheduled handles, ordered by due time, then by the order of scheduling.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::Python;

use crate::handle::AnyHandle;

pub struct Timer {
    /// Seconds on the loop's clock.
    pub when: f64,
    sequence: u64,
    pub handle: AnyHandle,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    /// Reversed: `BinaryHeap` gives its greatest first, and the earliest timer has to come first.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .when
            .total_cmp(&self.when)
            .then_with(|| other.sequence.cmp(&self.sequence))
    }
}

#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Timer>,
    sequence: u64,
    /// Handles in the heap that were cancelled: shared with the handles.
    pub cancelled: Arc<AtomicUsize>,
}

impl Timers {
    pub fn push(&mut self, when: f64, handle: AnyHandle) {
        self.sequence += 1;
        self.heap.push(Timer {
            when,
            sequence: self.sequence,
            handle,
        });
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Timer> {
        self.heap.iter()
    }

    /// When the next handle is due.
    pub fn next_due(&self) -> Option<f64> {
        self.heap.peek().map(|timer| timer.when)
    }

    /// The next handle that is due before `end`.
    pub fn pop_due(&mut self, end: f64) -> Option<AnyHandle> {
        if self.heap.peek()?.when < end {
            self.heap.pop().map(|timer| timer.handle)
        } else {
            None
        }
    }

    /// A handle that left the heap through `pop_due` had been counted as cancelled.
    pub fn uncount_cancelled(&mut self) {
        let count = self.cancelled.load(Relaxed);
        self.cancelled.store(count.saturating_sub(1), Relaxed);
    }

    /// Takes out what was cancelled: from the front always, everywhere once it is more than half of a
    /// large heap (asyncio's rule). The caller drops the result outside its borrow.
    pub fn prune(&mut self, py: Python<'_>) -> Vec<AnyHandle> {
        let mut pruned = Vec::new();
        let cancelled = self.cancelled.load(Relaxed);
        if cancelled == 0 {
            return pruned;
        }
        if self.heap.len() > PRUNE_FROM && cancelled * 2 > self.heap.len() {
            let (dead, live): (Vec<_>, Vec<_>) = std::mem::take(&mut self.heap)
                .into_vec()
                .into_iter()
                .partition(|timer| timer.handle.is_cancelled(py));
            self.heap = live.into();
            pruned.extend(dead.into_iter().map(|timer| timer.handle));
        } else {
            while self
                .heap
                .peek()
                .is_some_and(|timer| timer.handle.is_cancelled(py))
            {
                pruned.extend(self.heap.pop().map(|timer| timer.handle));
            }
        }
        self.cancelled
            .fetch_sub(pruned.len().min(cancelled), Relaxed);
        pruned
    }
}

/// A heap smaller than this is not worth rebuilding (asyncio's `_MIN_SCHEDULED_TIMER_HANDLES`).
const PRUNE_FROM: usize = 100;
