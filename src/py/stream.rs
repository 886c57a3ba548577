//! The stream transport: asyncio.Transport's behaviour over one stream of the engine.
//!
//! Rules about bytes are in the engine's `stream`; here are those about Python: what raises, what is
//! logged, what the transport's methods do. Which protocol method is called when is in `events`;
//! callbacks run in the context that was current when the transport was made.

mod carrier;
mod events;

use std::os::fd::RawFd;

use pyo3::exceptions::{PyConnectionAbortedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_engine::{Key, SocketFd, WriteOutcome};
use uringcore_io::{SockAddr, net};

use crate::cell::GilCell;
use crate::context::Entered;
use crate::dispatch::{command, report};
use crate::hosts::host_at;
use crate::loop_core::{LoopCore, Ready};
use crate::{address, buffer, extra_info};

struct State {
    protocol: Option<Py<PyAny>>,
    /// The protocol takes its bytes through get_buffer() and buffer_updated().
    buffered: bool,
    server: Option<Py<PyAny>>,
    /// A Python socket that the transport closes at its end, or one made for get_extra_info.
    socket: Option<Py<PyAny>>,
    /// The engine's descriptor is the Python socket's, not the engine's own.
    lent: bool,
    extra: Option<Py<PyDict>>,
    context: Option<Py<PyAny>>,
    key: Option<Key>,
    started: bool,
    paused: bool,
    closing: bool,
    eof_written: bool,
    protocol_paused: bool,
    /// Writes after the connection was lost, as asyncio counts them.
    writes_lost: u32,
    lost_error: Option<Py<PyAny>>,
    drain_waiter: Option<Py<PyAny>>,
    peer: Option<SockAddr>,
    local: Option<SockAddr>,
}

/// A connected stream socket with the interface of asyncio.Transport.
#[pyclass(frozen, weakref, module = "uringcore._uringcore")]
pub struct StreamTransport {
    owner: Py<LoopCore>,
    fd: RawFd,
    state: GilCell<State>,
}

impl StreamTransport {
    /// Puts a connected socket on the loop. The caller schedules its start.
    pub fn open(
        owner: &Bound<'_, LoopCore>,
        fd: SocketFd,
        socket: Option<Py<PyAny>>,
        protocol: Py<PyAny>,
        extra: Option<Py<PyDict>>,
        server: Option<Py<PyAny>>,
        context: Py<PyAny>,
    ) -> PyResult<Py<Self>> {
        let py = owner.py();
        let raw = fd.raw();
        let lent = matches!(fd, SocketFd::Lent(_));
        // Asked now because a closed descriptor has no addresses, and connection_lost() wants them.
        let (peer, local) = (net::peer_addr(raw).ok(), net::local_addr(raw).ok());
        // Not every stream is TCP.
        let _ = net::set_nodelay(raw, true);
        let this = owner.get();
        let key = this.with_engine(py, |engine| engine.open_stream(fd))?;
        let buffered = is_buffered(protocol.bind(py))?;
        let transport = Py::new(
            py,
            Self {
                owner: owner.clone().unbind(),
                fd: raw,
                state: GilCell::new(State {
                    protocol: Some(protocol),
                    buffered,
                    server: server.as_ref().map(|server| server.clone_ref(py)),
                    socket,
                    lent,
                    extra,
                    context: Some(context),
                    key: Some(key),
                    started: false,
                    paused: false,
                    closing: false,
                    eof_written: false,
                    protocol_paused: false,
                    writes_lost: 0,
                    lost_error: None,
                    drain_waiter: None,
                    peer,
                    local,
                }),
            },
        )?;
        let hosted = transport.clone_ref(py);
        this.hosts
            .with(py, |hosts| host_at(&mut hosts.streams, key, hosted));
        if let Some(server) = server {
            owner.call_method1(intern!(py, "_server_attach"), (server, &transport))?;
        }
        Ok(transport)
    }

    fn key(&self, py: Python<'_>) -> Option<Key> {
        self.state.with(py, |state| state.key)
    }

    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.protocol.as_ref().map(|p| p.clone_ref(py)))
    }

    fn enter_context(&self, py: Python<'_>, entered: &mut Entered) -> PyResult<()> {
        let context = self
            .state
            .with(py, |state| state.context.as_ref().map(|c| c.clone_ref(py)));
        match context {
            Some(context) => entered.switch(py, &context),
            None => Ok(()),
        }
    }

    pub fn end_with(&self, py: Python<'_>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let key = self.state.with(py, |state| {
            state.closing = true;
            if state.lost_error.is_none() {
                state.lost_error = error;
            }
            state.key
        });
        match key {
            Some(key) => command(py, &self.owner, |engine| engine.abort_stream(key, None)),
            None => Ok(()),
        }
    }

    fn after_write(slf: &Bound<'_, Self>, outcome: WriteOutcome) -> PyResult<()> {
        if outcome != WriteOutcome::PauseWriting {
            return Ok(());
        }
        let py = slf.py();
        let this = slf.get();
        let protocol = this.state.with(py, |state| {
            state.protocol_paused = true;
            state.protocol.as_ref().map(|p| p.clone_ref(py))
        });
        if let Some(protocol) = protocol
            && let Err(error) = protocol.bind(py).call_method0(intern!(py, "pause_writing"))
        {
            report(
                py,
                &this.owner,
                "protocol.pause_writing() failed",
                error,
                slf,
                &protocol,
                None,
            )?;
        }
        Ok(())
    }

    /// Checks what asyncio checks before any write. `None`: the connection is gone, drop the bytes.
    fn writable_key(&self, py: Python<'_>) -> PyResult<Option<Key>> {
        let (key, closing, eof_written, draining, lost) = self.state.with(py, |state| {
            let lost = state.key.is_none() || state.lost_error.is_some();
            (
                state.key,
                state.closing,
                state.eof_written,
                state.drain_waiter.is_some(),
                lost,
            )
        });
        if eof_written {
            return Err(PyRuntimeError::new_err(
                "Cannot call write() after write_eof()",
            ));
        }
        if draining {
            return Err(PyRuntimeError::new_err(
                "unable to write; sendfile is in progress",
            ));
        }
        if !closing && !lost {
            return Ok(key);
        }
        let count = self.state.with(py, |state| {
            state.writes_lost += 1;
            state.writes_lost
        });
        if count >= WRITES_LOST_BEFORE_WARNING {
            self.owner.bind(py).call_method1(
                intern!(py, "_log_warning"),
                ("socket.send() raised exception.",),
            )?;
        }
        Ok(None)
    }
}

