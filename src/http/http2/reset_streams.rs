//! The streams that this side has reset. The client may have sent frames on them before it got the reset, and these are
//! ignored (RFC 9113 section 5.1).

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct ResetStreams {
    /// The newest streams, in the order of their resets.
    newest: VecDeque<u32>,
}

impl ResetStreams {
    pub fn add(&mut self, stream_id: u32) {
        if self.newest.len() == REMEMBERED_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(stream_id);
    }

    pub fn has(&self, stream_id: u32) -> bool {
        self.newest.contains(&stream_id)
    }

    /// Forgets all streams of an idle connection, whose frames have arrived.
    pub fn clear(&mut self) {
        self.newest = VecDeque::new();
    }
}

/// The number of streams that are remembered: a few times the usual maximum of open streams.
const REMEMBERED_MAX: usize = 512;
