//! Timers, sorted by the time at which they are due. Any timer can be removed without a search.
//!
//! Most timers of a server are time-outs of equal length that are cancelled before they are due. They are set in the
//! order in which they are due, so they form a *run*: a new timer is added at the end, and the next timer that is due
//! is at the front. Timers that are out of order are in a heap. Each entry has the index of its slot, and each slot
//! has the position of its entry in the run or in the heap, so a cancelled timer is removed without a search. Its
//! position in the run stays vacant until the entries around it are gone, or until half of the run is vacant; so
//! vacancies do not accumulate. The host defines the items and the clock.

use std::collections::VecDeque;

/// Items with a time each, sorted by that time. Items with equal times keep the order in which they were added.
pub struct Timers<T> {
    /// Entries in the order of time. The first and the last entry are not vacant.
    run: VecDeque<TimerEntry>,
    /// The number of the first entry of the run. Entries are numbered in order, modulo 2^32.
    first: u32,
    vacancies: usize,
    /// A binary heap: each entry is due no later than those at `2i + 1` and `2i + 2`.
    heap: Vec<TimerEntry>,
    slots: Vec<TimerSlot<T>>,
    /// The index of the first free slot. Free slots are linked by `TimerSlot::at`.
    free: u32,
    sequence: u64,
}

/// The key of a timer, which is never used for another timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerKey {
    slot: u32,
    sequence: u64,
}

#[derive(Clone, Copy)]
struct TimerEntry {
    when: f64,
    sequence: u64,
    /// The index of the slot; `NONE` for a vacant position of the run.
    slot: u32,
}

impl TimerEntry {
    fn is_before(&self, other: &Self) -> bool {
        let order = self.when.total_cmp(&other.when);
        order.then(self.sequence.cmp(&other.sequence)).is_lt()
    }
}

struct TimerSlot<T> {
    /// The number of the entry in the run, or its index in the heap. In a free slot, the index of the next free slot.
    at: u32,
    in_run: bool,
    sequence: u64,
    item: Option<T>,
}

/// The position of the timer with the earliest time.
enum NextTimer {
    Run,
    Heap,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            run: VecDeque::new(),
            first: 0,
            vacancies: 0,
            heap: Vec::new(),
            slots: Vec::new(),
            free: NONE,
            sequence: 0,
        }
    }
}

impl<T> Timers<T> {
    pub fn len(&self) -> usize {
        self.run.len() - self.vacancies + self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.run.is_empty() && self.heap.is_empty()
    }

