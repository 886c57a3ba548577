//! The order in which streams send their content (RFC 9218 section 10).
//!
//! The most urgent streams come first. Among streams of equal urgency, those that are not incremental come first, one
//! after the other in the order of their identifiers; the incremental ones take turns, a frame at a time.

use std::collections::{BTreeSet, VecDeque};

use uringcore_h3::Priority;

/// Streams that have content and a window.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// The streams by urgency. Empty until a stream has to wait.
    levels: Vec<Level>,
    len: usize,
}

#[derive(Debug, Default)]
struct Level {
    sequential: BTreeSet<u32>,
    incremental: VecDeque<u32>,
}

impl Scheduler {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a stream behind the others of its kind. The scheduler must not have it.
    pub fn add(&mut self, stream_id: u32, priority: Priority) {
        if self.levels.is_empty() {
            self.levels.resize_with(URGENCIES, Level::default);
        }
        let urgency = usize::from(priority.urgency).min(URGENCIES - 1);
        let level = &mut self.levels[urgency];
        match priority.incremental {
            true => level.incremental.push_back(stream_id),
            false => {
                level.sequential.insert(stream_id);
            }
        }
        self.len += 1;
    }

    /// Removes the stream that sends next.
    pub fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let next = self.levels.iter_mut().find_map(|level| {
            let first = level.sequential.pop_first();
            first.or_else(|| level.incremental.pop_front())
        });
        self.len -= usize::from(next.is_some());
        next
    }

    /// Removes a stream, wherever it is.
    pub fn remove(&mut self, stream_id: u32) {
        for level in &mut self.levels {
            let place = level.incremental.iter().position(|&it| it == stream_id);
            let is_found = match place {
                Some(at) => level.incremental.remove(at).is_some(),
                None => level.sequential.remove(&stream_id),
            };
            if is_found {
                self.len -= 1;
                return;
            }
        }
    }

    /// Frees unused capacity.
    pub fn free_capacity(&mut self) {
        if self.is_empty() {
            self.levels = Vec::new();
        }
    }
}

/// The number of urgencies (RFC 9218 section 4.1).
const URGENCIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority {
            urgency,
            incremental,
        }
    }

    #[test]
    fn urgent_streams_come_first_then_sequential_ones_by_their_identifiers() {
        let mut scheduler = Scheduler::default();
        scheduler.add(1, priority(3, true));
        scheduler.add(9, priority(3, false));
        scheduler.add(7, priority(3, false));
        scheduler.add(11, priority(1, true));
        scheduler.add(3, priority(3, true));
        scheduler.remove(3);
        scheduler.remove(5);
        let order = Vec::from_iter(std::iter::from_fn(|| scheduler.pop()));
        assert_eq!(order, [11, 7, 9, 1]);
        assert!(scheduler.is_empty());
    }

    #[test]
    fn incremental_streams_take_turns() {
        let mut scheduler = Scheduler::default();
        for stream_id in [1, 3, 5] {
            scheduler.add(stream_id, priority(3, true));
        }
        let mut order = Vec::new();
        for _ in 0..6 {
            let stream_id = scheduler.pop().expect("a stream");
            order.push(stream_id);
            scheduler.add(stream_id, priority(3, true));
        }
        assert_eq!(order, [1, 3, 5, 1, 3, 5]);
    }
}
