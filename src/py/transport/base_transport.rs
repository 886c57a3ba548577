//! The base of stream and datagram transports: their state, asyncio's flow control, and their common methods.
//!
//! | file | content |
//! | --- | --- |
//! | `lifecycle` | the start and the end of a transport |
//! | `protocol_calls` | calls of the protocol: their context, and the exceptions that they raise |
//! | `extra_info` | the values of `get_extra_info` |
//! | `buffer_limits` | the arguments of `set_write_buffer_limits` and similar methods |
//!
//! The subclasses in `stream` and `datagram` handle the bytes.
//!
//! **Rule: the state of a transport is in the engine, and `SharedState` shows it.** While the loop's thread is inside
//! the kernel, a command of another thread raises `RuntimeError`. The flags (closing, paused) are only stored in the
//! engine, so a refused command changes nothing. Sizes, limits and `repr` come from `SharedState`, which can be read
//! without the engine.

mod buffer_limits;
mod extra_info;
mod lifecycle;
mod protocol_calls;

pub use buffer_limits::{OriginalMarks, Pause, WaterMarks};
pub use lifecycle::{check_protocol, fail_waiter};
pub use protocol_calls::Method;

use std::os::fd::{OwnedFd, RawFd};

use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_engine::{Engine, HIGH_MARK_BYTES, Key, SharedState, WriteOutcome};

use crate::capi::contextvars_context::CallbackContext;
use crate::capi::exception_conversion::warn_of_a_dying_object;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
use crate::tls::TlsProtocol;
use crate::transport::native_protocol::NativeReceive;

/// The interface through which a stream's protocol gets received bytes.
#[derive(Clone, Copy)]
pub enum Receiver {
    /// `data_received(bytes)`
    Bytes,
    /// `get_buffer()` and `buffer_updated()`
    Buffer,
    /// Our TLS, which gets the bytes without a Python object.
    Tls,
    /// A protocol of this extension, whose function gets the bytes without a Python object.
    Native(NativeReceive),
}

/// The socket's descriptor, with the Python object that owns it. The engine uses the descriptor and never closes it.
pub enum Descriptor {
    /// The transport owns the descriptor. At the end the engine closes it by an operation of the ring.
    Owned(OwnedFd),
    /// A Python socket owns the descriptor. The transport closes that socket at the end.
    Socket(Py<PyAny>),
    /// The transport has ended, and the descriptor is closed or passed on.
    Gone,
}

pub struct TransportState {
    /// The transport's key in the engine. `None` before the transport is in the engine, and after `connection_lost`.
    pub key: Option<Key>,
    pub descriptor: Descriptor,
    pub protocol: Option<Py<PyAny>>,
    pub context: Option<CallbackContext>,
    pub receiver: Receiver,
    pub server: Option<Py<PyAny>>,
    pub extra: Option<Py<PyDict>>,
    /// The number of writes after the end of the connection, counted as in asyncio.
    pub writes_lost: u32,
    pub given_marks: OriginalMarks,
    /// State that few transports have, and only for a short time.
    rare: Option<Box<RareState>>,
}

#[derive(Default)]
pub struct RareState {
    pub lost_error: Option<Py<PyAny>>,
    /// The context in which `connection_lost` is called. `None` if it is the context of the other callbacks.
    pub lost_context: Option<Py<PyAny>>,
    /// The future of a `sendfile` that waits until the write queue is empty.
    pub empty_waiter: Option<Py<PyAny>>,
}

impl TransportState {
    pub fn rare(&mut self) -> &mut RareState {
        self.rare.get_or_insert_default()
    }

    pub fn empty_waiter(&self) -> Option<&Py<PyAny>> {
        self.rare.as_ref()?.empty_waiter.as_ref()
    }

    pub fn take_empty_waiter(&mut self) -> Option<Py<PyAny>> {
        self.rare.as_mut()?.empty_waiter.take()
    }
}

/// The Python class of the transport, for `repr` and messages.
#[derive(Clone, Copy)]
pub enum TransportClass {
    Stream,
    Datagram,
}

impl TransportClass {
    fn name(self) -> &'static str {
        match self {
            Self::Stream => "StreamTransport",
            Self::Datagram => "DatagramTransport",
        }
    }
}

/// A transport over a socket: the base of the stream and datagram transports.
#[pyclass(frozen, subclass, weakref, module = "uringcore._uringcore")]
pub struct BaseTransport {
    pub owner: Py<LoopCore>,
    pub fd: RawFd,
    class: TransportClass,
    /// The flags and sizes that the engine shows of the transport.
    pub shared: SharedState,
    pub state: GilCell<TransportState>,
}

