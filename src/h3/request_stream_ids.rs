//! Tracks which request streams a client has used, and which it may still use within QUIC's limit.
//!
//! Not here: the state of open streams (`request_streams`, `request`).

use std::collections::BTreeSet;

/// Tracks the identifiers of request streams. A client opens streams in order, but their first packets may arrive in
/// another order.
#[derive(Debug)]
pub(super) struct RequestStreamIds {
    /// The lowest identifier above all used ones. The peer has used them, or on a client this side.
    next: u64,
    /// Identifiers below `next` on which nothing has arrived yet. At most [`SKIPPED_MAX`]; the oldest are dropped
    /// first.
    skipped: BTreeSet<u64>,
    /// QUIC's limit of request streams that the client may have open; `None` if the host has not set it.
    max_open: Option<u64>,
}

impl RequestStreamIds {
    pub fn new(max_open: Option<u64>) -> Self {
        Self {
            next: 0,
            skipped: BTreeSet::new(),
            max_open,
        }
    }

    /// The lowest identifier above all request streams that were used.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The first request stream identifier that the client cannot use yet. QUIC allows `max_open` streams beyond those
    /// that have ended, and only used streams can have ended.
    pub fn end(&self) -> u64 {
        let room = self.max_open.map_or(u64::MAX, |max| max.saturating_mul(4));
        self.next.saturating_add(room)
    }

    /// Raises QUIC's limit of open streams, if the host has set one. A lower limit is ignored.
    pub fn raise_max_open(&mut self, max: u64) {
        if let Some(known) = &mut self.max_open {
            *known = max.max(*known);
        }
    }

    /// True if nothing has arrived on the stream, unless it was dropped from `skipped`.
    pub fn is_unused(&self, stream_id: u64) -> bool {
        stream_id >= self.next || self.skipped.contains(&stream_id)
    }

    /// Records that data has arrived on a stream. Returns true if it is the stream's first data.
    pub fn mark_used(&mut self, stream_id: u64) -> bool {
        if stream_id < self.next {
            return self.skipped.remove(&stream_id);
        }
        let reach = 4 * SKIPPED_MAX as u64;
        let first = self.next.max(stream_id.saturating_sub(reach));
        self.skipped.extend((first..stream_id).step_by(4));
        while self.skipped.len() > SKIPPED_MAX {
            self.skipped.pop_first();
        }
        self.next = stream_id + 4;
        true
    }

    /// Frees the memory of skipped streams when no further stream will begin.
    pub fn forget_skipped(&mut self) {
        self.skipped = BTreeSet::new();
    }
}

/// The maximum number of skipped streams that are remembered. QUIC usually allows fewer open streams. If a stream
/// above this bound is reset, the reset is not answered, and QUIC does not allow another stream in its place.
const SKIPPED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_used_once_in_any_order_of_streams() {
        let mut ids = RequestStreamIds::new(None);
        assert!(ids.mark_used(8));
        assert_eq!(ids.next(), 12);
        assert!(ids.is_unused(0) && ids.is_unused(4) && ids.is_unused(12));
        assert!(!ids.is_unused(8));
        assert!(ids.mark_used(4));
        assert!(!ids.mark_used(4) && !ids.mark_used(8));
        assert!(ids.mark_used(0));
    }

    #[test]
    fn streams_that_were_skipped_are_remembered_up_to_a_bound() {
        let mut ids = RequestStreamIds::new(None);
        let far = 1 << 40;
        ids.mark_used(far);
        assert_eq!(ids.skipped.len(), SKIPPED_MAX);
        assert!(ids.is_unused(far - 4) && !ids.is_unused(0));
        ids.forget_skipped();
        assert!(!ids.is_unused(far - 4));
    }

    #[test]
    fn the_end_is_the_first_stream_above_quics_limit() {
        assert_eq!(RequestStreamIds::new(None).end(), u64::MAX);
        let mut ids = RequestStreamIds::new(Some(2));
        assert_eq!(ids.end(), 8);
        ids.mark_used(4);
        assert_eq!(ids.end(), 16);
        ids.raise_max_open(1);
        assert_eq!(ids.end(), 16);
        ids.raise_max_open(3);
        assert_eq!(ids.end(), 20);
    }
}
