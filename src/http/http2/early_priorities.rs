//! Priorities from PRIORITY_UPDATE frames that arrive before their request (RFC 9218 section 7.1).

use std::collections::VecDeque;

use uringcore_h3::Priority;

#[derive(Debug, Default)]
pub(super) struct EarlyPriorities {
    newest: VecDeque<(u32, Priority)>,
}

impl EarlyPriorities {
    /// Stores the priority of a stream. The oldest priority is dropped if there is no room.
    pub fn set(&mut self, stream_id: u32, priority: Priority) {
        self.newest.retain(|(other, _)| *other != stream_id);
        if self.newest.len() == STORED_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back((stream_id, priority));
    }

    /// Removes the priority of a stream that begins. Streams below it can never begin (RFC 9113 section 5.1.1).
    pub fn take(&mut self, stream_id: u32) -> Option<Priority> {
        if self.newest.is_empty() {
            return None;
        }
        let found = self.newest.iter().find(|(other, _)| *other == stream_id);
        let priority = found.map(|(_, priority)| *priority);
        self.newest.retain(|(other, _)| *other > stream_id);
        priority
    }
}

/// The maximum number of stored priorities.
const STORED_MAX: usize = 128;