impl BaseTransport {
    pub fn key(&self, py: Python<'_>) -> Option<Key> {
        self.state.with(py, |state| state.key)
    }

    pub fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.protocol.as_ref().map(|p| p.clone_ref(py)))
    }

    /// The future of a `sendfile` that waits until the write queue is empty.
    pub fn empty_waiter<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.state
            .with(py, |state| state.empty_waiter().map(|w| w.bind(py).clone()))
    }

    pub fn command<R>(&self, py: Python<'_>, run: impl FnOnce(&mut Engine) -> R) -> PyResult<R> {
        self.owner.get().with_engine(py, run)
    }

    /// Reports to the engine if the protocol now has its own buffer and had none before, or the reverse.
    pub fn note_receiver(&self, py: Python<'_>, before: Receiver) {
        let (receiver, key) = self.state.with(py, |state| (state.receiver, state.key));
        let has_own_buffer = matches!(receiver, Receiver::Buffer);
        if has_own_buffer != matches!(before, Receiver::Buffer)
            && let Some(key) = key
        {
            // The size of a receive changes nothing that a program sees. So an engine that is out of reach, for
            // instance on a closed loop, is no error.
            let _ = self.command(py, |engine| {
                engine.transports().set_own_buffer(key, has_own_buffer);
            });
        }
    }

    /// The checks before any write, as in asyncio. Returns `None` if the connection has ended, so that the bytes are
    /// dropped.
    pub fn writable(&self, py: Python<'_>) -> PyResult<Option<Key>> {
        let (key, lost) = self.state.with(py, |state| {
            let key = state.key.filter(|_| !self.is_ending());
            state.writes_lost = state.writes_lost.saturating_add(u32::from(key.is_none()));
            (key, state.writes_lost)
        });
        if key.is_none() && lost >= WRITES_LOST_BEFORE_WARNING {
            self.owner.bind(py).call_method1(
                intern!(py, "_log_warning"),
                ("socket.send() raised exception.",),
            )?;
        }
        Ok(key)
    }

    /// True if programs see the transport as closing. As in asyncio, a failed write makes it so.
    pub fn is_ending(&self) -> bool {
        self.shared.is_closing() || self.shared.has_failed()
    }

    /// The number of callbacks that are ready to run. A caller detects by it that a callback has scheduled another one.
    pub fn scheduled(&self, py: Python<'_>) -> usize {
        self.owner.get().ready.with(py, |ready| ready.len())
    }

    pub fn log_debug(slf: &Bound<'_, Self>, message: &str) -> PyResult<()> {
        let py = slf.py();
        let owner = &slf.get().owner;
        if owner.get().is_debug() {
            owner
                .bind(py)
                .call_method1(intern!(py, "_log_debug"), (message, slf))?;
        }
        Ok(())
    }
}

