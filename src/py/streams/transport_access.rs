//! Access of a stream manager to the transport of its streams.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::read_on_demand::StreamTransport;

use crate::quic::QuicConnectionCore;

/// Access to a [`StreamTransport`], which may have ended.
pub trait TransportAccess: Send + Sync {
    /// Calls `run` once, unless the transport has not begun, or the transport or its loop has ended.
    fn reach(&self, py: Python<'_>, run: &mut dyn FnMut(&mut dyn StreamTransport)) -> PyResult<()>;

    /// The program has written to the transport everything that it has for now.
    fn written(&self, py: Python<'_>);

    /// Calls `run` once to read the state of the transport.
    fn ask(&self, py: Python<'_>, run: &mut dyn FnMut(&dyn StreamTransport)) -> PyResult<()>;

    /// True if the transport needs a call for each stream that the program has dropped, ended or not.
    fn keeps_streams(&self) -> bool;

    /// The transport has ended, and the manager needs no more events.
    fn let_go(&self, py: Python<'_>);

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

impl TransportAccess for Py<QuicConnectionCore> {
    fn reach(&self, py: Python<'_>, run: &mut dyn FnMut(&mut dyn StreamTransport)) -> PyResult<()> {
        self.get().running(py, |quic| run(quic)).map(drop)
    }

    fn written(&self, py: Python<'_>) {
        self.get().written(py);
    }

    fn ask(&self, py: Python<'_>, run: &mut dyn FnMut(&dyn StreamTransport)) -> PyResult<()> {
        self.get().peek(py, |quic| run(quic)).map(drop)
    }

    fn keeps_streams(&self) -> bool {
        false
    }

    fn let_go(&self, py: Python<'_>) {
        self.get().detach(py);
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self)
    }
}