#[pymethods]
impl StreamTransport {
    /// A transport over a connected, non-blocking Python socket, which it closes at its end.
    #[new]
    #[pyo3(signature = (owner, socket, protocol, waiter = None, extra = None, server = None))]
    fn new(
        owner: &Bound<'_, LoopCore>,
        socket: &Bound<'_, PyAny>,
        protocol: Py<PyAny>,
        waiter: Option<Py<PyAny>>,
        extra: Option<Py<PyDict>>,
        server: Option<Py<PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = owner.py();
        let fd: RawFd = socket.call_method0(intern!(py, "fileno"))?.extract()?;
        if fd < 0 {
            return Err(PyValueError::new_err("sock: the socket is closed"));
        }
        let transport = Self::open(
            owner,
            SocketFd::Lent(fd),
            Some(socket.clone().unbind()),
            protocol,
            extra,
            server,
            crate::context::copy_current(py)?,
        )?;
        let start = Ready::Start(transport.clone_ref(py), waiter);
        owner.get().push_ready(py, start);
        Ok(transport)
    }

    /// loop.start_tls() may put TLS on this transport.
    #[classattr]
    fn _start_tls_compatible() -> bool {
        true
    }

    /// loop.sendfile() may use sendfile(2) on this transport's socket.
    #[classattr]
    fn _sendfile_compatible(py: Python<'_>) -> PyResult<Py<PyAny>> {
        let modes = py.import("asyncio.constants")?.getattr("_SendfileMode")?;
        Ok(modes.getattr("TRY_NATIVE")?.unbind())
    }

