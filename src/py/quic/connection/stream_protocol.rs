//! [`StreamProtocol`]: a protocol on the streams of a connection that is implemented in Rust.

use std::time::Instant;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::{Connection, Event};

/// HTTP/3, or the stream manager of the typed API: a protocol on the streams of a connection. It gets the events about
/// streams instead of the program.
pub trait StreamProtocol: Send + Sync {
    /// Handles an event. Must not run Python code, because the state machines are borrowed.
    fn handle(&self, py: Python<'_>, quic: &mut Connection, event: Event, now: Instant);

    /// Passes the results of a loop iteration's events to Python.
    fn deliver(&self, py: Python<'_>) -> PyResult<()>;

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}
