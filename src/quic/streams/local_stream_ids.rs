//! The IDs of this side's streams of one direction (RFC 9000 section 2.1): used IDs, streams that the state machine
//! has opened, and streams that wait for the peer's limit.

use std::{collections::BTreeSet, ops::Range};

/// Our streams of one direction, by index.
#[derive(Default)]
pub(crate) struct LocalStreamIds {
    /// The index after the highest used one.
    pub next: u64,
    /// How many the state machine has opened.
    pub opened: u64,
    /// Used, but not opened because of the peer's limit.
    pub waiting: BTreeSet<u64>,
    /// Skipped indices below `next` that may still be used.
    skipped: Vec<Range<u64>>,
}

impl LocalStreamIds {
    /// Marks `index` as used. False if it was used before.
    pub fn claim(&mut self, index: u64) -> bool {
        if index >= self.next {
            if index > self.next {
                self.skipped.push(self.next..index);
            }
            self.next = index + 1;
            return true;
        }
        let Some(at) = self.skipped.iter().position(|range| range.contains(&index)) else {
            return false;
        };
        let range = self.skipped.swap_remove(at);
        let parts = [range.start..index, index + 1..range.end];
        self.skipped
            .extend(parts.into_iter().filter(|part| !part.is_empty()));
        true
    }

    /// True if `index` was ever used.
    pub fn was_claimed(&self, index: u64) -> bool {
        index < self.next && !self.skipped.iter().any(|range| range.contains(&index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_claimed_once_in_any_order() {
        let mut local_ids = LocalStreamIds::default();
        for index in [5, 0, 3, 1_000_000_000_000, 4, 7, 6, 1, 2] {
            assert!(!local_ids.was_claimed(index), "{index} before");
            assert!(local_ids.claim(index), "{index}");
            assert!(local_ids.was_claimed(index), "{index} after");
            assert!(!local_ids.claim(index), "{index} again");
        }
        assert_eq!(local_ids.next, 1_000_000_000_001);
        assert_eq!(local_ids.skipped.len(), 1);
        assert_eq!(local_ids.skipped[0], 8..1_000_000_000_000);
    }
}