    /// All items, unsorted.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.item.as_ref())
    }

    /// The time at which the next timer is due, in seconds on the host's clock.
    pub fn next_due(&self) -> Option<f64> {
        self.next().map(|(when, _)| when)
    }

    fn next(&self) -> Option<(f64, NextTimer)> {
        match (self.run.front(), self.heap.first()) {
            (None, None) => None,
            (Some(run), Some(heap)) if heap.is_before(run) => Some((heap.when, NextTimer::Heap)),
            (Some(run), _) => Some((run.when, NextTimer::Run)),
            (None, Some(heap)) => Some((heap.when, NextTimer::Heap)),
        }
    }

    /// Sets a timer. `when` is in seconds on the host's clock, and must not be NaN.
    pub fn push(&mut self, when: f64, item: T) -> TimerKey {
        debug_assert!(!when.is_nan());
        self.sequence += 1;
        let sequence = self.sequence;
        let in_run = self.run.back().is_none_or(|last| last.when <= when);
        let slot = self.take_slot(TimerSlot {
            at: self.first.wrapping_add(self.run.len() as u32),
            in_run,
            sequence,
            item: Some(item),
        });
        let entry = TimerEntry {
            when,
            sequence,
            slot,
        };
        if in_run {
            self.run.push_back(entry);
        } else {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1);
        }
        TimerKey { slot, sequence }
    }

    /// Removes a timer. `None` if it was removed before.
    pub fn remove(&mut self, key: TimerKey) -> Option<T> {
        let slot = self.slots.get(key.slot as usize)?;
        if slot.sequence != key.sequence || slot.item.is_none() {
            return None;
        }
        let at = slot.at;
        if slot.in_run {
            self.vacate(at.wrapping_sub(self.first) as usize);
        } else {
            self.take_from_heap(at as usize);
        }
        self.free_slot(key.slot)
    }

    /// Removes and returns the earliest timer whose time is before `end`.
    pub fn pop_due(&mut self, end: f64) -> Option<T> {
        let (when, next) = self.next()?;
        if when >= end {
            return None;
        }
        let slot = match next {
            NextTimer::Run => {
                let slot = self.run[0].slot;
                self.vacate(0);
                slot
            }
            NextTimer::Heap => self.take_from_heap(0),
        };
        self.free_slot(slot)
    }

    /// Finds a timer for which `is_wanted` returns true, by visiting all timers in any order.
    pub fn find(&self, is_wanted: impl Fn(&T) -> bool) -> Option<TimerKey> {
        let (index, slot) = self
            .slots
            .iter()
            .enumerate()
            .find(|(_, slot)| slot.item.as_ref().is_some_and(&is_wanted))?;
        Some(TimerKey {
            slot: index as u32,
            sequence: slot.sequence,
        })
    }

    fn take_slot(&mut self, slot: TimerSlot<T>) -> u32 {
        let index = self.free;
        match self.slots.get_mut(index as usize) {
            Some(free) => {
                self.free = free.at;
                *free = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Frees the slot of a timer and returns the timer's item.
    fn free_slot(&mut self, index: u32) -> Option<T> {
        let slot = &mut self.slots[index as usize];
        slot.at = self.free;
        self.free = index;
        let item = slot.item.take();
        if self.is_empty() && self.slots.len() > SLOTS_KEPT {
            // No timer is left, so the memory that many timers have used is freed. The counter of keys continues, so
            // that old keys stay unique.
            (self.run, self.heap, self.slots) = Default::default();
            self.free = NONE;
        }
        item
    }

    /// Makes the position of the run at `index` vacant.
    fn vacate(&mut self, index: usize) {
        self.run[index].slot = NONE;
        self.vacancies += 1;
        while self.run.back().is_some_and(|entry| entry.slot == NONE) {
            self.run.pop_back();
            self.vacancies -= 1;
        }
        while self.run.front().is_some_and(|entry| entry.slot == NONE) {
            self.run.pop_front();
            // Numbers are modulo 2^32. The run never has so many entries.
            self.first = self.first.wrapping_add(1);
            self.vacancies -= 1;
        }
        if self.vacancies > VACANCIES_MIN && self.vacancies > self.run.len() / 2 {
            self.compact();
        }
    }

    /// Removes the vacant positions of the run. Since the last time, at least as many timers were removed as are moved
    /// now.
    fn compact(&mut self) {
        self.run.retain(|entry| entry.slot != NONE);
        self.vacancies = 0;
        let mut number = self.first;
        for entry in &self.run {
            self.slots[entry.slot as usize].at = number;
            number = number.wrapping_add(1);
        }
    }

    /// Removes an entry from the heap. Returns the index of its slot.
    fn take_from_heap(&mut self, at: usize) -> u32 {
        let entry = self.heap.swap_remove(at);
        if at < self.heap.len() {
            // The last entry of the heap was moved to this position, and may belong further up or down.
            if self.rise(at) == at {
                self.sink(at);
            }
        }
        entry.slot
    }

    /// Moves an entry of the heap up to its position, which is returned.
    fn rise(&mut self, mut at: usize) -> usize {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if !entry.is_before(&self.heap[parent]) {
                break;
            }
            self.place(at, self.heap[parent]);
            at = parent;
        }
        self.place(at, entry);
        at
    }

    /// Moves an entry of the heap down to its position.
    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let left = 2 * at + 1;
            let Some(mut least) = self.heap.get(left).map(|_| left) else {
                break;
            };
            if let Some(right) = self.heap.get(left + 1)
                && right.is_before(&self.heap[left])
            {
                least = left + 1;
            }
            if !self.heap[least].is_before(&entry) {
                break;
            }
            self.place(at, self.heap[least]);
            at = least;
        }
        self.place(at, entry);
    }

    fn place(&mut self, at: usize, entry: TimerEntry) {
        self.heap[at] = entry;
        self.slots[entry.slot as usize].at = at as u32;
    }
}

