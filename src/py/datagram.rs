//! The datagram transport: asyncio.DatagramTransport's behaviour over one socket of the engine.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_engine::{Key, SendOutcome, SocketFd};
use uringcore_io::{Datagram, Errno, SendMsg, SockAddr, net};

use crate::cell::GilCell;
use crate::context::Entered;
use crate::dispatch::{command, report};
use crate::hosts::{host_at, host_take};
use crate::loop_core::{LoopCore, Ready};
use crate::stream::watermarks;
use crate::{address, buffer, error, extra_info};

struct State {
    protocol: Option<Py<PyAny>>,
    socket: Option<Py<PyAny>>,
    extra: Option<Py<PyDict>>,
    context: Option<Py<PyAny>>,
    key: Option<Key>,
    /// The only address to send to (`remote_addr` of create_datagram_endpoint).
    remote: Option<(SocketAddr, Py<PyAny>)>,
    closing: bool,
    protocol_paused: bool,
    lost_error: Option<Py<PyAny>>,
    /// The last sender's address, which is usually the next one's too.
    last_sender: Option<(SocketAddr, Py<PyTuple>)>,
    last_target: Option<(Py<PyAny>, SockAddr)>,
    local: Option<SockAddr>,
}

/// A datagram socket with the interface of asyncio.DatagramTransport.
#[pyclass(frozen, weakref, module = "uringcore._uringcore")]
pub struct DatagramTransport {
    owner: Py<LoopCore>,
    fd: RawFd,
    state: GilCell<State>,
}

impl DatagramTransport {
    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.protocol.as_ref().map(|p| p.clone_ref(py)))
    }

    fn key(&self, py: Python<'_>) -> Option<Key> {
        self.state.with(py, |state| state.key)
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

    /// Calls one protocol method; what it raises is a fatal error of the transport, as in asyncio.
    fn call_protocol<'py>(
        slf: &Bound<'py, Self>,
        method: &str,
        args: impl pyo3::call::PyCallArgs<'py>,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let Some(protocol) = this.protocol(py) else {
            return Ok(());
        };
        this.enter_context(py, entered)?;
        match protocol.bind(py).call_method1(method, args) {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = format!("Exception in protocol.{method}()");
                report(
                    py,
                    &this.owner,
                    &message,
                    error,
                    slf,
                    &protocol,
                    Some(entered),
                )
            }
        }
    }

    // Events, called by dispatch -----------------------------------------------------------------

    pub fn connection_made(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        Self::call_protocol(slf, "connection_made", (slf,), entered)?;
        let py = slf.py();
        let this = slf.get();
        match this.key(py) {
            Some(key) => command(py, &this.owner, |engine| engine.start_datagram_reading(key)),
            None => Ok(()),
        }
    }

    pub fn received(
        slf: &Bound<'_, Self>,
        datagram: Datagram,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if this.state.with(py, |state| state.closing) {
            return Ok(());
        }
        let bytes = PyBytes::new(py, datagram.payload());
        let sender = this.sender(py, &datagram)?;
        drop(datagram);
        Self::call_protocol(slf, "datagram_received", (bytes, sender), entered)
    }

    pub fn error_received(
        slf: &Bound<'_, Self>,
        errno: Errno,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let error = error::os_error(errno).into_value(py);
        Self::call_protocol(slf, "error_received", (error,), entered)
    }

    pub fn resume_writing(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        let py = slf.py();
        let paused = slf
            .get()
            .state
            .with(py, |state| std::mem::take(&mut state.protocol_paused));
        if paused {
            Self::call_protocol(slf, "resume_writing", (), entered)
        } else {
            Ok(())
        }
    }

    pub fn closed(
        slf: &Bound<'_, Self>,
        errno: Option<Errno>,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (key, lost_error) = this.state.with(py, |state| {
            state.closing = true;
            (state.key.take(), state.lost_error.take())
        });
        if let Some(key) = key {
            let hosted = this
                .owner
                .get()
                .hosts
                .with(py, |hosts| host_take(&mut hosts.datagrams, key));
            drop(hosted);
        }
        let reason = error::lost_reason(py, lost_error, errno);
        let outcome = Self::call_protocol(slf, "connection_lost", (reason,), entered);
        let (protocol, socket, extra, context, remote) = this.state.with(py, |state| {
            (
                state.protocol.take(),
                state.socket.take(),
                state.extra.take(),
                state.context.take(),
                state.remote.take(),
            )
        });
        entered.leave(py);
        if let Some(socket) = socket {
            socket.bind(py).call_method0(intern!(py, "close"))?;
        }
        drop((protocol, extra, context, remote));
        outcome
    }

    fn sender<'py>(&self, py: Python<'py>, datagram: &Datagram) -> PyResult<Bound<'py, PyAny>> {
        let Some(addr) = datagram.remote() else {
            return Ok(address::to_python(py, &datagram.raw_remote())?.into_bound(py));
        };
        let known = self.state.with(py, |state| match &state.last_sender {
            Some((last, tuple)) if *last == addr => Some(tuple.clone_ref(py)),
            _ => None,
        });
        if let Some(tuple) = known {
            return Ok(tuple.into_bound(py).into_any());
        }
        let tuple = address::inet_to_python(py, addr)?;
        let kept = tuple.clone().unbind();
        let old = self
            .state
            .with(py, |state| state.last_sender.replace((addr, kept)));
        drop(old);
        Ok(tuple.into_any())
    }

    /// Where a datagram for the Python address `addr` goes; `None` is the connected peer.
    fn target(
        &self,
        py: Python<'_>,
        addr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<SockAddr>> {
        let remote = self.state.with(py, |state| {
            state
                .remote
                .as_ref()
                .map(|(_, python)| python.clone_ref(py))
        });
        if let Some(remote) = remote {
            if let Some(addr) = addr
                && !addr.eq(&remote)?
            {
                return Err(PyValueError::new_err(format!(
                    "Invalid address: must be None or {}",
                    remote.bind(py)
                )));
            }
            return Ok(None);
        }
        let Some(addr) = addr else {
            return Ok(None);
        };
        let known = self.state.with(py, |state| match &state.last_target {
            Some((last, target)) if last.is(addr) => Some(target.clone()),
            _ => None,
        });
        if known.is_some() {
            return Ok(known);
        }
        let target = SockAddr::from(address::inet_from_python(addr)?);
        let entry = (addr.clone().unbind(), target.clone());
        let old = self
            .state
            .with(py, |state| state.last_target.replace(entry));
        drop(old);
        Ok(Some(target))
    }

    fn end_with(&self, py: Python<'_>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let key = self.state.with(py, |state| {
            state.closing = true;
            if state.lost_error.is_none() {
                state.lost_error = error;
            }
            state.key
        });
        match key {
            Some(key) => command(py, &self.owner, |engine| engine.abort_datagram(key, None)),
            None => Ok(()),
        }
    }

    fn after_send(slf: &Bound<'_, Self>, outcome: SendOutcome) -> PyResult<()> {
        if outcome != SendOutcome::PauseWriting {
            return Ok(());
        }
        let py = slf.py();
        let this = slf.get();
        this.state.with(py, |state| state.protocol_paused = true);
        if let Some(protocol) = this.protocol(py)
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
}

