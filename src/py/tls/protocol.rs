//! `TlsProtocol`: the protocol of the transport beneath, and the state of one TLS connection.
//!
//! This file has the state, the methods that Python calls, and the attributes of asyncio's `SSLProtocol` that
//! libraries use. The other files of this room have the methods that handle handshake, data and shutdown.

use std::collections::VecDeque;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat};
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_wire::tls::record_boundaries::RecordBoundaries;

use super::decryption::ReadAhead;
use super::lower_transport::LowerTransport;
use super::ssl_object::SslObject;
use super::transport::TlsTransport;
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
use crate::transport::base_transport::{WaterMarks, check_protocol, is_buffered};

/// The phase of a connection (asyncio's SSLProtocolState).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPhase {
    /// TLS has not started yet, or has ended.
    Unwrapped,
    Handshake,
    Wrapped,
    /// The remaining bytes are delivered and sent before close_notify is sent.
    Flushing,
    /// Our close_notify was sent, or is useless because the peer has sent its end of file.
    Shutdown,
    /// Our sending direction is closed. Records of a peer that still sends are dropped until the peer closes.
    Lingering,
}

/// The last event that the application's protocol has got (asyncio's AppProtocolState).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppState {
    Nothing,
    ConnectionMade,
    EofReceived,
    ConnectionLost,
}

pub struct TlsState {
    pub lower: Option<LowerTransport>,
    pub app: Option<Py<PyAny>>,
    /// The application's protocol has `get_buffer()` and `buffer_updated()`.
    pub buffered: bool,
    pub app_transport: Option<Py<TlsTransport>>,
    pub waiter: Option<Py<PyAny>>,
    /// A failure of the handshake is logged in debug mode, because there is no waiter that would get it.
    pub report_failure: bool,
    pub phase: TlsPhase,
    pub reported: AppState,
    pub eof_received: bool,
    /// The application has closed its transport.
    pub closed: bool,
    /// The application has closed its transport and called `close()` once more. The transport then drops this object
    /// when the connection is lost.
    pub is_unneeded: bool,
    /// The number of bytes of records that may still be dropped. `None`: a peer that sends after our close_notify is
    /// cut off.
    pub linger_bytes: Option<usize>,
    /// A call into `ssl` is running, so OpenSSL must not be entered again.
    pub in_ssl: bool,
    pub extra: Py<PyDict>,
    pub handshake_timer: Option<Py<PyAny>>,
    pub shutdown_timer: Option<Py<PyAny>>,
    /// The start of the handshake, in seconds of the loop's clock. Set in debug mode only.
    pub handshake_began: Option<f64>,

    pub records: RecordBoundaries,
    /// OpenSSL may hold plaintext that has not been read.
    pub more_inside: bool,
    /// Bytes were passed to OpenSSL and not read, or read and not delivered, because this loop iteration brings more.
    pub unread: bool,
    pub ahead: ReadAhead,
    pub reading_paused: bool,
    pub lower_reading_paused: bool,
    pub read_marks: WaterMarks,

    pub backlog: VecDeque<Bytes>,
    pub backlog_bytes: usize,
    pub writing_paused: bool,
    pub lower_writing_paused: bool,
    pub write_marks: WaterMarks,
    /// The number of writes since the connection was lost.
    pub writes_lost: u32,
}

impl TlsState {
    /// True if the connection existed and is lost.
    pub fn over(&self) -> bool {
        self.lower.is_none() && self.app_transport.is_none()
    }
}

/// The protocol that does TLS between a transport and the application's protocol.
#[pyclass(frozen, weakref, module = "uringcore._uringcore")]
pub struct TlsProtocol {
    pub owner: Py<LoopCore>,
    pub ssl: SslObject,
    pub context: Py<PyAny>,
    pub server_side: bool,
    /// The time-outs in seconds, in the form in which the caller has passed them.
    pub handshake_timeout: Py<PyAny>,
    pub shutdown_timeout: Py<PyAny>,
    pub state: GilCell<TlsState>,
}

/// The arguments of a new connection.
pub struct Setup<'py> {
    pub context: Bound<'py, PyAny>,
    pub server_side: bool,
    pub server_hostname: Option<Bound<'py, PyAny>>,
    pub call_connection_made: bool,
    pub accepted: bool,
    pub handshake_timeout: Option<Bound<'py, PyAny>>,
    pub shutdown_timeout: Option<Bound<'py, PyAny>>,
}

