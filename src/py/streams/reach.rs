//! How a stream manager reaches the transport of its streams.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::on_demand::StreamTransport;

use crate::quic::QuicConnectionCore;

/// The way to a [`StreamTransport`], which may have ended.
pub trait Reach: Send + Sync {
    /// Calls `run` once, unless the transport has not begun, or is over, or its loop is.
    fn reach(&self, py: Python<'_>, run: &mut dyn FnMut(&mut dyn StreamTransport)) -> PyResult<()>;

    /// The program has written to the transport, all that it has for now.
    fn written(&self, py: Python<'_>);

    /// The same with a question, which changes nothing.
    fn ask(&self, py: Python<'_>, run: &mut dyn FnMut(&dyn StreamTransport)) -> PyResult<()>;

    /// True if the transport wants to know which streams the program has let go of, over or not.
    fn keeps_streams(&self) -> bool;

    /// The transport is over, and the manager wants no more events.
    fn let_go(&self, py: Python<'_>);

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

impl Reach for Py<QuicConnectionCore> {
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
