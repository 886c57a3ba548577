//! `TlsTransport`: the transport of the application's protocol on a TLS connection.
//!
//! Its methods only delegate to [`TlsProtocol`], which has the state.

use bytes::Bytes;
use pyo3::exceptions::{PyNotImplementedError, PyResourceWarning};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyVisit, intern};

use super::encryption::check_bytes_like;
use super::protocol::{
    READ_HIGH_WATER_BYTES, TlsPhase, TlsProtocol, TlsState, WRITE_HIGH_WATER_BYTES,
};
use crate::capi::class_with_dict::ClassWithDict;
use crate::capi::exception_conversion::warn_of_a_dying_object;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
use crate::transport::base_transport::{Pause, WaterMarks, is_buffered};

/// A TLS connection with the interface of asyncio.Transport.
///
/// Programs look for "SSL" in the name of the class, as asyncio's and uvloop's classes have it.
#[pyclass(
    name = "SSLTransport",
    frozen,
    subclass,
    weakref,
    module = "uringcore._uringcore"
)]
pub struct TlsTransport {
    owner: Py<LoopCore>,
    /// `None` after the connection is lost and the application has called close() once more. A transport that a program
    /// keeps longer then holds neither certificates nor OpenSSL's memory, as in asyncio.
    protocol: GilCell<Option<Py<TlsProtocol>>>,
}

impl ClassWithDict for TlsTransport {
    fn subclass() -> &'static PyOnceLock<Py<PyType>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        &CLASS
    }
}

impl TlsTransport {
    pub fn new(protocol: &Bound<'_, TlsProtocol>) -> Self {
        Self {
            owner: protocol.get().owner.clone_ref(protocol.py()),
            protocol: GilCell::new(Some(protocol.clone().unbind())),
        }
    }