impl TlsProtocol {
    pub fn create<'py>(
        owner: &Bound<'py, LoopCore>,
        app: &Bound<'py, PyAny>,
        waiter: Option<Py<PyAny>>,
        setup: Setup<'py>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = owner.py();
        if setup.call_connection_made {
            check_protocol(app)?;
        }
        let handshake_timeout = seconds(
            py,
            "ssl_handshake_timeout",
            setup.handshake_timeout,
            HANDSHAKE_SECONDS,
        )?;
        let shutdown_timeout = seconds(
            py,
            "ssl_shutdown_timeout",
            setup.shutdown_timeout,
            SHUTDOWN_SECONDS,
        )?;
        let context = if setup.context.is_truthy()? {
            setup.context
        } else {
            py.import(intern!(py, "asyncio.sslproto"))?.call_method1(
                intern!(py, "_create_transport_context"),
                (setup.server_side, &setup.server_hostname),
            )?
        };
        let hostname = match setup.server_hostname {
            Some(name) if !setup.server_side && name.is_truthy()? => Some(name),
            _ => None,
        };
        let ssl = SslObject::wrap(&context, setup.server_side, hostname.as_ref())?;
        let extra = PyDict::new(py);
        extra.set_item(intern!(py, "sslcontext"), &context)?;
        let state = TlsState {
            lower: None,
            app: Some(app.clone().unbind()),
            buffered: is_buffered(app)?,
            app_transport: None,
            waiter,
            report_failure: setup.accepted,
            phase: TlsPhase::Unwrapped,
            reported: if setup.call_connection_made {
                AppState::Nothing
            } else {
                AppState::ConnectionMade
            },
            eof_received: false,
            closed: false,
            is_unneeded: false,
            linger_bytes: None,
            in_ssl: false,
            extra: extra.unbind(),
            handshake_timer: None,
            shutdown_timer: None,
            handshake_began: None,
            records: RecordBoundaries::default(),
            more_inside: false,
            unread: false,
            ahead: ReadAhead::default(),
            reading_paused: false,
            lower_reading_paused: false,
            read_marks: WaterMarks::below(READ_HIGH_WATER_BYTES),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            writing_paused: false,
            lower_writing_paused: false,
            write_marks: WaterMarks::below(WRITE_HIGH_WATER_BYTES),
            writes_lost: 0,
        };
        let made = Bound::new(
            py,
            Self {
                owner: owner.clone().unbind(),
                ssl,
                context: context.unbind(),
                server_side: setup.server_side,
                handshake_timeout,
                shutdown_timeout,
                state: GilCell::new(state),
            },
        )?;
        let app_transport = crate::capi::class_with_dict::instance(py, TlsTransport::new(&made))?;
        made.get()
            .state
            .with(py, |state| state.app_transport = Some(app_transport));
        Ok(made)
    }

    /// Runs one call into `ssl`. Meanwhile Python code may call this connection again, which `in_ssl` records.
    pub fn in_ssl<R>(&self, py: Python<'_>, call: impl FnOnce(&SslObject) -> R) -> R {
        self.state.with(py, |state| state.in_ssl = true);
        let result = call(&self.ssl);
        self.state.with(py, |state| state.in_ssl = false);
        result
    }

    pub fn phase(&self, py: Python<'_>) -> TlsPhase {
        self.state.with(py, |state| state.phase)
    }

    pub fn set_phase(&self, py: Python<'_>, phase: TlsPhase) {
        self.state.with(py, |state| state.phase = phase);
    }

    pub fn lower(&self, py: Python<'_>) -> Option<LowerTransport> {
        self.state
            .with(py, |state| state.lower.as_ref().map(|l| l.clone_ref(py)))
    }

    pub fn app<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.state.with(py, |state| {
            state.app.as_ref().map(|app| app.bind(py).clone())
        })
    }

    pub fn app_transport<'py>(&self, py: Python<'py>) -> Option<Bound<'py, TlsTransport>> {
        self.state.with(py, |state| {
            state
                .app_transport
                .as_ref()
                .map(|app_transport| app_transport.bind(py).clone())
        })
    }

    pub fn extra<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.state.with(py, |state| state.extra.bind(py).clone())
    }

    /// Returns the value of `get_extra_info(name)`: that of this connection, or else that of the transport beneath.
    pub fn extra_info(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        if let Some(value) = self.extra(py).get_item(name)? {
            return Ok(Some(value.unbind()));
        }
        match self.lower(py) {
            Some(lower) => {
                let found = lower
                    .as_any(py)
                    .call_method1(intern!(py, "get_extra_info"), (name, default))?;
                Ok(Some(found.unbind()))
            }
            None => Ok(default),
        }
    }

    /// Passes an error to the loop's exception handler. Returns the error if it must leave the loop.
    pub fn report(
        slf: &Bound<'_, Self>,
        message: &str,
        error: PyErr,
        transport: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        if exception_conversion::is_exit(py, &error) {
            return Err(error);
        }
        slf.get().owner.bind(py).call_method1(
            intern!(py, "_report"),
            (message, error.into_value(py), transport, slf),
        )?;
        Ok(())
    }

    /// Calls `loop.call_later(delay, self.method)`.
    pub fn start_timer(
        slf: &Bound<'_, Self>,
        delay: &Py<PyAny>,
        method: &str,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let callback = slf.getattr(method)?;
        let owner = slf.get().owner.bind(py);
        let timer = owner.call_method1(intern!(py, "call_later"), (delay, callback))?;
        Ok(timer.unbind())
    }
}

