//! The streams that this side has reset. The client may have sent frames on them before it got the reset, and these are
//! ignored (RFC 9113 section 5.1).

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct ResetStreams {
    /// The newest streams, in the order of their resets, with the bytes of content that the client may still send.
    newest: VecDeque<(u32, i64)>,
}

impl ResetStreams {
    /// Adds a stream. `window` is what is left of the client's flow-control window.
    pub fn add(&mut self, stream_id: u32, window: i64) {
        if self.newest.len() == REMEMBERED_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back((stream_id, window));
    }

    pub fn has(&self, stream_id: u32) -> bool {
        self.newest.iter().any(|(it, _)| *it == stream_id)
    }

    /// Counts late content of a stream. Returns true if the client had a window for it before it got the reset.
    pub fn take_late(&mut self, stream_id: u32, size: u32) -> bool {
        let found = self.newest.iter_mut().find(|(it, _)| *it == stream_id);
        found.is_some_and(|(_, window)| {
            *window -= i64::from(size);
            *window >= 0
        })
    }

    /// Forgets all streams of an idle connection, whose frames have arrived.
    pub fn clear(&mut self) {
        self.newest = VecDeque::new();
    }
}

/// The number of streams that are remembered: a few times the usual maximum of open streams.
const REMEMBERED_MAX: usize = 512;
