//! [`TransportAccess`]: access of a stream manager to the transport of its streams, which is a QUIC connection or a
//! WebTransport session.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::read_on_demand::StreamTransport;

use crate::quic::QuicConnectionCore;

/// Access to a [`StreamTransport`], which may not have started or may have ended.
pub trait TransportAccess: Send + Sync {
    /// Calls `run` once, unless the transport has not started, or the transport or its loop has ended.
    fn with_transport(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(&mut dyn StreamTransport),
    ) -> PyResult<()>;

    /// Lets the loop send the written data. Called when the program has written all that it has at present.
    fn written(&self, py: Python<'_>);

    /// Calls `run` once, to read the state of the transport.
    fn read_transport(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(&dyn StreamTransport),
    ) -> PyResult<()>;

    /// True if the transport keeps the state of each stream until the program has dropped the stream.
    fn keeps_streams(&self) -> bool;

    /// Detaches the manager from the transport, which has ended.
    fn detach(&self, py: Python<'_>);

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

impl TransportAccess for Py<QuicConnectionCore> {
    fn with_transport(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(&mut dyn StreamTransport),
    ) -> PyResult<()> {
        self.get().running(py, |quic| run(quic)).map(drop)
    }

    fn written(&self, py: Python<'_>) {
        self.get().written(py);
    }

    fn read_transport(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(&dyn StreamTransport),
    ) -> PyResult<()> {
        self.get().peek(py, |quic| run(quic)).map(drop)
    }

    fn keeps_streams(&self) -> bool {
        false
    }

    fn detach(&self, py: Python<'_>) {
        self.get().detach(py);
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self)
    }
}
