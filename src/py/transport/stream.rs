//! The stream transport: the behaviour of asyncio.Transport over one stream of the engine.
//!
//! | file | content |
//! | --- | --- |
//! | `engine_events` | converts the engine's events to calls of the protocol |
//! | `methods_for_native_protocols` | the methods that TLS calls on the transport below it |
//!
//! This file has the exceptions and log messages of writes; the rules about bytes are in the engine's
//! `transport::stream`. The parts in common with datagrams, such as flow control and closing, are in
//! `base_transport`.

mod engine_events;
mod methods_for_native_protocols;

use std::os::fd::RawFd;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use uringcore_engine::{Key, Piece, WriteOutcome};
use uringcore_io::net;

use crate::capi::bytes_like_objects::{self, Outgoing};
use crate::capi::class_with_dict::{self, ClassWithDict};
use crate::capi::contextvars_context::CallbackContext;
use crate::capi::exception_conversion;
use crate::event_loop::loop_core::LoopCore;
use crate::event_loop::ready_queue::Ready;
use crate::sock::operation_queues;
use crate::transport::base_transport::{
    BaseTransport, Descriptor, Receiver, TransportArguments, TransportClass,
};

/// A connected stream socket with the interface of asyncio.Transport.
#[pyclass(frozen, subclass, extends = BaseTransport, module = "uringcore._uringcore")]
pub struct StreamTransport {}

impl ClassWithDict for StreamTransport {
    fn subclass() -> &'static PyOnceLock<Py<PyType>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        &CLASS
    }
}

impl StreamTransport {
    /// Adds a connected socket to the engine. The caller schedules `connection_made` and the first read.
    pub fn open(
        owner: &Bound<'_, LoopCore>,
        fd: RawFd,
        descriptor: Descriptor,
        protocol: Py<PyAny>,
        extra: Option<Py<PyDict>>,
        server: Option<Py<PyAny>>,
        context: CallbackContext,
    ) -> PyResult<Py<Self>> {
        let py = owner.py();
        let base = BaseTransport::build(
            owner,
            TransportArguments {
                class: TransportClass::Stream,
                fd,
                descriptor,
                protocol,
                extra,
                server,
                context,
            },
        )?;
        // An error is ignored, because a stream that is not TCP does not have this option.
        let _ = net::set_nodelay(fd, true);
        let transport =
            class_with_dict::instance(py, PyClassInitializer::from(base).add_subclass(Self {}))?;
        let bound = transport.bind(py);
        BaseTransport::attach(bound.as_super(), |engine, shared| {
            engine.transports().open_stream(fd, shared)
        })?;
        bound.as_super().get().note_receiver(py, Receiver::Bytes);
        Ok(transport)
    }

    /// Fails for a write after `write_eof`, and while `sendfile` uses the socket.
    fn check_may_write(base: &BaseTransport, py: Python<'_>, call: &str) -> PyResult<()> {
        let sendfile = base.state.with(py, |state| state.empty_waiter().is_some());
        let text = match (base.shared.is_finished(), sendfile) {
            (true, _) => format!("Cannot call {call}() after write_eof()"),
            (_, true) => format!("unable to {call}; sendfile is in progress"),
            _ => return Ok(()),
        };
        Err(PyRuntimeError::new_err(text))
    }

    /// Queues bytes on the stream. Calls the protocol's `pause_writing` if the queue is now above its high-water mark.
    fn queue(base: &Bound<'_, BaseTransport>, key: Key, data: Outgoing<'_>) -> PyResult<()> {
        let py = base.py();
        let outcome = base.get().command(py, |engine| match data {
            Outgoing::Copied(bytes) => engine.transports().write_copy(key, bytes),
            Outgoing::Object(object, bytes) => {
                let keep = |sent| bytes_like_objects::hold_bytes(object.bind(py)).slice(sent..);
                engine.transports().write_keeping(key, bytes, keep)
            }
            Outgoing::Kept(bytes) => engine.transports().write(key, bytes),
        })?;
        Self::apply_outcome(base, outcome)
    }

    fn apply_outcome(base: &Bound<'_, BaseTransport>, outcome: WriteOutcome) -> PyResult<()> {
        match outcome {
            WriteOutcome::PauseWriting => BaseTransport::pause_writing(base),
            WriteOutcome::Queued | WriteOutcome::Lost => Ok(()),
        }
    }
}

