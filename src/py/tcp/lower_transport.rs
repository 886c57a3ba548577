//! The transport beneath a connection.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_engine as engine;
use uringcore_http::tcp_output::{Closing, LINGER_BYTES_MAX, Piece, Source};
use uringcore_limits::memory_budget::Account;

use super::tls_server_transport::TlsServerTransport;
use crate::tls::TlsTransport;
use crate::transport::half_close::{self, SendingEnd};
use crate::transport::native_protocol::NativeReceive;
use crate::transport::stream::StreamTransport;

/// The transport, in the form that accepts bytes with the least work.
pub enum LowerTransport {
    Stream(Py<StreamTransport>),
    /// TLS by rustls.
    Secure(Py<TlsServerTransport>),
    /// TLS by OpenSSL.
    Tls(Py<TlsTransport>),
    /// A transport of another loop.
    Other(Py<PyAny>),
}

/// Writes the output of a connection, if that runs no Python code, so that the caller may keep its state borrowed.
/// Otherwise does nothing and returns `None`.
pub fn write_output(
    py: Python<'_>,
    lower: &LowerTransport,
    http: &mut impl Source,
) -> PyResult<Option<engine::WriteOutcome>> {
    let stream = match lower {
        LowerTransport::Stream(stream) => stream.bind(py),
        LowerTransport::Secure(tls) => return tls.get().write_output(py, http),
        LowerTransport::Tls(_) | LowerTransport::Other(_) => return Ok(None),
    };
    let output = http.output();
    let outcome = match output.only_part() {
        Some(bytes) => {
            let piece = engine::Piece::Copied(bytes);
            StreamTransport::write_pieces(stream, std::iter::once(piece))?
        }
        None => {
            let pieces = output.pieces().map(|piece| match piece {
                Piece::Copied(bytes) => engine::Piece::Copied(bytes),
                Piece::Kept(content) => engine::Piece::Kept(content.clone()),
            });
            StreamTransport::write_pieces(stream, pieces)?
        }
    };
    http.written();
    Ok(Some(outcome))
}

/// Takes the output of a connection, for [`LowerTransport::write_pieces`].
pub fn take_output(http: &mut impl Source) -> Vec<Bytes> {
    let pieces = http.output().pieces().map(|piece| match piece {
        Piece::Copied(bytes) => Bytes::copy_from_slice(bytes),
        Piece::Kept(content) => content.clone(),
    });
    let pieces = pieces.collect();
    http.written();
    pieces
}

impl LowerTransport {
    /// If `transport` is a stream of this extension, it calls `receive` from now on instead of `data_received`.
    pub fn new(transport: &Bound<'_, PyAny>, receive: NativeReceive) -> Self {
        if let Ok(stream) = transport.cast::<StreamTransport>() {
            StreamTransport::receive_natively(stream, receive);
            Self::Stream(stream.clone().unbind())
        } else if let Ok(tls) = transport.cast::<TlsServerTransport>() {
            tls.get().receive_natively(tls.py(), receive);
            Self::Secure(tls.clone().unbind())
        } else if let Ok(tls) = transport.cast::<TlsTransport>() {
            Self::Tls(tls.clone().unbind())
        } else {
            Self::Other(transport.clone().unbind())
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Stream(stream) => Self::Stream(stream.clone_ref(py)),
            Self::Secure(tls) => Self::Secure(tls.clone_ref(py)),
            Self::Tls(tls) => Self::Tls(tls.clone_ref(py)),
            Self::Other(other) => Self::Other(other.clone_ref(py)),
        }
    }

    pub fn object<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        match self {
            Self::Stream(stream) => stream.bind(py).as_any(),
            Self::Secure(tls) => tls.bind(py).as_any(),
            Self::Tls(tls) => tls.bind(py).as_any(),
            Self::Other(other) => other.bind(py),
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Stream(stream) => visit.call(stream),
            Self::Secure(tls) => visit.call(tls),
            Self::Tls(tls) => visit.call(tls),
            Self::Other(other) => visit.call(other),
        }
    }

    /// Writes several pieces together.
    pub fn write_pieces(&self, py: Python<'_>, pieces: Vec<Bytes>) -> PyResult<()> {
        match self {
            Self::Stream(stream) => {
                let stream = stream.bind(py);
                let pieces = pieces.into_iter().map(engine::Piece::Kept);
                let outcome = StreamTransport::write_pieces(stream, pieces)?;
                StreamTransport::apply_write_outcome(stream, outcome)
            }
            Self::Secure(tls) => TlsServerTransport::write_pieces(tls.bind(py), pieces),
            Self::Tls(tls) => tls.get().write_pieces(py, pieces),
            Self::Other(other) => {
                let pieces = pieces.iter().map(|piece| PyBytes::new(py, piece));
                let pieces = PyList::new(py, pieces.collect::<Vec<_>>())?;
                let name = intern!(py, "writelines");
                other.bind(py).call_method1(name, (pieces,)).map(drop)
            }
        }
    }

    /// The number of bytes that were written and not sent.
    pub fn unsent_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        match self {
            Self::Stream(stream) => Ok(StreamTransport::write_queue_bytes(stream.bind(py))),
            Self::Secure(tls) => tls.get().unsent_bytes(py),
            Self::Tls(tls) => tls.get().unsent_bytes(py),
            Self::Other(other) => {
                let name = intern!(py, "get_write_buffer_size");
                other.bind(py).call_method0(name)?.extract()
            }
        }
    }

    /// The number of received bytes that TLS holds and that are charged to this account.
    pub fn session_data_of(&self, py: Python<'_>, account: &Arc<Account>) -> usize {
        match self {
            Self::Secure(tls) => tls.get().session_data_of(py, account),
            _ => 0,
        }
    }

    /// True if [`unsent_bytes`](Self::unsent_bytes) and [`write_output`] run no Python code.
    pub fn is_native(&self, py: Python<'_>) -> bool {
        match self {
            Self::Stream(_) => true,
            Self::Secure(tls) => tls.get().is_over_stream(py),
            Self::Tls(_) | Self::Other(_) => false,
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

    /// Ends the transport in the given way.
    pub fn end(&self, py: Python<'_>, closing: Closing) -> PyResult<()> {
        if let Self::Secure(tls) = self {
            return TlsServerTransport::end(tls.bind(py), closing);
        }
        match closing {
            Closing::AtOnce => self.abort(py),
            Closing::Sending if self.close_sending(py)? => Ok(()),
            Closing::Gracefully | Closing::Sending => self.close(py),
        }
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Self::Tls(tls) = self
            && tls.get().is_lingering(py)
        {
            // All bytes were sent, and `close()` would wait for the client.
            return self.abort(py);
        }
        let close = intern!(py, "close");
        self.object(py).call_method0(close).map(drop)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let abort = intern!(py, "abort");
        self.object(py).call_method0(abort).map(drop)
    }

    /// Closes the sending direction, and drops input that still arrives. Returns false if both directions have to be
    /// closed: the transport can close no single one, or the connection was reset.
    fn close_sending(&self, py: Python<'_>) -> PyResult<bool> {
        if let Self::Tls(tls) = self {
            return tls
                .get()
                .close_lingering(py, LINGER_BYTES_MAX)
                .map(|()| true);
        }
        let end = half_close::end_sending(self.object(py))?;
        Ok(matches!(end, SendingEnd::Ended))
    }
}
