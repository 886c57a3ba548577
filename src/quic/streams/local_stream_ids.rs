//! The IDs of this side's streams of one direction (RFC 9000 section 2.1): those that are used, those that
//! quinn-proto has opened, and those that wait for the peer's limit.

use std::{collections::BTreeSet, ops::Range};

/// This side's streams of one direction, by index (the ID without its two lowest bits).
#[derive(Default)]
pub(crate) struct LocalStreamIds {
    /// The highest used index plus one.
    pub next: u64,
    /// The number of streams that quinn-proto has opened.
    pub opened: u64,
    /// Indices that are used, but whose streams the peer's limit does not allow yet.
    pub waiting: BTreeSet<u64>,
    /// Indices below `next` that the application has skipped. It may still use them.
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

    /// True if `index` was used, even if its stream has ended.
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