#[pymethods]
impl StreamTransport {
    /// Makes a transport over a connected, non-blocking Python socket, which the transport closes at its end.
    #[new]
    #[pyo3(signature = (
        owner, socket, protocol, waiter = None, extra = None, server = None, context = None
    ))]
    fn new(
        owner: &Bound<'_, LoopCore>,
        socket: &Bound<'_, PyAny>,
        protocol: Py<PyAny>,
        waiter: Option<Py<PyAny>>,
        extra: Option<Py<PyDict>>,
        server: Option<Py<PyAny>>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = owner.py();
        let fd: RawFd = socket.call_method0(intern!(py, "fileno"))?.extract()?;
        if fd < 0 {
            return Err(PyValueError::new_err("sock: the socket is closed"));
        }
        operation_queues::cancel_receives(owner, socket)?;
        let transport = Self::open(
            owner,
            fd,
            Descriptor::Socket(socket.clone().unbind()),
            protocol,
            extra,
            server,
            CallbackContext::new(py, context)?,
        )?;
        if let Some(key) = transport.bind(py).as_super().get().key(py) {
            operation_queues::pass_results(owner, socket, key)?;
        }
        let base = transport.bind(py).as_super().clone().unbind();
        owner.get().push_ready(py, Ready::Start(base, waiter));
        Ok(transport)
    }

    /// True: `loop.start_tls()` may add TLS to this transport.
    #[classattr]
    fn _start_tls_compatible() -> bool {
        true
    }

    /// The mode for `loop.sendfile()`: sendfile(2) may be called on this transport's socket.
    #[classattr]
    fn _sendfile_compatible(py: Python<'_>) -> PyResult<Py<PyAny>> {
        let modes = py.import("asyncio.constants")?.getattr("_SendfileMode")?;
        Ok(modes.getattr("TRY_NATIVE")?.unbind())
    }

    #[getter]
    fn _eof(slf: &Bound<'_, Self>) -> bool {
        slf.as_super().get().shared.is_finished()
    }

    #[getter]
    fn _empty_waiter(slf: &Bound<'_, Self>) -> Option<Py<PyAny>> {
        let waiter = slf.as_super().get().empty_waiter(slf.py());
        waiter.map(Bound::unbind)
    }

    fn write(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let base = slf.as_super();
        let data = Outgoing::bytes_like(data)?;
        Self::check_may_write(base.get(), py, "write")?;
        if data.is_empty() {
            return Ok(());
        }
        match base.get().writable(py)? {
            Some(key) => Self::queue(base, key, data),
            None => Ok(()),
        }
    }

    fn writelines(slf: &Bound<'_, Self>, list_of_data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let base = slf.as_super();
        // Before CPython 3.12, asyncio's writelines() called write() with the joined data, and errors name that method.
        let name = if py.version_info() >= (3, 12) {
            "writelines"
        } else {
            "write"
        };
        Self::check_may_write(base.get(), py, name)?;
        let mut items = Vec::new();
        for item in list_of_data.try_iter()? {
            let item = item?;
            // Each item is checked before the next one is read, because a wrong iterable may be endless.
            bytes_like_objects::check(&item)?;
            items.push(item);
        }
        let pieces = items
            .iter()
            .map(Outgoing::any_buffer)
            .collect::<PyResult<Vec<_>>>()?;
        if pieces.iter().all(Outgoing::is_empty) {
            return Ok(());
        }
        let Some(key) = base.get().writable(py)? else {
            return Ok(());
        };
        let pieces = pieces.into_iter().filter(|data| !data.is_empty());
        let pieces = pieces.map(|data| match data {
            Outgoing::Copied(bytes) => Piece::Copied(bytes),
            Outgoing::Object(object, _) => {
                Piece::Kept(bytes_like_objects::hold_bytes(object.bind(py)))
            }
            Outgoing::Kept(bytes) => Piece::Kept(bytes),
        });
        let outcome = base
            .get()
            .command(py, |engine| engine.transports().write_pieces(key, pieces))?;
        Self::apply_outcome(base, outcome)
    }

    fn can_write_eof(&self) -> bool {
        true
    }

    fn write_eof(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let base = slf.as_super().get();
        let over = base.is_ending() || base.shared.is_finished();
        let (false, Some(key)) = (over, base.key(py)) else {
            return Ok(());
        };
        let outcome = base.command(py, |engine| engine.transports().finish_writing(key))?;
        outcome.map_err(|error| exception_conversion::io_error(&error))
    }

    /// Makes a future that is done when the kernel has taken all written bytes. `sendfile` waits for it.
    fn _make_empty_waiter(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let base = slf.as_super().get();
        if base.state.with(py, |state| state.empty_waiter().is_some()) {
            return Err(PyRuntimeError::new_err("Empty waiter is already set"));
        }
        let waiter = base
            .owner
            .bind(py)
            .call_method0(intern!(py, "create_future"))?;
        let empty = match base.key(py) {
            Some(key) => base.command(py, |engine| engine.transports().notify_when_flushed(key))?,
            None => true,
        };
        let kept = waiter.clone().unbind();
        let old = base
            .state
            .with(py, |state| state.rare().empty_waiter.replace(kept));
        drop(old);
        if empty {
            waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
        }
        Ok(waiter.unbind())
    }

    fn _reset_empty_waiter(slf: &Bound<'_, Self>) {
        let base = slf.as_super().get();
        let old = base.state.with(slf.py(), |state| state.take_empty_waiter());
        drop(old);
    }
}