#[pymethods]
impl BaseTransport {
    /// asyncio's class, so that `isinstance(transport, asyncio.Transport)` is true. An extension class cannot derive
    /// from a Python class with slots, so the object returns that class as its `__class__`, as a mock does.
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import(intern!(py, "uringcore._isinstance_classes"))?;
        Ok(module.getattr(self.class.name())?.unbind())
    }

    // Attributes of asyncio's transports that programs read ----------------------------------------

    #[getter]
    fn _loop(&self, py: Python<'_>) -> Option<Py<LoopCore>> {
        let open = self.state.with(py, |state| state.protocol.is_some());
        open.then(|| self.owner.clone_ref(py))
    }

    #[getter]
    fn _sock_fd(&self) -> RawFd {
        self.fd
    }

    #[getter]
    fn _sock<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        if slf.get().state.with(py, |state| state.protocol.is_none()) {
            return Ok(None);
        }
        extra_info::socket(slf)
    }

    #[getter]
    fn _extra<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let answers = extra_info::module(slf.py())?;
        answers.call_method1(intern!(slf.py(), "everything"), (slf,))
    }

    #[getter]
    fn _server(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.server.as_ref().map(|s| s.clone_ref(py)))
    }

    #[getter]
    fn _protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol(py)
    }

    #[getter]
    fn _protocol_connected(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.protocol.is_some())
    }

    #[getter]
    fn _protocol_paused(&self) -> bool {
        self.shared.is_above()
    }

    #[getter]
    fn _paused(&self) -> bool {
        self.shared.is_paused()
    }

    #[getter]
    fn _closing(&self) -> bool {
        self.is_ending()
    }

    #[getter]
    fn _conn_lost(&self, py: Python<'_>) -> u32 {
        let lost = self.state.with(py, |state| state.writes_lost);
        lost.saturating_add(u32::from(
            self.shared.is_quiet() || self.shared.has_failed(),
        ))
    }

    #[getter]
    fn _high_water<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.get_write_buffer_limits(py)?.1)
    }

    #[getter]
    fn _low_water<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.get_write_buffer_limits(py)?.0)
    }

    /// The largest number of bytes that asyncio's transports receive at once.
    #[classattr]
    fn max_size() -> usize {
        256 * 1024
    }

    // Used by `_transport_extra_info.py` -----------------------------------------------------------------------

    #[getter(_kept)]
    fn kept(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.state
            .with(py, |state| state.extra.as_ref().map(|e| e.clone_ref(py)))
    }

    #[setter(_kept)]
    fn keep(&self, py: Python<'_>, kept: Py<PyDict>) {
        drop(self.state.with(py, |state| state.extra.replace(kept)));
    }

    fn _socket<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        extra_info::socket(slf)
    }

    fn _ask_address(&self, py: Python<'_>, name: &str) -> PyResult<Option<Py<PyAny>>> {
        extra_info::address(self, py, name)
    }

    // asyncio.BaseTransport ----------------------------------------------------------------------

    fn get_protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol(py)
    }

    fn set_protocol(&self, py: Python<'_>, protocol: Py<PyAny>) -> PyResult<()> {
        let receiver = Receiver::of(protocol.bind(py))?;
        // The new protocol must not get a `resume_writing()`, because it got no `pause_writing()`. On a closed loop
        // neither is called.
        if self.shared.is_above()
            && self.owner.get().check_closed().is_ok()
            && let Some(key) = self.key(py)
        {
            self.command(py, |engine| engine.transports().change_producer(key))?;
        }
        let (before, old) = self.state.with(py, |state| {
            let before = std::mem::replace(&mut state.receiver, receiver);
            (before, state.protocol.replace(protocol))
        });
        drop(old);
        self.note_receiver(py, before);
        Ok(())
    }

    #[pyo3(signature = (name, default = None))]
    fn get_extra_info<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let answers = extra_info::module(slf.py())?;
        answers.call_method1(intern!(slf.py(), "find"), (slf, name, default))
    }

    fn is_closing(&self) -> bool {
        self.is_ending()
    }

    /// Closes the transport when all written bytes are sent. ``connection_lost(None)`` follows.
    pub fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        match this.key(py) {
            Some(key) if !this.shared.is_closing() => {
                this.end(py, None, |engine| engine.transports().close(key))
            }
            _ => Ok(()),
        }
    }

    /// Closes the transport at once. Unsent bytes are lost.
    fn abort(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::force_close(slf, None)
    }

    #[pyo3(signature = (exc))]
    fn _force_close(slf: &Bound<'_, Self>, exc: Option<Py<PyAny>>) -> PyResult<()> {
        Self::force_close(slf, exc)
    }

    #[pyo3(signature = (exc, message = "Fatal error on transport"))]
    fn _fatal_error(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>, message: &str) -> PyResult<()> {
        Self::fatal(slf, PyErr::from_value(exc), message)
    }

    // Reading ------------------------------------------------------------------------------------

    fn is_reading(&self) -> bool {
        !self.is_ending() && !self.shared.is_paused()
    }

    fn pause_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (true, Some(key)) = (this.is_reading(), this.key(py)) else {
            return Ok(());
        };
        this.command(py, |engine| engine.transports().pause_reading(key))?;
        Self::log_debug(slf, "%r pauses reading")
    }

    fn resume_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let resumes = this.shared.is_paused() && !this.shared.is_closing();
        let (true, Some(key)) = (resumes, this.key(py)) else {
            return Ok(());
        };
        this.command(py, |engine| engine.transports().resume_reading(key))?;
        Self::log_debug(slf, "%r resumes reading")
    }

    // Flow control of writing --------------------------------------------------------------------

    #[pyo3(signature = (high = None, low = None))]
    fn set_write_buffer_limits(
        slf: &Bound<'_, Self>,
        high: Option<&Bound<'_, PyAny>>,
        low: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let marks = WaterMarks::new(high, low, HIGH_MARK_BYTES, Pause::Above)?;
        let WaterMarks { low, high, .. } = marks;
        let py = slf.py();
        let this = slf.get();
        let (outcome, given) = match this.key(py) {
            Some(key) => {
                let outcome =
                    this.command(py, |engine| engine.transports().set_marks(key, low, high))?;
                (outcome, marks.given)
            }
            // The engine has released the transport, so the marks are only stored.
            None => (WriteOutcome::Lost, marks.into_given(py)?),
        };
        let old = this
            .state
            .with(py, |state| std::mem::replace(&mut state.given_marks, given));
        drop(old);
        match outcome {
            WriteOutcome::PauseWriting => Self::pause_writing(slf),
            WriteOutcome::Queued | WriteOutcome::Lost => Ok(()),
        }
    }

    /// The tuple ``(low, high)`` in bytes.
    fn get_write_buffer_limits<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (low, high) = (self.shared.low_mark(), self.shared.high_mark());
        self.state
            .with(py, |state| state.given_marks.to_python(py, low, high))
    }

    /// The number of written bytes that the kernel has not taken. Bytes that are held until the end of the loop
    /// iteration are sent first.
    fn get_write_buffer_size(&self, py: Python<'_>) -> usize {
        if self.shared.queued() > 0
            && let Some(key) = self.key(py)
        {
            // The command fails while the loop is inside the kernel. Its loop iteration has ended then and has sent
            // held bytes already.
            let _ = self.command(py, |engine| engine.transports().send_held(key));
        }
        self.shared.queued()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let this = slf.get();
        let open = this.state.with(py, |state| state.protocol.is_some());
        let (closing, queued) = (this.is_ending(), this.shared.queued());
        let name = slf.get_type().name()?;
        let life = match (open, closing) {
            (false, _) => " closed",
            (true, true) => " closing",
            (true, false) => "",
        };
        let fd = this.fd;
        if !open || this.owner.get().check_closed().is_err() {
            return Ok(format!("<{name}{life} fd={fd}>"));
        }
        let read = if this.is_reading() { "polling" } else { "idle" };
        let write = if queued == 0 { "idle" } else { "polling" };
        Ok(format!(
            "<{name}{life} fd={fd} read={read} write=<{write}, bufsize={queued}>>"
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        self.state
            .traverse(|state| {
                if let Descriptor::Socket(socket) = &state.descriptor {
                    visit.call(socket)?;
                }
                visit.call(&state.protocol)?;
                visit.call(state.context.as_ref().map(CallbackContext::get))?;
                visit.call(&state.server)?;
                visit.call(&state.extra)?;
                if let Some(rare) = &state.rare {
                    visit.call(&rare.lost_error)?;
                    visit.call(&rare.lost_context)?;
                    visit.call(&rare.empty_waiter)?;
                }
                state.given_marks.traverse(&visit)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let dropped = self.state.with(py, |state| {
            (
                state.protocol.take(),
                state.context.take(),
                state.server.take(),
                state.extra.take(),
                state.rare.take(),
                std::mem::take(&mut state.given_marks),
            )
        });
        drop(dropped);
    }
}

/// asyncio's `__del__`: warns that a transport was not closed.
impl Drop for BaseTransport {
    fn drop(&mut self) {
        // At the interpreter's end the thread cannot attach, and no warning is issued.
        Python::try_attach(|py| {
            if self.state.with(py, |state| state.key.is_none()) {
                return;
            }
            let text = format!("unclosed transport <{} fd={}>", self.class.name(), self.fd);
            warn_of_a_dying_object(&py.get_type::<PyResourceWarning>(), text);
        });
    }
}

impl Receiver {
    pub fn of(protocol: &Bound<'_, PyAny>) -> PyResult<Self> {
        if protocol.is_exact_instance_of::<TlsProtocol>() {
            Ok(Self::Tls)
        } else if is_buffered(protocol)? {
            Ok(Self::Buffer)
        } else {
            Ok(Self::Bytes)
        }
    }
}

pub fn is_buffered(protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
    static CLASS: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
    let py = protocol.py();
    let class = CLASS.get_or_try_init(py, || {
        let module = py.import("asyncio.protocols")?;
        Ok::<_, PyErr>(module.getattr("BufferedProtocol")?.unbind())
    })?;
    protocol.is_instance(class.bind(py))
}

/// The number of writes after the end of the connection from which on each one is logged. In asyncio:
/// LOG_THRESHOLD_FOR_CONNLOST_WRITES.
const WRITES_LOST_BEFORE_WARNING: u32 = 5;

/// The arguments of a new transport.
pub struct TransportArguments {
    pub class: TransportClass,
    pub fd: RawFd,
    pub descriptor: Descriptor,
    pub protocol: Py<PyAny>,
    pub extra: Option<Py<PyDict>>,
    pub server: Option<Py<PyAny>>,
    pub context: CallbackContext,
}
