//! [`LowerTransport`]: the transport beneath TLS. Our own stream is called without Python; any other transport
//! through its Python methods.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};

use super::ssl_object::Records;
use crate::transport::half_close::{self, SendingEnd};
use crate::transport::stream::StreamTransport;

pub enum LowerTransport {
    Stream(Py<StreamTransport>),
    /// A transport of another kind: TLS (for TLS in TLS), or a wrapper of another library.
    Other(Py<PyAny>),
}

impl LowerTransport {
    pub fn new(transport: &Bound<'_, PyAny>) -> Self {
        match transport.cast::<StreamTransport>() {
            Ok(stream) => Self::Stream(stream.clone().unbind()),
            Err(_) => Self::Other(transport.clone().unbind()),
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Stream(stream) => Self::Stream(stream.clone_ref(py)),
            Self::Other(other) => Self::Other(other.clone_ref(py)),
        }
    }

    pub fn as_any<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        match self {
            Self::Stream(stream) => stream.bind(py).as_any(),
            Self::Other(other) => other.bind(py),
        }
    }

    /// Fails if the transport could not accept a write now. The caller checks this before it encrypts, because a record
    /// that is lost between OpenSSL and the transport breaks the connection. Returns false after the end of the
    /// transport or of its loop.
    pub fn check_reachable(&self, py: Python<'_>) -> PyResult<bool> {
        match self {
            Self::Stream(stream) => StreamTransport::check_reachable(stream.bind(py)),
            Self::Other(_) => Ok(true),
        }
    }

    /// True if a stream of this extension would drop all writes, because the connection has ended.
    pub fn has_ended(&self, py: Python<'_>) -> bool {
        match self {
            Self::Stream(stream) => StreamTransport::is_ending(stream.bind(py)),
            Self::Other(_) => false,
        }
    }

    /// Writes records. The memory of large records is moved out of `data`.
    pub fn write(&self, py: Python<'_>, data: &mut Records<'_>) -> PyResult<()> {
        match self {
            Self::Stream(stream) => {
                StreamTransport::write_records(stream.bind(py), data.outgoing())
            }
            Self::Other(other) => {
                let data = data.to_python(py);
                other.bind(py).call_method1(intern!(py, "write"), (data,))?;
                Ok(())
            }
        }
    }

    /// The number of bytes that the transport has accepted and not sent yet. 0 if it does not report a number.
    pub fn queued_bytes(&self, py: Python<'_>) -> usize {
        match self {
            Self::Stream(stream) => StreamTransport::write_queue_bytes(stream.bind(py)),
            Self::Other(other) => {
                let size = other
                    .bind(py)
                    .call_method0(intern!(py, "get_write_buffer_size"));
                size.and_then(|size| size.extract()).unwrap_or(0)
            }
        }
    }

    /// Ends the connection with `error`. `last_words`, the records of a last alert, are sent before if that is possible
    /// without waiting.
    pub fn fail(
        &self,
        py: Python<'_>,
        last_words: Option<&mut Records<'_>>,
        error: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        match (self, last_words) {
            (Self::Stream(stream), Some(words))
                if StreamTransport::write_queue_bytes(stream.bind(py)) == 0 =>
            {
                StreamTransport::write_records(stream.bind(py), words.outgoing())?;
                StreamTransport::close_with(stream.bind(py), error)
            }
            (Self::Stream(stream), _) => StreamTransport::end_with(stream.bind(py), error),
            (Self::Other(other), words) => {
                let other = other.bind(py);
                if let Some(words) = words {
                    let words = words.to_python(py);
                    other.call_method1(intern!(py, "write"), (words,))?;
                }
                match (&error, other.getattr_opt(intern!(py, "_force_close"))?) {
                    (_, Some(force_close)) => force_close.call1((error,))?,
                    (_, None) => other.call_method0(intern!(py, "abort"))?,
                };
                Ok(())
            }
        }
    }

    /// Closes the transport when everything written is sent, including `last_words`, the records of a last alert.
    /// `error` is the argument of `connection_lost`, if the transport can pass one.
    pub fn finish(
        &self,
        py: Python<'_>,
        last_words: Option<&mut Records<'_>>,
        error: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        if let Some(words) = last_words {
            self.write(py, words)?;
        }
        match self {
            Self::Stream(stream) => StreamTransport::close_with(stream.bind(py), error),
            Self::Other(other) => {
                other.bind(py).call_method0(intern!(py, "close"))?;
                Ok(())
            }
        }
    }

    /// Closes the sending direction, if the transport can close it while the receiving direction stays open.
    pub fn close_sending(&self, py: Python<'_>) -> PyResult<SendingEnd> {
        half_close::end_sending(self.as_any(py))
    }

    pub fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.as_any(py).call_method0(intern!(py, "pause_reading"))?;
        Ok(())
    }

    pub fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.as_any(py)
            .call_method0(intern!(py, "resume_reading"))?;
        Ok(())
    }

    pub fn is_closing(&self, py: Python<'_>) -> PyResult<bool> {
        self.as_any(py)
            .call_method0(intern!(py, "is_closing"))?
            .is_truthy()
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Stream(stream) => visit.call(stream),
            Self::Other(other) => visit.call(other),
        }
    }
}
