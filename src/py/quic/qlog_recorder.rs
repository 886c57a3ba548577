//! `PacketLog`: the recorded packets of a connection, for Python's qlog traces.
//!
//! The state machine records events for each packet, without Python. Python takes them here, with the time of the
//! wall clock, or has them written to a file as they happen.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::prelude::*;
use uringcore_quic::qlog::Recorder;

use super::clock_conversion::WallTime;
use super::qlog_files::TraceFile;

/// The recorded events of one connection, until Python takes them.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct PacketLog {
    recorder: Arc<Recorder>,
    clock: WallTime,
}

impl PacketLog {
    pub fn new(recorder: Arc<Recorder>) -> Self {
        Self {
            recorder,
            clock: WallTime::now(),
        }
    }
}

#[pymethods]
impl PacketLog {
    /// Adds an event of the program. `data` is JSON.
    fn note(&self, name: String, data: String) {
        self.recorder.note(name, data);
    }

    /// Writes the recorded events to a file, and later events as they happen. `None` ends the recording.
    fn write_to(&self, file: Option<&Bound<'_, TraceFile>>) {
        match file {
            Some(file) => self.recorder.hand_to(file.get().sink(self.clock)),
            None => self.recorder.end(),
        }
    }

    /// Returns the events since the last call, as `(seconds since 1970, name, data as JSON)`.
    fn take(&self) -> Vec<(f64, Cow<'static, str>, String)> {
        let events = self.recorder.take();
        // Events that have no time happened just before the first event that has one.
        let first = events.iter().find_map(|event| event.at);
        events
            .into_iter()
            .map(|event| {
                let seconds = self.clock.seconds(event.at.or(first));
                (seconds, event.name, event.data)
            })
            .collect()
    }
}
