//! `PacketLog`: what a connection's packets say, for Python's qlog traces.
//!
//! Events are written down by the state machine's side, packet by packet and without Python; here
//! they are handed over when somebody asks, with the wall clock's time.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use uringcore_proto::qlog::Recorder;

/// The packets of one connection, until somebody takes them.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct PacketLog {
    recorder: Arc<Recorder>,
    instant: Instant,
    /// Seconds since 1970 at `instant`.
    wall: f64,
}

impl PacketLog {
    pub fn new(recorder: Arc<Recorder>) -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |passed| passed.as_secs_f64());
        Self {
            recorder,
            instant: Instant::now(),
            wall,
        }
    }

    fn seconds(&self, at: Instant) -> f64 {
        let later = at.saturating_duration_since(self.instant).as_secs_f64();
        let earlier = self.instant.saturating_duration_since(at).as_secs_f64();
        self.wall + later - earlier
    }
}

#[pymethods]
impl PacketLog {
    /// Appends an event behind those that there are: what it is called, and its data as JSON.
    fn note(&self, name: String, data: String) {
        self.recorder.note(name, data);
    }

    /// What was recorded since the last call: time in seconds since 1970, name, data as JSON.
    fn take(&self) -> Vec<(f64, Cow<'static, str>, String)> {
        let events = self.recorder.take();
        // What came before a time was named came just before the first that has one.
        let first = events.iter().find_map(|event| event.at);
        events
            .into_iter()
            .map(|event| {
                let at = event.at.or(first).unwrap_or(self.instant);
                (self.seconds(at), event.name, event.data)
            })
            .collect()
    }
}
