//! Classifies the events of a QUIC connection object for HTTP/3. Not here: the handling of the events.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::capi::gil_cell::GilCell;

/// The kind of a QUIC event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    StreamData,
    StreamReset,
    StopSending,
    Datagram,
    /// HTTP/3 does not use this event.
    Other,
}

/// The event classes that have occurred, with their kinds. A class is found by identity; there are two or three in
/// most programs.
pub struct EventKinds(GilCell<Vec<(Py<PyType>, EventKind)>>);

impl EventKinds {
    pub fn new() -> Self {
        Self(GilCell::new(Vec::new()))
    }

    pub fn of(&self, event: &Bound<'_, PyAny>) -> PyResult<EventKind> {
        let py = event.py();
        let class = event.get_type();
        let known = self.0.with(py, |kinds| {
            kinds
                .iter()
                .find(|(known, _)| known.is(&class))
                .map(|&(_, kind)| kind)
        });
        if let Some(kind) = known {
            return Ok(kind);
        }
        let kind = classify(&class)?;
        self.0.with(py, |kinds| {
            // The list is limited. A program that makes classes dynamically works too, only slower.
            if kinds.len() < KNOWN_CLASSES_MAX {
                kinds.push((class.unbind(), kind));
            }
        });
        Ok(kind)
    }
}

/// Finds the kind of an event class by the class's name, or by the name of a base class. So the classes of uringcore
/// and of aioquic both work.
fn classify(class: &Bound<'_, PyType>) -> PyResult<EventKind> {
    for base in class.mro() {
        let name = base.cast::<PyType>()?.name()?;
        match &*name.to_cow()? {
            "StreamDataReceived" => return Ok(EventKind::StreamData),
            "StreamReset" => return Ok(EventKind::StreamReset),
            "StopSendingReceived" => return Ok(EventKind::StopSending),
            "DatagramFrameReceived" => return Ok(EventKind::Datagram),
            _ => {}
        }
    }
    Ok(EventKind::Other)
}

pub fn stream_and_code(event: &Bound<'_, PyAny>) -> PyResult<(u64, u64)> {
    let py = event.py();
    Ok((
        event.getattr(intern!(py, "stream_id"))?.extract()?,
        event.getattr(intern!(py, "error_code"))?.extract()?,
    ))
}

const KNOWN_CLASSES_MAX: usize = 32;
