//! The heap of scheduled handles, ordered by due time, then by the order of scheduling.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::Python;

use crate::cell::GilCell;
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

    /// A handle in the heap was cancelled (asyncio's own; ours count themselves).
    pub fn count_cancelled(&mut self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// A handle that left the heap through `pop_due` had been counted as cancelled.
    pub fn uncount_cancelled(&mut self) {
        let count = self.cancelled.load(Relaxed);
        self.cancelled.store(count.saturating_sub(1), Relaxed);
    }

    fn mostly_cancelled(&self) -> bool {
        let cancelled = self.cancelled.load(Relaxed);
        self.heap.len() > PRUNE_FROM && cancelled * 2 > self.heap.len()
    }

    /// The earliest handle and what tells it from another one that came to its place.
    fn first(&self, py: Python<'_>) -> Option<(u64, AnyHandle)> {
        let timer = self.heap.peek()?;
        Some((timer.sequence, timer.handle.clone_ref(py)))
    }

    fn pop_if_first(&mut self, sequence: u64) -> Option<Timer> {
        if self.heap.peek()?.sequence == sequence {
            self.heap.pop()
        } else {
            None
        }
    }
}

/// Takes out what was cancelled: from the front always, everywhere once it is more than half of a
/// large heap (asyncio's rule).
///
/// What asyncio's own handles (debug mode) are asked and told could run Python, which may do anything
/// to the heap; so that happens outside of the cell, and what it adds meanwhile stays.
pub fn prune(timers: &GilCell<Timers>, py: Python<'_>) {
    if timers.with(py, |timers| timers.cancelled.load(Relaxed)) == 0 {
        return;
    }
    if rebuild(timers, py) {
        return;
    }
    while let Some((sequence, first)) = timers.with(py, |timers| timers.first(py)) {
        if !first.is_cancelled(py) {
            return;
        }
        if let Some(timer) = timers.with(py, |timers| timers.pop_if_first(sequence)) {
            bury(timers, py, timer);
        }
    }
}

/// Takes out everything that was cancelled, where that is most of a large heap. Also done when a timer
/// is added: time-outs that a long turn sets and cancels would pile up until its end, and the garbage
/// collector go through all of them again and again.
pub fn rebuild(timers: &GilCell<Timers>, py: Python<'_>) -> bool {
    let heap = timers.with(py, |timers| {
        let all = timers.mostly_cancelled();
        all.then(|| std::mem::take(&mut timers.heap))
    });
    let Some(heap) = heap else {
        return false;
    };
    let (dead, live): (Vec<_>, Vec<_>) = heap
        .into_vec()
        .into_iter()
        .partition(|timer| timer.handle.is_cancelled(py));
    timers.with(py, |timers| timers.heap.extend(live));
    dead.into_iter().for_each(|timer| bury(timers, py, timer));
    true
}

fn bury(timers: &GilCell<Timers>, py: Python<'_>, timer: Timer) {
    timer.handle.leave_heap(py);
    timers.with(py, Timers::uncount_cancelled);
}

/// A heap smaller than this is not worth rebuilding (asyncio's `_MIN_SCHEDULED_TIMER_HANDLES`).
const PRUNE_FROM: usize = 100;