pub fn cancel_timer(py: Python<'_>, timer: Option<Py<PyAny>>) -> PyResult<()> {
    if let Some(timer) = timer {
        timer.bind(py).call_method0(intern!(py, "cancel"))?;
    }
    Ok(())
}

fn seconds(
    py: Python<'_>,
    name: &str,
    value: Option<Bound<'_, PyAny>>,
    default: f64,
) -> PyResult<Py<PyAny>> {
    let Some(value) = value else {
        return Ok(PyFloat::new(py, default).into_any().unbind());
    };
    if value.le(0)? {
        return Err(PyValueError::new_err(format!(
            "{name} should be a positive number, got {}",
            value.str()?
        )));
    }
    Ok(value.unbind())
}

#[pymethods]
impl TlsProtocol {
    #[new]
    #[pyo3(signature = (
        owner, app_protocol, sslcontext, waiter = None, server_side = false,
        server_hostname = None, call_connection_made = true, ssl_handshake_timeout = None,
        ssl_shutdown_timeout = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "asyncio's SSLProtocol has these")]
    fn new<'py>(
        owner: &Bound<'py, LoopCore>,
        app_protocol: &Bound<'py, PyAny>,
        sslcontext: Bound<'py, PyAny>,
        waiter: Option<Py<PyAny>>,
        server_side: bool,
        server_hostname: Option<Bound<'py, PyAny>>,
        call_connection_made: bool,
        ssl_handshake_timeout: Option<Bound<'py, PyAny>>,
        ssl_shutdown_timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let setup = Setup {
            context: sslcontext,
            server_side,
            server_hostname,
            call_connection_made,
            accepted: false,
            handshake_timeout: ssl_handshake_timeout,
            shutdown_timeout: ssl_shutdown_timeout,
        };
        Self::create(owner, app_protocol, waiter, setup)
    }

    /// asyncio's class, so that `isinstance(protocol, asyncio.Protocol)` is true (see `BaseTransport`).
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import(intern!(py, "uringcore._isinstance_classes"))?;
        Ok(module.getattr(intern!(py, "TlsProtocol"))?.unbind())
    }

    // Calls of the transport beneath --------------------------------------------------------------

    fn connection_made(slf: &Bound<'_, Self>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let lower = LowerTransport::new(transport);
        let old = slf
            .get()
            .state
            .with(slf.py(), |state| state.lower.replace(lower));
        drop(old);
        if slf.get().state.with(slf.py(), |state| state.closed) {
            // The connection was closed before the transport was ready, because the task that had requested it was
            // cancelled.
            return Self::force_close(slf, None);
        }
        Self::start_handshake(slf)
    }

    fn data_received(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let taken = match data.cast::<PyBytes>() {
            Ok(bytes) => Self::take(slf, bytes.as_bytes(), false),
            Err(_) => Self::take(
                slf,
                &crate::capi::bytes_like_objects::bytes_like(data)?,
                false,
            ),
        };
        Self::taken(slf, taken, false)
    }

    fn eof_received(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Self::lower_eof(slf)
    }

    fn connection_lost(slf: &Bound<'_, Self>, exc: Option<Py<PyAny>>) -> PyResult<()> {
        Self::lower_lost(slf, exc)
    }

    fn pause_writing(&self, py: Python<'_>) {
        self.state
            .with(py, |state| state.lower_writing_paused = true);
    }

    fn resume_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::lower_resumed(slf)
    }

    // Calls of the loop ---------------------------------------------------------------------------

    fn _check_handshake_timeout(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::handshake_timed_out(slf)
    }

    /// Ends a pause that a high-water mark of 0 has caused, at the end of a loop iteration in which the backlog is
    /// empty.
    fn _control_app_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::control_app_writing(slf)
    }

    fn _check_shutdown_timeout(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::shutdown_timed_out(slf)
    }

    /// Continues in the loop iteration after `resume_reading`.
    fn _resume(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::continue_phase(slf)
    }

    // Attributes of asyncio's class ---------------------------------------------------------------

    fn _get_app_transport<'py>(&self, py: Python<'py>) -> Option<Bound<'py, TlsTransport>> {
        self.app_transport(py)
    }

    #[getter]
    fn _app_transport<'py>(&self, py: Python<'py>) -> Option<Bound<'py, TlsTransport>> {
        self.app_transport(py)
    }

    #[getter]
    fn _app_protocol<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.app(py)
    }

    #[getter]
    fn _transport<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.lower(py).map(|lower| lower.as_any(py).clone())
    }

    #[getter]
    fn _loop(&self, py: Python<'_>) -> Py<LoopCore> {
        self.owner.clone_ref(py)
    }

    #[getter]
    fn _app_reading_paused(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.reading_paused)
    }

    #[getter]
    fn _sslcontext(&self, py: Python<'_>) -> Py<PyAny> {
        self.context.clone_ref(py)
    }

    #[getter]
    fn _sslobj<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.ssl.public(py).clone()
    }

    /// True if data goes directly to OpenSSL. For tests, and for users who measure the cost of the fallback.
    #[getter]
    fn _is_past_the_module(&self) -> bool {
        self.ssl.is_past_the_module()
    }

    #[getter]
    fn _server_side(&self) -> bool {
        self.server_side
    }

    #[getter]
    fn _extra<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.extra(py)
    }

    #[pyo3(signature = (name, default = None))]
    fn _get_extra_info(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.extra_info(py, name, default)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let phase = match this.phase(slf.py()) {
            TlsPhase::Unwrapped => "unwrapped",
            TlsPhase::Handshake => "in handshake",
            TlsPhase::Wrapped => "wrapped",
            TlsPhase::Flushing => "flushing",
            TlsPhase::Shutdown => "shutting down",
            TlsPhase::Lingering => "lingering",
        };
        let side = if this.server_side { "server" } else { "client" };
        Ok(format!("<{} {side} {phase}>", slf.get_type().name()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        visit.call(&self.context)?;
        self.ssl.traverse(&visit)?;
        self.state
            .traverse(|state| {
                if let Some(lower) = &state.lower {
                    lower.traverse(&visit)?;
                }
                visit.call(&state.app)?;
                visit.call(&state.app_transport)?;
                visit.call(&state.waiter)?;
                visit.call(&state.extra)?;
                visit.call(&state.handshake_timer)?;
                visit.call(&state.shutdown_timer)?;
                state.read_marks.given.traverse(&visit)?;
                state.write_marks.given.traverse(&visit)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let dropped = self.state.with(py, |state| {
            (
                state.lower.take(),
                state.app.take(),
                state.app_transport.take(),
                state.waiter.take(),
                state.handshake_timer.take(),
                state.shutdown_timer.take(),
                std::mem::take(&mut state.read_marks.given),
                std::mem::take(&mut state.write_marks.given),
            )
        });
        drop(dropped);
    }
}

/// asyncio.constants.SSL_HANDSHAKE_TIMEOUT.
const HANDSHAKE_SECONDS: f64 = 60.0;
/// asyncio.constants.SSL_SHUTDOWN_TIMEOUT (since Python 3.11).
const SHUTDOWN_SECONDS: f64 = 30.0;
/// asyncio.constants.FLOW_CONTROL_HIGH_WATER_SSL_READ.
pub const READ_HIGH_WATER_BYTES: usize = 256 * 1024;
/// asyncio.constants.FLOW_CONTROL_HIGH_WATER_SSL_WRITE.
pub const WRITE_HIGH_WATER_BYTES: usize = 512 * 1024;
