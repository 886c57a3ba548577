//! The transport beneath an HTTP/1.1 connection.

use bytes::Bytes;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_engine as engine;
use uringcore_http::http1::{Connection, LINGER_BYTES_MAX, Piece};

use crate::tls::TlsTransport;
use crate::transport::native_protocol::NativeReceive;
use crate::transport::stream::StreamTransport;

/// The transport, in the form that accepts bytes with the least work.
pub enum LowerTransport {
    Stream(Py<StreamTransport>),
    Tls(Py<TlsTransport>),
    /// A transport of another loop.
    Other(Py<PyAny>),
}

impl LowerTransport {
    /// If `transport` is a stream of this extension, it calls `receive` from now on instead of `data_received`.
    pub fn new(transport: &Bound<'_, PyAny>, receive: NativeReceive) -> Self {
        if let Ok(stream) = transport.cast::<StreamTransport>() {
            StreamTransport::receive_natively(stream, receive);
            Self::Stream(stream.clone().unbind())
        } else if let Ok(tls) = transport.cast::<TlsTransport>() {
            Self::Tls(tls.clone().unbind())
        } else {
            Self::Other(transport.clone().unbind())
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Stream(stream) => Self::Stream(stream.clone_ref(py)),
            Self::Tls(tls) => Self::Tls(tls.clone_ref(py)),
            Self::Other(other) => Self::Other(other.clone_ref(py)),
        }
    }

    pub fn object<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        match self {
            Self::Stream(stream) => stream.bind(py).as_any(),
            Self::Tls(tls) => tls.bind(py).as_any(),
            Self::Other(other) => other.bind(py),
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Stream(stream) => visit.call(stream),
            Self::Tls(tls) => visit.call(tls),
            Self::Other(other) => visit.call(other),
        }
    }

    /// Writes the output of a connection. `with` runs a function on that connection.
    pub fn write(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&mut dyn FnMut(&mut Connection)),
    ) -> PyResult<()> {
        match self {
            Self::Stream(stream) => {
                let mut outcome = Ok(());
                let mut result = None;
                with(&mut |http| {
                    let pieces = http.output().pieces().map(|piece| match piece {
                        Piece::Copied(bytes) => engine::Piece::Copied(bytes),
                        Piece::Kept(content) => engine::Piece::Kept(content.clone()),
                    });
                    match StreamTransport::write_pieces(stream.bind(py), pieces) {
                        Ok(written) => result = Some(written),
                        Err(error) => outcome = Err(error),
                    }
                    http.written();
                });
                outcome?;
                match result {
                    // The state of the connection is not borrowed here, because this call may call the protocol.
                    Some(written) => StreamTransport::apply_write_outcome(stream.bind(py), written),
                    None => Ok(()),
                }
            }
            Self::Tls(tls) => {
                let mut pieces = Vec::new();
                with(&mut |http| {
                    pieces.extend(http.output().pieces().map(|piece| match piece {
                        Piece::Copied(bytes) => Bytes::copy_from_slice(bytes),
                        Piece::Kept(content) => content.clone(),
                    }));
                    http.written();
                });
                tls.get().write_pieces(py, pieces)
            }
            Self::Other(other) => {
                let mut pieces = Vec::new();
                with(&mut |http| {
                    pieces.extend(http.output().pieces().map(|piece| match piece {
                        Piece::Copied(bytes) => PyBytes::new(py, bytes),
                        Piece::Kept(content) => PyBytes::new(py, content),
                    }));
                    http.written();
                });
                let pieces = PyList::new(py, pieces)?;
                let name = intern!(py, "writelines");
                other.bind(py).call_method1(name, (pieces,)).map(drop)
            }
        }
    }

    /// The number of bytes that were written and not sent.
    pub fn unsent_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        match self {
            Self::Stream(stream) => Ok(StreamTransport::write_queue_bytes(stream.bind(py))),
            Self::Tls(tls) => tls.get().unsent_bytes(py),
            Self::Other(other) => {
                let name = intern!(py, "get_write_buffer_size");
                other.bind(py).call_method0(name)?.extract()
            }
        }
    }

    /// Pauses or resumes reading.
    pub fn set_reading(&self, py: Python<'_>, reads: bool) -> PyResult<()> {
        let name = match reads {
            true => intern!(py, "resume_reading"),
            false => intern!(py, "pause_reading"),
        };
        let transport = self.object(py);
        // Transports of other loops refuse these calls while they are closing.
        if transport
            .call_method0(intern!(py, "is_closing"))?
            .is_truthy()?
        {
            return Ok(());
        }
        transport.call_method0(name).map(drop)
    }

    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Self::Tls(tls) = self
            && tls.get().is_lingering(py)
        {
            // All bytes were sent, and `close()` would wait for the client.
            return self.abort(py);
        }
        let close = intern!(py, "close");
        self.object(py).call_method0(close).map(drop)
    }

    pub fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let abort = intern!(py, "abort");
        self.object(py).call_method0(abort).map(drop)
    }

    /// Closes the sending direction, and drops input that still arrives. Returns false if the transport can close only
    /// both directions.
    pub fn close_sending(&self, py: Python<'_>) -> PyResult<bool> {
        if let Self::Tls(tls) = self {
            return tls
                .get()
                .close_lingering(py, LINGER_BYTES_MAX)
                .map(|()| true);
        }
        let transport = self.object(py);
        let can = transport.call_method0(intern!(py, "can_write_eof"))?;
        if !can.is_truthy()? {
            return Ok(false);
        }
        transport.call_method0(intern!(py, "write_eof"))?;
        Ok(true)
    }
}
