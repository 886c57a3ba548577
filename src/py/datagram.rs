//! The datagram transport: asyncio.DatagramTransport's behaviour over one socket of the engine.
//!
//! Internet and Unix sockets; `loop.py` leaves other families to asyncio's own transport. Flow
//! control, closing and everything that streams have as well are in `transport`.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_engine::{DatagramSize, Received, SendOutcome};
use uringcore_io::{Errno, SendMsg, SockAddr};

use crate::cell::GilCell;
use crate::context::Entered;
use crate::dispatch::report;
use crate::hosts::host_at;
use crate::loop_core::{LoopCore, Ready};
use crate::transport::{BaseTransport, Descriptor, Kind, Parts, WRITES_LOST_BEFORE_WARNING};
use crate::{address, buffer, error};

/// Addresses in both forms, so that answering a peer makes neither anew. Each has one place, which
/// a later address may take.
#[derive(Default)]
struct Known {
    /// Senders, by their address.
    senders: Vec<Option<(SocketAddr, Py<PyTuple>)>>,
    /// The same and others that were sent to, by the identity of the Python object.
    targets: Vec<Option<(Py<PyAny>, SockAddr)>>,
}

/// A datagram socket with the interface of asyncio.DatagramTransport.
#[pyclass(frozen, extends = BaseTransport, module = "uringcore._uringcore")]
pub struct DatagramTransport {
    family: i32,
    /// `remote_addr` of create_datagram_endpoint: the only address to send to.
    remote: Option<Py<PyAny>>,
    known: GilCell<Known>,
}

impl DatagramTransport {
    // Events, called by dispatch -----------------------------------------------------------------

