//! The events that wait to be taken, in the order in which they happened.
//!
//! Bounded: how a connection began explains it, and so do its last moments. What is dropped is out of
//! the middle, and an event says so.

use std::{borrow::Cow, collections::VecDeque, time::Instant};

use super::json::Object;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When; `None` while no time had been named.
    pub at: Option<Instant>,
    /// Category and type, as qlog joins them: `transport:packet_sent`.
    pub name: Cow<'static, str>,
    /// The event's data, a JSON object.
    pub data: String,
}

#[derive(Debug, Default)]
pub(super) struct Trail {
    now: Option<Instant>,
    first: Vec<Recorded>,
    newest: VecDeque<Recorded>,
    dropped: u64,
}

impl Trail {
    pub fn set_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    pub fn time(&self) -> Option<Instant> {
        self.now
    }

    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, data: String) {
        let event = Recorded {
            at: self.now,
            name: name.into(),
            data,
        };
        if self.first.len() < FIRST_MAX {
            self.first.push(event);
            return;
        }
        if self.newest.len() == EVENTS_MAX - FIRST_MAX {
            self.newest.pop_front();
            self.dropped += 1;
        }
        self.newest.push_back(event);
    }

    /// All of them, and from here on others.
    pub fn take(&mut self) -> Vec<Recorded> {
        let mut events = std::mem::take(&mut self.first);
        let newest = std::mem::take(&mut self.newest);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let mut data = Object::new();
            data.word("message", &format!("{dropped} events were dropped here"));
            events.push(Recorded {
                at: newest.front().and_then(|event| event.at),
                name: "loglevel:warning".into(),
                data: data.finish(),
            });
        }
        events.extend(newest);
        events
    }
}

/// How many events wait to be taken; of more, those in the middle are dropped.
pub const EVENTS_MAX: usize = 65_536;
/// How many of them are the first ones.
const FIRST_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_dropped_and_said_to_be() {
        let mut trail = Trail::default();
        let total = EVENTS_MAX + 10;
        for number in 0..total {
            trail.push("a:b", number.to_string());
        }
        let events = trail.take();
        assert_eq!(events.len(), EVENTS_MAX + 1);
        assert_eq!(events[FIRST_MAX - 1].data, (FIRST_MAX - 1).to_string());
        assert_eq!(events[FIRST_MAX].name, "loglevel:warning");
        let message = "{\"message\":\"10 events were dropped here\"}";
        assert_eq!(events[FIRST_MAX].data, message);
        assert_eq!(events[FIRST_MAX + 1].data, (FIRST_MAX + 10).to_string());
        assert_eq!(events[EVENTS_MAX].data, (total - 1).to_string());
        assert!(trail.take().is_empty());
    }
}