    /// `isinstance(transport, asyncio.Transport)` has to hold, and an extension class cannot derive
    /// from a Python class with slots: like a mock, the object names the class that it stands for.
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import(intern!(py, "uringcore.transports"))?;
        Ok(module.getattr(intern!(py, "StreamTransport"))?.unbind())
    }

    #[getter]
    fn _loop(&self, py: Python<'_>) -> Py<LoopCore> {
        self.owner.clone_ref(py)
    }

    #[getter]
    fn _sock_fd(&self) -> RawFd {
        self.fd
    }

    #[getter]
    fn _sock(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        Self::socket_object(slf)
    }

    #[getter]
    fn _protocol_paused(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.protocol_paused)
    }

    #[getter]
    fn _protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol(py)
    }

    fn get_protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol(py)
    }

    fn set_protocol(&self, py: Python<'_>, protocol: Py<PyAny>) -> PyResult<()> {
        let buffered = is_buffered(protocol.bind(py))?;
        let old = self.state.with(py, |state| {
            state.buffered = buffered;
            // The new protocol never heard pause_writing(), so it must not hear resume_writing().
            state.protocol_paused = false;
            state.protocol.replace(protocol)
        });
        drop(old);
        Ok(())
    }

    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(
        slf: &Bound<'_, Self>,
        name: &str,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        let this = slf.get();
        let found = match name {
            "socket" => match Self::socket_object(slf)? {
                Some(socket) => Some(extra_info::transport_socket(py, socket)?),
                None => None,
            },
            "peername" | "sockname" => {
                let addr = this.state.with(py, |state| {
                    if name == "peername" {
                        state.peer.clone()
                    } else {
                        state.local.clone()
                    }
                });
                match addr {
                    Some(addr) => Some(address::to_python(py, &addr)?),
                    None => None,
                }
            }
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
        let extra = this
            .state
            .with(py, |state| state.extra.as_ref().map(|e| e.clone_ref(py)));
        extra_info::or_default(py, extra, name, default)
    }

    fn is_closing(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.closing)
    }

    fn is_reading(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| !state.closing && !state.paused)
    }

    fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        let key = self.state.with(py, |state| {
            if state.closing || state.paused {
                return None;
            }
            state.paused = true;
            state.key
        });
        match key {
            Some(key) => command(py, &self.owner, |engine| engine.pause_reading(key)),
            None => Ok(()),
        }
    }

    fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        let key = self.state.with(py, |state| {
            if state.closing || !state.paused {
                return None;
            }
            state.paused = false;
            state.key.filter(|_| state.started)
        });
        match key {
            Some(key) => command(py, &self.owner, |engine| engine.resume_reading(key)),
            None => Ok(()),
        }
    }

    fn write(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let bytes = buffer::bytes_like(data)?;
        if let (Some(key), false) = (this.writable_key(py)?, bytes.is_empty()) {
            let outcome = command(py, &this.owner, |engine| engine.write(key, bytes))?;
            Self::after_write(slf, outcome)?;
        }
        Ok(())
    }

    fn writelines(slf: &Bound<'_, Self>, list_of_data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let pieces = list_of_data
            .try_iter()?
            .map(|item| buffer::bytes_like(&item?))
            .collect::<PyResult<Vec<_>>>()?;
        let Some(key) = this.writable_key(py)? else {
            return Ok(());
        };
        for bytes in pieces.into_iter().filter(|bytes| !bytes.is_empty()) {
            let outcome = command(py, &this.owner, |engine| engine.write(key, bytes))?;
            Self::after_write(slf, outcome)?;
        }
        Ok(())
    }

    fn can_write_eof(&self) -> bool {
        true
    }

    fn write_eof(&self, py: Python<'_>) -> PyResult<()> {
        let key = self.state.with(py, |state| {
            if state.closing || std::mem::replace(&mut state.eof_written, true) {
                return None;
            }
            state.key
        });
        match key {
            Some(key) => command(py, &self.owner, |engine| engine.finish_writing(key)),
            None => Ok(()),
        }
    }

    /// Closes after everything written is sent; connection_lost(None) follows.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let key = self.state.with(py, |state| {
            if std::mem::replace(&mut state.closing, true) {
                None
            } else {
                state.key
            }
        });
        match key {
            Some(key) => command(py, &self.owner, |engine| engine.close_stream(key)),
            None => Ok(()),
        }
    }

    /// Closes at once; bytes that were not sent are lost.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.end_with(py, None)
    }

    #[pyo3(signature = (exc = None))]
    fn _force_close(&self, py: Python<'_>, exc: Option<Py<PyAny>>) -> PyResult<()> {
        self.end_with(py, exc)
    }

    #[pyo3(signature = (exc, message = "Fatal error on transport"))]
    fn _fatal_error(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>, message: &str) -> PyResult<()> {
        Self::fatal(slf, PyErr::from_value(exc), message, None)
    }

    #[pyo3(signature = (high = None, low = None))]
    fn set_write_buffer_limits(
        slf: &Bound<'_, Self>,
        high: Option<i64>,
        low: Option<i64>,
    ) -> PyResult<()> {
        let (low, high) = watermarks(high, low)?;
        let py = slf.py();
        if let Some(key) = slf.get().key(py) {
            let outcome = command(py, &slf.get().owner, |engine| {
                engine.set_stream_watermarks(key, low, high)
            })?;
            Self::after_write(slf, outcome)?;
        }
        Ok(())
    }

    fn get_write_buffer_limits(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let key = self.key(py);
        let found = match key {
            Some(key) => command(py, &self.owner, |engine| {
                engine.stream(key).map(|s| s.watermarks())
            })?,
            None => None,
        };
        Ok(found.unwrap_or((0, 0)))
    }

    fn get_write_buffer_size(&self, py: Python<'_>) -> PyResult<usize> {
        let key = self.key(py);
        let found = match key {
            Some(key) => command(py, &self.owner, |engine| {
                engine.stream(key).map(|s| s.write_queue_bytes())
            })?,
            None => None,
        };
        Ok(found.unwrap_or(0))
    }

    /// A future that is done when everything written is with the kernel (sendfile waits for it).
    fn _make_empty_waiter(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        if this.state.with(py, |state| state.drain_waiter.is_some()) {
            return Err(PyRuntimeError::new_err("Empty waiter is already set"));
        }
        let waiter = this
            .owner
            .bind(py)
            .call_method0(intern!(py, "create_future"))?;
        let kept = waiter.clone().unbind();
        this.state.with(py, |state| state.drain_waiter = Some(kept));
        match this.key(py) {
            Some(key) => command(py, &this.owner, |engine| engine.notify_when_drained(key))?,
            None => fail_waiter(&waiter)?,
        }
        Ok(waiter.unbind())
    }

    fn _reset_empty_waiter(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| state.drain_waiter.take());
        drop(old);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let this = slf.get();
        let (closed, closing, paused) = this.state.with(py, |state| {
            (state.key.is_none(), state.closing, state.paused)
        });
        let mut text = format!("<{}", slf.get_type().name()?);
        if closed {
            text.push_str(" closed");
        } else if closing {
            text.push_str(" closing");
        }
        text.push_str(&format!(" fd={}", this.fd));
        if !closed {
            text.push_str(if paused {
                " read=idle"
            } else {
                " read=polling"
            });
            text.push_str(&format!(
                " write=<bufsize={}>",
                this.get_write_buffer_size(py)?
            ));
        }
        text.push('>');
        Ok(text)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        self.state
            .traverse(|state| {
                visit.call(&state.protocol)?;
                visit.call(&state.server)?;
                visit.call(&state.socket)?;
                visit.call(&state.extra)?;
                visit.call(&state.context)?;
                visit.call(&state.lost_error)?;
                visit.call(&state.drain_waiter)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let dropped = self.state.with(py, |state| {
            (
                state.protocol.take(),
                state.server.take(),
                state.extra.take(),
                state.context.take(),
                state.lost_error.take(),
                state.drain_waiter.take(),
            )
        });
        drop(dropped);
    }
}

