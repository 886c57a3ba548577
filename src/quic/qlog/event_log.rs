//! A connection's qlog events in order. They are stored until they are taken, or passed to a [`Sink`] one by one.
//!
//! Stored events are bounded in number and in bytes. The beginning and the end of a connection explain the most, so
//! events in the middle are dropped, and a `loglevel:warning` states their number.
//!
//! After a sink has refused an event, packets are not decoded any more.

use std::{borrow::Cow, collections::VecDeque, time::Instant};

use super::json_writer::Object;

/// A qlog event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The time of the event. `None` if the event was recorded before the application had passed a time.
    pub at: Option<Instant>,
    /// Category and type, for example `transport:packet_sent`.
    pub name: Cow<'static, str>,
    /// The `data` member of the event, a JSON object.
    pub data: String,
}

/// Receives events when they happen.
pub trait Sink: Send {
    /// Receives one event. Returns false to get no more.
    fn event(&mut self, event: &Recorded) -> bool;
}

#[derive(Default)]
pub(super) struct EventLog {
    now: Option<Instant>,
    first: Vec<Recorded>,
    newest: VecDeque<Recorded>,
    /// The sum of the bytes of data in `first` and `newest`.
    bytes: usize,
    dropped: u64,
    sink: Option<Box<dyn Sink>>,
    /// True if no more events are stored or passed on.
    is_over: bool,
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kept = self.first.len() + self.newest.len();
        write!(f, "EventLog({kept} events, {} bytes)", self.bytes)
    }
}

impl EventLog {
    pub fn set_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    pub fn time(&self) -> Option<Instant> {
        self.now
    }

    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, data: String) {
        if self.is_over {
            return;
        }
        let event = Recorded {
            at: self.now,
            name: name.into(),
            data,
        };
        match &mut self.sink {
            Some(sink) => {
                if !sink.event(&event) {
                    self.end();
                }
            }
            None => self.keep(event),
        }
    }

    fn keep(&mut self, event: Recorded) {
        let size = event.data.len();
        if self.first.len() < FIRST_MAX
            && self.newest.is_empty()
            && self.bytes + size <= FIRST_BYTES_MAX
        {
            self.bytes += size;
            self.first.push(event);
            return;
        }
        while self.newest.len() >= EVENTS_MAX - FIRST_MAX || self.bytes + size > BYTES_MAX {
            let Some(oldest) = self.newest.pop_front() else {
                break;
            };
            self.bytes -= oldest.data.len();
            self.dropped += 1;
        }
        self.bytes += size;
        self.newest.push_back(event);
    }

    /// Passes the stored events to `sink`, and then each event when it happens. Events without a time get the time of
    /// the first event that has one.
    pub fn hand_to(&mut self, mut sink: Box<dyn Sink>) {
        let events = self.take();
        let first = events.iter().find_map(|event| event.at);
        let takes_more = events.into_iter().all(|mut event| {
            event.at = event.at.or(first);
            sink.event(&event)
        });
        match takes_more {
            true => self.sink = Some(sink),
            false => self.end(),
        }
    }

    /// Drops stored events, and stores no more.
    pub fn end(&mut self) {
        *self = Self {
            now: self.now,
            is_over: true,
            ..Self::default()
        };
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Removes and returns all stored events.
    pub fn take(&mut self) -> Vec<Recorded> {
        let mut events = std::mem::take(&mut self.first);
        let newest = std::mem::take(&mut self.newest);
        let dropped = std::mem::take(&mut self.dropped);
        self.bytes = 0;
        if dropped > 0 {
            let mut data = Object::new();
            data.unescaped("message", &format!("{dropped} events were dropped here"));
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

/// The largest number of stored events. Above it, events in the middle are dropped.
pub const EVENTS_MAX: usize = 65_536;
/// Of the stored events, this many are the first ones of the connection.
const FIRST_MAX: usize = 1_024;
/// The bound on the data of all events in bytes. A packet of 1,200 bytes may have hundreds of frames.
const BYTES_MAX: usize = 32 << 20;
const FIRST_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_the_middle_are_dropped_and_counted() {
        let mut event_log = EventLog::default();
        let total = EVENTS_MAX + 10;
        for number in 0..total {
            event_log.push("a:b", number.to_string());
        }
        let events = event_log.take();
        assert_eq!(events.len(), EVENTS_MAX + 1);
        assert_eq!(events[FIRST_MAX - 1].data, (FIRST_MAX - 1).to_string());
        assert_eq!(events[FIRST_MAX].name, "loglevel:warning");
        let message = "{\"message\":\"10 events were dropped here\"}";
        assert_eq!(events[FIRST_MAX].data, message);
        assert_eq!(events[FIRST_MAX + 1].data, (FIRST_MAX + 10).to_string());
        assert_eq!(events[EVENTS_MAX].data, (total - 1).to_string());
        assert!(event_log.take().is_empty());
    }

    #[test]
    fn stored_events_are_bounded_in_bytes() {
        let mut event_log = EventLog::default();
        for _ in 0..2_000 {
            event_log.push("a:b", "x".repeat(100_000));
        }
        let events = event_log.take();
        let bytes: usize = events.iter().map(|event| event.data.len()).sum();
        assert!(
            bytes <= BYTES_MAX + 100 && bytes > BYTES_MAX - 200_000,
            "{bytes}"
        );
        let first = events
            .iter()
            .position(|event| event.name == "loglevel:warning");
        assert_eq!(first, Some(FIRST_BYTES_MAX / 100_000));
    }

    /// A sink that accepts this number of events.
    struct Few(usize, std::sync::Arc<std::sync::Mutex<Vec<Recorded>>>);

    impl Sink for Few {
        fn event(&mut self, event: &Recorded) -> bool {
            let mut taken = self.1.lock().unwrap();
            taken.push(event.clone());
            taken.len() < self.0
        }
    }

    #[test]
    fn a_sink_gets_stored_events_and_then_new_ones() {
        let mut event_log = EventLog::default();
        event_log.push("a:b", "0".to_owned());
        let now = Instant::now();
        event_log.set_time(now);
        event_log.push("a:b", "1".to_owned());
        let taken = std::sync::Arc::default();
        event_log.hand_to(Box::new(Few(3, std::sync::Arc::clone(&taken))));
        event_log.push("a:b", "2".to_owned());
        assert!(event_log.is_over());
        event_log.push("a:b", "3".to_owned());
        assert!(event_log.take().is_empty());
        let taken = taken.lock().unwrap();
        let reported: Vec<_> = taken.iter().map(|it| (it.at, it.data.as_str())).collect();
        assert_eq!(
            reported,
            [(Some(now), "0"), (Some(now), "1"), (Some(now), "2")]
        );
    }
}
