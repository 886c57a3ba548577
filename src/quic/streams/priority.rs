//! Stream priorities in the terms of RFC 9218, and as the integers by which quinn-proto sorts streams.
//!
//! Not here: scheduling. `streams` schedules data before quinn-proto has taken it, quinn-proto after that.
//! quinn-proto's window has a part for each urgency that less urgent streams cannot fill, so an urgent stream waits
//! for no more than the congestion window (`send_scheduling`).

/// A stream's priority within its connection (RFC 9218 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    urgency: u8,
    incremental: bool,
}

impl Priority {
    /// `urgency` is a number from 0, the most urgent, to 7. Returns `None` for another number.
    pub fn new(urgency: u8, incremental: bool) -> Option<Self> {
        (urgency <= URGENCY_MAX).then_some(Self {
            urgency,
            incremental,
        })
    }

    /// quinn-proto's sort key; streams with larger keys are sent first. Urgency decides first. Within an urgency,
    /// streams that are not incremental come first, in the order of their IDs; incremental streams have equal keys, so
    /// quinn-proto sends them round robin. IDs beyond 2^28 have one key, too, and are sent in that way.
    pub(crate) fn rank(self, stream_id: u64) -> i32 {
        let base = (i32::from(URGENCY_DEFAULT) - i32::from(self.urgency)) * SPAN;
        match self.incremental {
            true => base,
            false => base + SPAN - 1 - stream_id.min(SPAN as u64 - 2) as i32,
        }
    }
}

/// Streams without a priority are sent round robin. RFC 9218's default (not incremental) is meant for responses; a QUIC stream
/// may never end.
impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: URGENCY_DEFAULT,
            incremental: true,
        }
    }
}

/// The urgency of a rank.
pub(crate) fn urgency_of(rank: i32) -> u8 {
    (i32::from(URGENCY_DEFAULT) - rank.div_euclid(SPAN)) as u8
}

/// RFC 9218 section 4.1: the default and the range of urgencies.
const URGENCY_DEFAULT: u8 = 3;
const URGENCY_MAX: u8 = 7;
/// The number of ranks of one urgency.
const SPAN: i32 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_sort_by_urgency_then_by_kind_then_by_id() {
        let ids = [0, 1, 4, 1_000_000, (1 << 28) + 7, (1 << 62) - 1];
        let mut ranks = Vec::new();
        for urgency in 0..=7 {
            for (incremental, ids) in [(false, &ids[..]), (true, &ids[..1])] {
                let priority = Priority::new(urgency, incremental).unwrap();
                for &id in ids {
                    assert_eq!(urgency_of(priority.rank(id)), urgency);
                    ranks.push(priority.rank(id));
                }
            }
        }
        // Only the two largest IDs share a rank.
        assert!(ranks.windows(2).all(|pair| pair[0] >= pair[1]), "{ranks:?}");
        ranks.dedup();
        assert_eq!(ranks.len(), 8 * 6);
        let incremental = |urgency| Priority::new(urgency, true).unwrap();
        assert_eq!(incremental(5).rank(0), incremental(5).rank(4));
        assert_eq!(Priority::default().rank(8), 0, "quinn-proto's own default");
        assert_eq!(Priority::new(8, true), None);
    }
}