impl StreamTransport {
    /// Takes a socket object that was made for get_extra_info off the engine's descriptor: the engine
    /// closes that one, and the number may be somebody else's when the object is collected.
    pub fn release_borrowed_socket(&self, py: Python<'_>) -> PyResult<()> {
        let borrowed = self.state.with(py, |state| {
            // After its loop a transport is closed: nothing asks the engine for it again.
            state.key = None;
            state.closing = true;
            if state.lent {
                None
            } else {
                state.socket.take()
            }
        });
        if let Some(socket) = borrowed {
            socket.bind(py).call_method0(intern!(py, "detach"))?;
        }
        Ok(())
    }

    /// The Python socket: the caller's own, or one made on first demand over the engine's descriptor.
    fn socket_object(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        let this = slf.get();
        let (socket, open) = this.state.with(py, |state| {
            let open = state.key.is_some() && !state.closing;
            (
                state.socket.as_ref().map(|socket| socket.clone_ref(py)),
                open,
            )
        });
        if socket.is_some() || !open {
            return Ok(socket);
        }
        let made = this
            .owner
            .bind(py)
            .call_method1(intern!(py, "_borrow_socket"), (this.fd,))?;
        let kept = made.clone().unbind();
        this.state.with(py, |state| state.socket = Some(kept));
        Ok(Some(made.unbind()))
    }
}

fn fail_waiter(waiter: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = waiter.py();
    if !waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
        let error = PyConnectionAbortedError::new_err("Connection is closed by peer");
        waiter.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?;
    }
    Ok(())
}

fn is_buffered(protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = protocol.py();
    let class = py
        .import(intern!(py, "asyncio.protocols"))?
        .getattr(intern!(py, "BufferedProtocol"))?;
    protocol.is_instance(&class)
}

/// asyncio's `_set_write_buffer_limits`: `(low, high)` with its defaults and its error.
pub fn watermarks(high: Option<i64>, low: Option<i64>) -> PyResult<(usize, usize)> {
    watermarks_above(high, low, 64 * 1024)
}

/// The same with another default for the high one.
pub fn watermarks_above(
    high: Option<i64>,
    low: Option<i64>,
    default: usize,
) -> PyResult<(usize, usize)> {
    let (high, low) = match (high, low) {
        (None, None) => return Ok((default / 4, default)),
        (None, Some(low)) => (4 * low, low),
        (Some(high), None) => (high, high / 4),
        (Some(high), Some(low)) => (high, low),
    };
    if high < low || low < 0 {
        return Err(PyValueError::new_err(format!(
            "high ({high}) must be >= low ({low}) must be >= 0"
        )));
    }
    match (usize::try_from(low), usize::try_from(high)) {
        (Ok(low), Ok(high)) => Ok((low, high)),
        _ => Err(PyTypeError::new_err(
            "the limits must be non-negative integers",
        )),
    }
}

/// asyncio's LOG_THRESHOLD_FOR_CONNLOST_WRITES.
const WRITES_LOST_BEFORE_WARNING: u32 = 5;
