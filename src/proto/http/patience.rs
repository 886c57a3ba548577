//! Header sections that are not complete, in the order in which their streams began.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

/// As many streams as QUIC lets the client open, at most.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    waiting: FxHashSet<u64>,
    /// Those of `waiting`, and some that are not in it any more.
    order: VecDeque<(u64, Instant)>,
}

impl Unfinished {
    /// Something has come, and no header section yet.
    pub fn begun(&mut self, stream_id: u64, now: Instant) {
        if self.waiting.insert(stream_id) {
            self.order.push_back((stream_id, now));
        }
    }

    /// The header section is there, or will never be. True if it had been waited for.
    pub fn ended(&mut self, stream_id: u64) -> bool {
        let was_there = self.waiting.remove(&stream_id);
        if self.waiting.is_empty() {
            self.order.clear();
        }
        was_there
    }

    /// Keeps no room for what is to come.
    pub fn rest(&mut self) {
        self.waiting.shrink_to_fit();
        self.order.shrink_to_fit();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next one that has had its time.
    pub fn take_overdue(&mut self, patience: Duration, now: Instant) -> Option<u64> {
        while let Some(&(stream_id, since)) = self.order.front() {
            let is_waiting = self.waiting.contains(&stream_id);
            if is_waiting && now.saturating_duration_since(since) <= patience {
                return None;
            }
            self.order.pop_front();
            if is_waiting {
                self.waiting.remove(&stream_id);
                return Some(stream_id);
            }
        }
        None
    }
}