#[pymethods]
impl DatagramTransport {
    /// A transport over a bound or connected, non-blocking Python socket, which it closes at its end.
    #[new]
    #[pyo3(signature = (owner, socket, protocol, address = None, waiter = None, extra = None))]
    fn new(
        owner: &Bound<'_, LoopCore>,
        socket: &Bound<'_, PyAny>,
        protocol: Py<PyAny>,
        address: Option<Bound<'_, PyAny>>,
        waiter: Option<Py<PyAny>>,
        extra: Option<Py<PyDict>>,
    ) -> PyResult<Py<Self>> {
        let py = owner.py();
        let fd: RawFd = socket.call_method0(intern!(py, "fileno"))?.extract()?;
        if fd < 0 {
            return Err(PyValueError::new_err("sock: the socket is closed"));
        }
        let remote = match address {
            Some(addr) => Some((address::inet_from_python(&addr)?, addr.unbind())),
            None => None,
        };
        let this = owner.get();
        let key = this.with_engine(py, |engine| engine.open_datagram(SocketFd::Lent(fd)))?;
        let transport = Py::new(
            py,
            Self {
                owner: owner.clone().unbind(),
                fd,
                state: GilCell::new(State {
                    protocol: Some(protocol),
                    socket: Some(socket.clone().unbind()),
                    extra,
                    context: Some(crate::context::copy_current(py)?),
                    key: Some(key),
                    remote,
                    closing: false,
                    protocol_paused: false,
                    lost_error: None,
                    last_sender: None,
                    last_target: None,
                    local: net::local_addr(fd).ok(),
                }),
            },
        )?;
        let hosted = transport.clone_ref(py);
        this.hosts
            .with(py, |hosts| host_at(&mut hosts.datagrams, key, hosted));
        this.push_ready(py, Ready::StartDatagram(transport.clone_ref(py), waiter));
        Ok(transport)
    }

