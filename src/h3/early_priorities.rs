//! Priorities that the client sends in PRIORITY_UPDATE frames before the requests themselves arrive (RFC 9218 section
//! 7).

use super::priority::Priority;
use super::stream_id_map::StreamMap;

/// The last priority for each request stream that has not begun.
#[derive(Debug, Default)]
pub(super) struct EarlyPriorities(StreamMap<Priority>);

impl EarlyPriorities {
    /// Stores the priority of a stream. Priorities of more than [`EARLY_PRIORITIES_MAX`] streams are ignored, as RFC
    /// 9218 section 7 allows.
    pub fn keep(&mut self, stream_id: u64, priority: Priority) {
        if self.0.len() < EARLY_PRIORITIES_MAX || self.0.contains_key(&stream_id) {
            self.0.insert(stream_id, priority);
        }
    }

    /// Removes and returns the priority of a stream that begins now.
    pub fn take(&mut self, stream_id: u64) -> Option<Priority> {
        self.0.remove(&stream_id)
    }
}

/// QUIC usually allows a client to have fewer streams open.
const EARLY_PRIORITIES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_priority_of_a_stream_is_returned_once() {
        let mut priorities = EarlyPriorities::default();
        priorities.keep(4, Priority::parse(b"u=1"));
        priorities.keep(4, Priority::parse(b"u=5"));
        assert_eq!(priorities.take(4), Some(Priority::parse(b"u=5")));
        assert_eq!(priorities.take(4), None);
    }

    #[test]
    fn streams_beyond_the_bound_are_ignored_and_known_ones_updated() {
        let mut priorities = EarlyPriorities::default();
        for number in 0..=EARLY_PRIORITIES_MAX as u64 {
            priorities.keep(number * 4, Priority::parse(b"u=1"));
        }
        assert_eq!(priorities.take(4 * EARLY_PRIORITIES_MAX as u64), None);
        priorities.keep(0, Priority::parse(b"u=2"));
        assert_eq!(priorities.take(0), Some(Priority::parse(b"u=2")));
    }
}
