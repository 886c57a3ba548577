//! The deadlines of incomplete header sections.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// For each stream with an incomplete header section, the time at which the section began. QUIC bounds the number of
/// streams, and a stream that ends is removed.
#[derive(Debug, Default)]
pub(super) struct HeaderDeadlines {
    since: FxHashMap<u64, Instant>,
}

impl HeaderDeadlines {
    /// Records that data of an incomplete header section has arrived. The deadline counts from the first such call for
    /// a stream.
    pub fn began(&mut self, stream_id: u64, now: Instant) {
        self.since.entry(stream_id).or_insert(now);
    }

    /// Removes a stream whose header section is complete, or will never be. True if the stream had a deadline.
    pub fn ended(&mut self, stream_id: u64) -> bool {
        self.since.remove(&stream_id).is_some()
    }

    /// Frees the map's unused capacity.
    pub fn free_capacity(&mut self) {
        self.since.shrink_to_fit();
    }

    pub fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Removes and returns the streams that began more than `timeout` ago, the oldest first. Called once a second,
    /// because it visits all streams.
    pub fn take_overdue(&mut self, timeout: Duration, now: Instant) -> Vec<u64> {
        let is_over = |since: Instant| now.saturating_duration_since(since) > timeout;
        let overdue = self.since.iter();
        let overdue = overdue.filter(|&(_, &since)| is_over(since));
        let mut overdue: Vec<(Instant, u64)> = overdue.map(|(&id, &since)| (since, id)).collect();
        overdue.sort_unstable();
        for (_, stream_id) in &overdue {
            self.since.remove(stream_id);
        }
        overdue
            .into_iter()
            .map(|(_, stream_id)| stream_id)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_streams_are_taken_once_in_the_order_in_which_they_began() {
        let begin = Instant::now();
        let mut deadlines = HeaderDeadlines::default();
        for (second, stream_id) in (0..).zip([8, 0, 4]) {
            deadlines.began(stream_id, begin + Duration::from_secs(second));
        }
        let timeout = Duration::from_secs(10);
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(deadlines.take_overdue(timeout, after(10)), []);
        // More data does not extend the deadline.
        deadlines.began(8, after(10));
        assert_eq!(deadlines.take_overdue(timeout, after(12)), [8, 0]);
        assert!(deadlines.ended(4) && deadlines.is_empty());
        assert_eq!(deadlines.take_overdue(timeout, after(60)), []);
    }

    #[test]
    fn streams_with_complete_header_sections_leave_no_deadline() {
        let now = Instant::now();
        let mut deadlines = HeaderDeadlines::default();
        // The header section of stream 0 never ends, while the client sends other requests.
        deadlines.began(0, now);
        for stream_id in (4..400_000).step_by(4) {
            deadlines.began(stream_id, now);
            assert!(deadlines.ended(stream_id));
        }
        assert!(deadlines.since.capacity() < 16);
    }
}