    /// `isinstance(transport, asyncio.Transport)` has to hold, and an extension class cannot derive
    /// from a Python class with slots: like a mock, the object names the class that it stands for.
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import(intern!(py, "uringcore.transports"))?;
        Ok(module.getattr(intern!(py, "DatagramTransport"))?.unbind())
    }

    #[getter]
    fn _loop(&self, py: Python<'_>) -> Py<LoopCore> {
        self.owner.clone_ref(py)
    }

    fn get_protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol(py)
    }

    fn set_protocol(&self, py: Python<'_>, protocol: Py<PyAny>) {
        let old = self
            .state
            .with(py, |state| state.protocol.replace(protocol));
        drop(old);
    }

    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(
        &self,
        py: Python<'_>,
        name: &str,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let found = match name {
            "socket" => {
                let socket = self
                    .state
                    .with(py, |state| state.socket.as_ref().map(|s| s.clone_ref(py)));
                match socket {
                    Some(socket) => Some(extra_info::transport_socket(py, socket)?),
                    None => None,
                }
            }
            "sockname" => match self.state.with(py, |state| state.local.clone()) {
                Some(addr) => Some(address::to_python(py, &addr)?),
                None => None,
            },
            "peername" => self.state.with(py, |state| {
                state
                    .remote
                    .as_ref()
                    .map(|(_, python)| python.clone_ref(py))
            }),
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
        let extra = self
            .state
            .with(py, |state| state.extra.as_ref().map(|e| e.clone_ref(py)));
        extra_info::or_default(py, extra, name, default)
    }

    fn is_closing(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.closing)
    }

    /// Sends one datagram, to `addr` or to the peer that the endpoint was made for.
    #[pyo3(signature = (data, addr = None))]
    fn sendto(
        slf: &Bound<'_, Self>,
        data: &Bound<'_, PyAny>,
        addr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let bytes: Bytes = buffer::bytes_like(data)?;
        let to = this.target(py, addr)?;
        let Some(key) = this.key(py) else {
            return Ok(());
        };
        if bytes.is_empty()
            && !this
                .owner
                .bind(py)
                .getattr("_sends_empty_datagrams")?
                .is_truthy()?
        {
            return Ok(());
        }
        let message = SendMsg {
            data: bytes,
            to,
            segment_size: None,
            ecn: None,
            src_ip: None,
        };
        let outcome = command(py, &this.owner, |engine| engine.send_datagram(key, message))?;
        Self::after_send(slf, outcome)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let key = self.state.with(py, |state| {
            if std::mem::replace(&mut state.closing, true) {
                None
            } else {
                state.key
            }
        });
        match key {
            Some(key) => command(py, &self.owner, |engine| engine.close_datagram(key)),
            None => Ok(()),
        }
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.end_with(py, None)
    }

    #[pyo3(signature = (exc = None))]
    fn _force_close(&self, py: Python<'_>, exc: Option<Py<PyAny>>) -> PyResult<()> {
        self.end_with(py, exc)
    }

    #[pyo3(signature = (exc, message = "Fatal error on transport"))]
    fn _fatal_error(slf: &Bound<'_, Self>, exc: Bound<'_, PyAny>, message: &str) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if !exc.is_instance_of::<PyOSError>() {
            let protocol = this.protocol(py);
            this.owner
                .bind(py)
                .call_method1(intern!(py, "_report"), (message, &exc, slf, protocol))?;
        }
        this.end_with(py, Some(exc.unbind()))
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
                engine.set_datagram_watermarks(key, low, high)
            })?;
            Self::after_send(slf, outcome)?;
        }
        Ok(())
    }

    fn get_write_buffer_limits(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let found = match self.key(py) {
            Some(key) => command(py, &self.owner, |engine| {
                engine.datagram(key).map(|d| d.watermarks())
            })?,
            None => None,
        };
        Ok(found.unwrap_or((0, 0)))
    }

    fn get_write_buffer_size(&self, py: Python<'_>) -> PyResult<usize> {
        let found = match self.key(py) {
            Some(key) => command(py, &self.owner, |engine| {
                engine
                    .datagram(key)
                    .map(|socket| socket.write_queue_bytes())
            })?,
            None => None,
        };
        Ok(found.unwrap_or(0))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let closed = this.key(slf.py()).is_none();
        let state = if closed { " closed" } else { "" };
        Ok(format!(
            "<{}{state} fd={}>",
            slf.get_type().name()?,
            this.fd
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        self.state
            .traverse(|state| {
                visit.call(&state.protocol)?;
                visit.call(&state.socket)?;
                visit.call(&state.extra)?;
                visit.call(&state.context)?;
                visit.call(&state.lost_error)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let dropped = self.state.with(py, |state| {
            (
                state.protocol.take(),
                state.extra.take(),
                state.context.take(),
                state.lost_error.take(),
                state.last_target.take(),
            )
        });
        drop(dropped);
    }
}