    pub fn received(
        slf: &Bound<'_, Self>,
        datagram: Received,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let base = slf.as_super().get();
        let bytes = PyBytes::new(py, datagram.payload());
        let sender = slf.get().sender(py, &datagram)?;
        drop(datagram);
        let Some(protocol) = base.enter(py, entered)? else {
            return Ok(());
        };
        let called = protocol
            .bind(py)
            .call_method1(intern!(py, "datagram_received"), (bytes, sender));
        match called {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = "Exception in protocol.datagram_received()";
                report(
                    py,
                    &base.owner,
                    message,
                    error,
                    slf,
                    &protocol,
                    Some(entered),
                )
            }
        }
    }

    pub fn error_received(
        slf: &Bound<'_, Self>,
        errno: Errno,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let base = slf.as_super().get();
        let Some(protocol) = base.enter(py, entered)? else {
            return Ok(());
        };
        let error = error::os_error(errno).into_value(py);
        let called = protocol
            .bind(py)
            .call_method1(intern!(py, "error_received"), (error,));
        match called {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = "Exception in protocol.error_received()";
                report(
                    py,
                    &base.owner,
                    message,
                    error,
                    slf,
                    &protocol,
                    Some(entered),
                )
            }
        }
    }

    fn sender<'py>(&self, py: Python<'py>, datagram: &Received) -> PyResult<Bound<'py, PyAny>> {
        let Some(addr) = datagram.remote() else {
            return Ok(address::to_python(py, &datagram.raw_remote())?.into_bound(py));
        };
        let place = place_of(addr);
        let known = self.known.with(py, |known| match known.senders.get(place) {
            Some(Some((kept, tuple))) if *kept == addr => Some(tuple.clone_ref(py)),
            _ => None,
        });
        if let Some(tuple) = known {
            return Ok(tuple.into_bound(py).into_any());
        }
        let tuple = address::inet_to_python(py, addr)?;
        let entry = (addr, tuple.clone().unbind());
        let old = self
            .known
            .with(py, |known| replace(&mut known.senders, place, entry));
        drop(old);
        self.remember(py, tuple.as_any(), datagram.raw_remote());
        Ok(tuple.into_any())
    }

    fn remember(&self, py: Python<'_>, python: &Bound<'_, PyAny>, addr: SockAddr) {
        let entry = (python.clone().unbind(), addr);
        let old = self.known.with(py, |known| {
            replace(&mut known.targets, place_of_object(python), entry)
        });
        drop(old);
    }

    /// The kernel's form of the Python address `addr`.
    fn target(&self, addr: &Bound<'_, PyAny>) -> PyResult<SockAddr> {
        let py = addr.py();
        let place = place_of_object(addr);
        let known = self.known.with(py, |known| match known.targets.get(place) {
            Some(Some((kept, target))) if kept.is(addr) => Some(target.clone()),
            _ => None,
        });
        match known {
            Some(target) => Ok(target),
            // Only what cannot change is remembered, and no name: that is looked up each time.
            None => {
                let target = address::from_python(self.family, addr)?;
                if address::is_literal(addr) {
                    self.remember(py, addr, target.clone());
                }
                Ok(target)
            }
        }
    }

    /// asyncio's answer to a datagram that cannot be sent: the protocol hears of an OSError, anything
    /// else is fatal.
    fn send_failed(slf: &Bound<'_, Self>, error: PyErr) -> PyResult<()> {
        let py = slf.py();
        let base = slf.as_super();
        if !error.is_instance_of::<PyOSError>(py) {
            let message = "Fatal write error on datagram transport";
            return BaseTransport::fatal(base, error, message, None);
        }
        if let Some(protocol) = base.get().protocol(py) {
            protocol
                .bind(py)
                .call_method1(intern!(py, "error_received"), (error.into_value(py),))?;
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
        let family: i32 = socket.getattr(intern!(py, "family"))?.extract()?;
        let base = BaseTransport::build(
            owner,
            Parts {
                kind: Kind::Datagram,
                fd,
                descriptor: Descriptor::Socket(socket.clone().unbind()),
                protocol,
                extra,
                server: None,
                context: crate::context::copy_current(py)?,
            },
        )?;
        let this = Self {
            family,
            remote: match address {
                Some(address) if address.is_truthy()? => Some(address.unbind()),
                _ => None,
            },
            known: GilCell::new(Known::default()),
        };
        let transport = Py::new(py, PyClassInitializer::from(base).add_subclass(this))?;
        let base = transport.bind(py).as_super();
        let size = match family {
            libc::AF_UNIX => DatagramSize::Large,
            _ => DatagramSize::Buffer,
        };
        BaseTransport::attach(base, size)?;
        if let Some(key) = base.get().key(py) {
            let hosted = transport.clone_ref(py);
            owner
                .get()
                .hosts
                .with(py, |hosts| host_at(&mut hosts.datagrams, key, hosted));
        }
        let start = Ready::Start(base.clone().unbind(), waiter);
        owner.get().push_ready(py, start);
        Ok(transport)
    }

    #[getter]
    fn _address(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.remote.as_ref().map(|remote| remote.clone_ref(py))
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
        let base = slf.as_super().get();
        let data = buffer::bytes_like(data)?;
        if data.is_empty()
            && !base
                .owner
                .bind(py)
                .getattr(intern!(py, "_sends_empty_datagrams"))?
                .is_truthy()?
        {
            return Ok(());
        }
        if let Some(remote) = &this.remote
            && let Some(addr) = addr
            && !addr.eq(remote)?
        {
            return Err(PyValueError::new_err(format!(
                "Invalid address: must be None or {}",
                remote.bind(py)
            )));
        }
        let (key, connected, lost) = base.state.with(py, |state| {
            let key = state.key.filter(|_| !state.closing);
            state.writes_lost += u32::from(key.is_none());
            (key, state.peer.is_some(), state.writes_lost)
        });
        let Some(key) = key else {
            if lost >= WRITES_LOST_BEFORE_WARNING {
                base.owner.bind(py).call_method1(
                    intern!(py, "_log_warning"),
                    ("socket.send() raised exception.",),
                )?;
            }
            return Ok(());
        };
        let to = if connected {
            None
        } else {
            let none = py.None().into_bound(py);
            let addr = addr.unwrap_or_else(|| this.remote.as_ref().map_or(&none, |r| r.bind(py)));
            match this.target(addr) {
                Ok(target) => Some(target),
                Err(error) => return Self::send_failed(slf, error),
            }
        };
        let message = SendMsg {
            data,
            to,
            segment_size: None,
            ecn: None,
            src_ip: None,
        };
        match base.command(py, |engine| engine.send_datagram(key, message))? {
            SendOutcome::PauseWriting => BaseTransport::pause_writing(slf.as_super()),
            SendOutcome::Queued | SendOutcome::Lost => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.remote)?;
        self.known
            .traverse(|known| {
                known
                    .targets
                    .iter()
                    .flatten()
                    .try_for_each(|(python, _)| visit.call(python))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.known.take(py));
    }
}

fn replace<T>(places: &mut Vec<Option<T>>, place: usize, entry: T) -> Option<T> {
    if places.is_empty() {
        places.resize_with(KNOWN_MAX, || None);
    }
    places[place].replace(entry)
}

fn place_of(addr: SocketAddr) -> usize {
    let host = match addr.ip() {
        std::net::IpAddr::V4(ip) => u64::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits() as u64 ^ (ip.to_bits() >> 64) as u64,
    };
    // Ports of a host's clients are often neighbours: those find different places.
    ((host.wrapping_mul(HASH_FACTOR) >> 32) as usize + usize::from(addr.port())) & (KNOWN_MAX - 1)
}

fn place_of_object(object: &Bound<'_, PyAny>) -> usize {
    let pointer = object.as_ptr() as u64 >> 4;
    (pointer.wrapping_mul(HASH_FACTOR) >> 32) as usize & (KNOWN_MAX - 1)
}

/// Addresses remembered by a socket; a power of two.
const KNOWN_MAX: usize = 256;
/// 2^64 divided by the golden ratio: neighbouring numbers scatter.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