const NONE: u32 = u32::MAX;
const SLOTS_KEPT: usize = 1_024;
/// The run is compacted only if it has at least this many vacant positions.
const VACANCIES_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_of_equal_time_expire_in_the_order_of_their_creation() {
        let mut timers = Timers::default();
        for item in 0..100 {
            timers.push(f64::from(item % 3), item);
        }
        let all: Vec<_> = std::iter::from_fn(|| timers.pop_due(f64::INFINITY)).collect();
        let mut expected: Vec<_> = (0..100).collect();
        expected.sort_by_key(|item| item % 3);
        assert_eq!(all, expected);
    }

    #[test]
    fn a_timer_stays_until_it_is_due() {
        let mut timers = Timers::default();
        timers.push(2.0, "later");
        timers.push(1.0, "now");
        assert_eq!(timers.next_due(), Some(1.0));
        assert_eq!(timers.pop_due(1.0), None);
        assert_eq!(timers.pop_due(1.5), Some("now"));
        assert_eq!(timers.pop_due(1.5), None);
        assert_eq!(timers.len(), 1);
    }

    #[test]
    fn a_timer_key_is_valid_once() {
        let mut timers = Timers::default();
        let first = timers.push(1.0, 1);
        assert_eq!(timers.remove(first), Some(1));
        let second = timers.push(1.0, 2);
        assert_eq!(first.slot, second.slot, "the slot is used again");
        assert_eq!(timers.remove(first), None);
        assert_eq!(timers.find(|item| *item == 2), Some(second));
        assert_eq!(timers.pop_due(2.0), Some(2));
        assert_eq!(timers.remove(second), None);
        assert!(timers.is_empty());
    }

    #[test]
    fn the_memory_of_a_burst_of_timers_is_freed() {
        let mut timers = Timers::default();
        let keys: Vec<_> = (0..10_000).map(|item| timers.push(0.0, item)).collect();
        assert!(keys.iter().all(|key| timers.remove(*key).is_some()));
        let kept = timers.slots.capacity() + timers.run.capacity() + timers.heap.capacity();
        assert_eq!(kept, 0);
        timers.push(0.0, 0);
        assert_eq!(timers.remove(keys[0]), None);
    }

    /// Time-outs of equal length that are set and cancelled, behind a timer that stays. Neither the run nor the slots
    /// grow.
    #[test]
    fn vacant_slots_do_not_accumulate() {
        let mut timers = Timers::default();
        timers.push(0.0, 0);
        let mut live = VecDeque::new();
        for number in 1..100_000 {
            live.push_back((number, timers.push(f64::from(number), number)));
            if live.len() > 10 {
                let (item, key) = live.pop_front().expect("ten");
                assert_eq!(timers.remove(key), Some(item));
            }
            assert_eq!(timers.len(), live.len() + 1);
            assert!(timers.run.len() <= 2 * VACANCIES_MIN + 22);
        }
        assert!(timers.heap.is_empty() && timers.slots.len() < 20);
        let all: Vec<_> = std::iter::from_fn(|| timers.pop_due(f64::INFINITY)).collect();
        let left = live.iter().map(|(item, _)| *item);
        assert_eq!(all, std::iter::once(0).chain(left).collect::<Vec<_>>());
        assert!(timers.is_empty());
    }

    /// Compares the timers with a list that is sorted after each operation. Half of the times are in order.
    #[test]
    fn random_operations_match_a_sorted_list() {
        let mut random = 1_u64;
        let mut next = move |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut timers = Timers::default();
        let mut model: Vec<(u64, u64, TimerKey)> = Vec::new();
        for number in 0..20_000 {
            match next(5) {
                0..=2 if model.len() < 200 => {
                    let last = model.iter().map(|(when, ..)| *when).max();
                    let when = match next(2) {
                        0 => next(50),
                        _ => last.unwrap_or(0).min(49),
                    };
                    let key = timers.push(when as f64, number);
                    model.push((when, number, key));
                }
                3 if !model.is_empty() => {
                    let (_, item, key) = model.remove(next(model.len() as u64) as usize);
                    assert_eq!(timers.remove(key), Some(item));
                }
                _ => {
                    model.sort_by_key(|(when, item, _)| (*when, *item));
                    let end = next(50);
                    let due = model.first().is_some_and(|(when, ..)| *when < end);
                    let expected = due.then(|| model.remove(0).1);
                    assert_eq!(timers.pop_due(end as f64), expected);
                }
            }
            assert_eq!(timers.len(), model.len());
            let least = model.iter().map(|(when, ..)| *when).min();
            assert_eq!(timers.next_due(), least.map(|when| when as f64));
        }
        assert!(timers.slots.len() <= 200);
    }

    /// The numbers of entries in the run pass from 2^32 - 1 to 0 while timers are set, removed, moved and due.
    #[test]
    fn heap_positions_are_found_when_slot_numbers_wrap() {
        let mut timers = Timers {
            first: u32::MAX - 100,
            ..Timers::default()
        };
        let keys: Vec<_> = (0..400)
            .map(|item| timers.push(f64::from(item), item))
            .collect();
        assert_eq!(timers.run.len(), 400);
        // Removes three of four timers, before and after the wrap of the counter. Their positions stay vacant until the
        // run is compacted.
        for item in (0..400).filter(|item| item % 4 != 3) {
            assert_eq!(timers.remove(keys[item as usize]), Some(item));
        }
        assert!(timers.run.len() < 300, "{} places", timers.run.len());
        assert_eq!(timers.remove(keys[203]), Some(203));
        let due: Vec<_> = std::iter::from_fn(|| timers.pop_due(f64::INFINITY)).collect();
        let left = (0..400).filter(|item| item % 4 == 3 && *item != 203);
        assert_eq!(due, left.collect::<Vec<_>>());
        assert!(timers.first < 400, "{}", timers.first);
    }
}