    fn protocol<'py>(&self, py: Python<'py>) -> Option<Bound<'py, TlsProtocol>> {
        self.protocol
            .with(py, |protocol| protocol.as_ref().map(|p| p.bind(py).clone()))
    }

    /// Writes several pieces. Small ones share a record.
    pub fn write_pieces(&self, py: Python<'_>, pieces: Vec<Bytes>) -> PyResult<()> {
        self.with_protocol(py, |protocol| TlsProtocol::write_pieces(protocol, pieces))
    }

    /// Closes the connection when everything written is sent, and then drops up to `bytes` of a peer that continues to
    /// send.
    pub fn close_lingering(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        self.with_protocol(py, |protocol| TlsProtocol::close_lingering(protocol, bytes))
    }

    /// True if the peer has continued to send after `close_lingering`.
    pub fn is_lingering(&self, py: Python<'_>) -> bool {
        let protocol = self.protocol(py);
        protocol.is_some_and(|protocol| protocol.get().phase(py) == TlsPhase::Lingering)
    }

    /// The number of bytes that wait to be encrypted or to be sent by the transport beneath.
    pub fn unsent_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        match self.protocol(py) {
            Some(protocol) => protocol.get().unsent_bytes(py),
            None => Ok(0),
        }
    }

    pub fn drop_protocol(&self, py: Python<'_>) {
        drop(self.protocol.take(py));
    }

    /// Reads from the connection's state. Returns `otherwise` if the connection was dropped.
    fn read_state<R>(
        &self,
        py: Python<'_>,
        otherwise: R,
        ask: impl FnOnce(&mut TlsState) -> R,
    ) -> R {
        match self.protocol(py) {
            Some(protocol) => protocol.get().state.with(py, ask),
            None => otherwise,
        }
    }

    /// Calls `run` with the TLS connection, unless that was dropped already.
    fn with_protocol(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Bound<'_, TlsProtocol>) -> PyResult<()>,
    ) -> PyResult<()> {
        match self.protocol(py) {
            Some(protocol) => run(&protocol),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl TlsTransport {
    /// True: `loop.start_tls()` may add another layer of TLS to this transport.
    #[classattr]
    fn _start_tls_compatible() -> bool {
        true
    }

    /// The mode for `loop.sendfile()`: the loop reads the file and writes its bytes to the transport, because the
    /// kernel cannot encrypt them.
    #[classattr]
    fn _sendfile_compatible(py: Python<'_>) -> PyResult<Py<PyAny>> {
        let modes = py.import("asyncio.constants")?.getattr("_SendfileMode")?;
        Ok(modes.getattr("FALLBACK")?.unbind())
    }

    /// asyncio's class, so that `isinstance(transport, asyncio.Transport)` is true (see `BaseTransport`).
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import(intern!(py, "uringcore._isinstance_classes"))?;
        Ok(module.getattr(intern!(py, "SSLTransport"))?.unbind())
    }

    #[getter]
    fn _loop(&self, py: Python<'_>) -> Py<LoopCore> {
        self.owner.clone_ref(py)
    }

    #[getter]
    fn _ssl_protocol<'py>(&self, py: Python<'py>) -> Option<Bound<'py, TlsProtocol>> {
        self.protocol(py)
    }

    #[getter]
    fn _closed(&self, py: Python<'_>) -> bool {
        self.read_state(py, true, |state| state.closed)
    }

    #[getter]
    fn _protocol_paused(&self, py: Python<'_>) -> bool {
        self.read_state(py, false, |state| state.writing_paused)
    }

    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        match self.protocol(py) {
            Some(protocol) => protocol.get().extra_info(py, name, default),
            None => Ok(default),
        }
    }

    fn set_protocol(&self, py: Python<'_>, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let buffered = is_buffered(protocol)?;
        let new = protocol.clone().unbind();
        let old = self.read_state(py, None, |state| {
            state.buffered = buffered;
            state.app.replace(new)
        });
        drop(old);
        Ok(())
    }

    fn get_protocol<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.protocol(py)?.get().app(py)
    }

    fn is_closing(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(protocol) = self.protocol(py) else {
            return Ok(true);
        };
        if protocol.get().state.with(py, |state| state.closed) {
            return Ok(true);
        }
        match protocol.get().lower(py) {
            Some(lower) => lower.is_closing(py),
            None => Ok(false),
        }
    }

    /// Closes the transport when all written bytes are sent and the peer's close_notify has come, or after the shutdown
    /// time-out. connection_lost() follows.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with_protocol(py, |protocol| {
            TlsProtocol::close(protocol)?;
            if protocol
                .get()
                .state
                .with(py, |state| state.is_unneeded && state.over())
            {
                self.drop_protocol(py);
            }
            Ok(())
        })
    }

    /// Closes the transport at once. Unsent bytes are lost.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.with_protocol(py, |protocol| TlsProtocol::force_close(protocol, None))
    }

    #[pyo3(signature = (exc = None))]
    fn _force_close(&self, py: Python<'_>, exc: Option<Py<PyAny>>) -> PyResult<()> {
        self.with_protocol(py, |protocol| TlsProtocol::force_close(protocol, exc))
    }

    fn is_reading(&self, py: Python<'_>) -> bool {
        self.read_state(py, false, |state| !state.reading_paused)
    }

    fn pause_reading(&self, py: Python<'_>) {
        self.read_state(py, (), |state| state.reading_paused = true);
    }

    fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.with_protocol(py, TlsProtocol::resume_reading)
    }

    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        check_bytes_like(data)?;
        self.with_protocol(data.py(), |protocol| TlsProtocol::write(protocol, data))
    }

    fn writelines(&self, list_of_data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with_protocol(list_of_data.py(), |protocol| {
            TlsProtocol::writelines(protocol, list_of_data)
        })
    }

    fn write_eof(&self) -> PyResult<()> {
        Err(PyNotImplementedError::new_err(()))
    }

    fn can_write_eof(&self) -> bool {
        false
    }

    #[pyo3(signature = (high = None, low = None))]
    fn set_write_buffer_limits(
        &self,
        py: Python<'_>,
        high: Option<&Bound<'_, PyAny>>,
        low: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let marks = WaterMarks::new(high, low, WRITE_HIGH_WATER_BYTES, Pause::At)?;
        self.with_protocol(py, |protocol| {
            let state = &protocol.get().state;
            drop(state.with(py, |state| std::mem::replace(&mut state.write_marks, marks)));
            TlsProtocol::control_app_writing(protocol)
        })
    }

    fn get_write_buffer_limits<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        self.read_state(py, WaterMarks::default().to_python(py), |state| {
            state.write_marks.to_python(py)
        })
    }

    /// The number of bytes that wait to be encrypted or to be sent by the transport beneath.
    fn get_write_buffer_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.unsent_bytes(py)
    }

    #[pyo3(signature = (high = None, low = None))]
    fn set_read_buffer_limits(
        &self,
        py: Python<'_>,
        high: Option<&Bound<'_, PyAny>>,
        low: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let marks = WaterMarks::new(high, low, READ_HIGH_WATER_BYTES, Pause::At)?;
        self.with_protocol(py, |protocol| {
            let state = &protocol.get().state;
            drop(state.with(py, |state| std::mem::replace(&mut state.read_marks, marks)));
            TlsProtocol::control_lower_reading(protocol)
        })
    }

    fn get_read_buffer_limits<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        self.read_state(py, WaterMarks::default().to_python(py), |state| {
            state.read_marks.to_python(py)
        })
    }

    /// The number of received bytes that were not delivered yet.
    fn get_read_buffer_size(&self, py: Python<'_>) -> PyResult<usize> {
        match self.protocol(py) {
            Some(protocol) => protocol.get().unread_bytes(py),
            None => Ok(0),
        }
    }

    /// Adds bytes to the backlog. CPython's own tests call this.
    #[pyo3(name = "_test__append_write_backlog")]
    fn append_write_backlog(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = crate::capi::bytes_like_objects::bytes_like(data)?;
        self.with_protocol(data.py(), |protocol| {
            protocol.get().push(data.py(), bytes);
            Ok(())
        })
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let state = if slf.get()._closed(slf.py()) {
            " closing"
        } else {
            ""
        };
        Ok(format!("<{}{state}>", slf.get_type().name()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        self.protocol
            .traverse(|protocol| visit.call(protocol))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        self.drop_protocol(py);
    }
}

impl Drop for TlsTransport {
    fn drop(&mut self) {
        // A finalising interpreter shows no warnings, and this thread cannot attach to it.
        Python::try_attach(|py| {
            let closed =
                self.read_state(py, true, |state| std::mem::replace(&mut state.closed, true));
            if !closed {
                let text = "unclosed transport <uringcore SSLTransport>".to_owned();
                warn_of_a_dying_object(&py.get_type::<PyResourceWarning>(), text);
            }
        });
    }
}
