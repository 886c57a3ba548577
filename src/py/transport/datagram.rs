//! The datagram transport: the behaviour of asyncio.DatagramTransport over one socket of the engine.
//!
//! It serves Internet and Unix sockets. `_loop.py` leaves other families to asyncio's own transport. The parts in
//! common with streams, such as flow control and closing, are in `base_transport`.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyNotImplementedError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_engine::{DatagramSize, DirectMappedCache, Received, WriteOutcome};
use uringcore_io::{Errno, SendMsg, SockAddr, net};

use crate::capi::address;
use crate::capi::bytes_like_objects;
use crate::capi::class_with_dict::{self, ClassWithDict};
use crate::capi::contextvars_context::CallbackContext;
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
use crate::event_loop::ready_queue::Ready;
use crate::transport::base_transport::{
    BaseTransport, Descriptor, Method, TransportArguments, TransportClass,
};

/// An address as the kernel's structure and as a Python object. With it, a reply to a known sender needs no
/// conversion.
type KnownAddress = (SocketAddr, Py<PyAny>);

/// The caches of addresses.
#[derive(Default)]
struct Known {
    /// The addresses of senders, found by the kernel's structure.
    senders: DirectMappedCache<KnownAddress>,
    /// The addresses of senders and other targets, found by the identity of the Python object.
    targets: DirectMappedCache<KnownAddress>,
}

/// A datagram socket with the interface of asyncio.DatagramTransport.
#[pyclass(frozen, subclass, extends = BaseTransport, module = "uringcore._uringcore")]
pub struct DatagramTransport {
    family: i32,
    /// True if other processes or threads receive from the socket too. A socket that became shared later, by a fork,
    /// receives once in each loop iteration.
    is_shared: bool,
    is_connected: bool,
    /// The argument `remote_addr` of create_datagram_endpoint. If present, it is the only address to which datagrams
    /// are sent.
    remote: Option<Py<PyAny>>,
    known: GilCell<Known>,
}

impl ClassWithDict for DatagramTransport {
    fn subclass() -> &'static PyOnceLock<Py<PyType>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        &CLASS
    }
}

impl DatagramTransport {
    // Events, called by dispatch -----------------------------------------------------------------

    /// Delivers a datagram. On a shared socket, further datagrams are received and delivered in the same loop
    /// iteration, each after the callback of the previous one. This ends when a callback schedules another callback,
    /// which has to run before the next datagram, or after [`SHARED_ITERATION_MAX`], because the end of the loop
    /// iteration sends what the callbacks have written.
    pub fn received(slf: &Bound<'_, Self>, datagram: Received) -> PyResult<()> {
        if !slf.get().is_shared {
            return Self::deliver(slf, datagram);
        }
        let (py, base) = (slf.py(), slf.as_super().get());
        let begun = Instant::now();
        let mut next = Some(datagram);
        while let Some(datagram) = next {
            let before = base.scheduled(py);
            Self::deliver(slf, datagram)?;
            let Some(key) = base.key(py) else { break };
            if base.scheduled(py) > before || begun.elapsed() > SHARED_ITERATION_MAX {
                break;
            }
            next = base.command(py, |engine| engine.transports().receive_another(key))?;
        }
        Ok(())
    }

    fn deliver(slf: &Bound<'_, Self>, datagram: Received) -> PyResult<()> {
        let py = slf.py();
        let bytes = PyBytes::new(py, datagram.payload());
        let sender = slf.get().sender(py, &datagram)?;
        drop(datagram);
        let name = intern!(py, "datagram_received");
        let method = Method(name, "Exception in protocol.datagram_received()");
        BaseTransport::call_protocol(slf.as_super(), method, (bytes, sender))
    }

    pub fn error_received(slf: &Bound<'_, BaseTransport>, errno: Errno) -> PyResult<()> {
        let py = slf.py();
        let error = exception_conversion::os_error(errno).into_value(py);
        let name = intern!(py, "error_received");
        let method = Method(name, "Exception in protocol.error_received()");
        BaseTransport::call_protocol(slf, method, (error,))
    }

    fn sender<'py>(&self, py: Python<'py>, datagram: &Received) -> PyResult<Bound<'py, PyAny>> {
        let Some(addr) = datagram.remote() else {
            return Ok(address::to_python(py, &datagram.raw_remote())?.into_bound(py));
        };
        let known = self.known.with(py, |known| {
            let (kept, python) = known.senders.get(hash(addr))?;
            (*kept == addr).then(|| python.clone_ref(py))
        });
        if let Some(python) = known {
            return Ok(python.into_bound(py));
        }
        let python = address::inet_to_python(py, addr)?.into_any();
        let entry = (addr, python.clone().unbind());
        let old = self.known.with(py, |known| {
            known.senders.keep(entry, |(addr, _)| hash(*addr))
        });
        drop(old);
        self.remember(py, addr, &python);
        Ok(python)
    }

    fn remember(&self, py: Python<'_>, addr: SocketAddr, python: &Bound<'_, PyAny>) {
        let entry = (addr, python.clone().unbind());
        let old = self.known.with(py, |known| {
            known
                .targets
                .keep(entry, |(_, python)| hash_object(python.as_ptr()))
        });
        drop(old);
    }

    /// Converts the Python address `addr` for the kernel.
    fn target(&self, addr: &Bound<'_, PyAny>) -> PyResult<SockAddr> {
        let py = addr.py();
        let known = self.known.with(py, |known| {
            let (kept, python) = known.targets.get(hash_object(addr.as_ptr()))?;
            python.is(addr).then_some(*kept)
        });
        if let Some(target) = known {
            return Ok(address::to_kernel(target));
        }
        let target = address::from_python(self.family, addr)?;
        // Only numeric addresses are cached. A host name is resolved for each datagram, as its addresses may change.
        if address::is_literal(addr)
            && let Some(inet) = address::from_kernel(&target)
        {
            self.remember(py, inet, addr);
        }
        Ok(target)
    }

    /// Handles a send that has failed. As in asyncio, an OSError is passed to the protocol, and any other exception
    /// ends the transport.
    fn send_failed(slf: &Bound<'_, Self>, error: PyErr) -> PyResult<()> {
        let py = slf.py();
        let base = slf.as_super();
        let error = exception_conversion::made(py, error);
        if !error.is_instance_of::<PyOSError>(py) {
            let message = "Fatal write error on datagram transport";
            return BaseTransport::fatal(base, error, message);
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
    /// Makes a transport over a bound or connected, non-blocking Python socket, which the transport closes at its end.
    ///
    /// With ``is_shared``, other processes or threads may receive from the same socket.
    #[new]
    #[pyo3(signature = (owner, socket, protocol, address = None, waiter = None, extra = None, *, is_shared = false))]
    fn new(
        owner: &Bound<'_, LoopCore>,
        socket: &Bound<'_, PyAny>,
        protocol: Py<PyAny>,
        address: Option<Bound<'_, PyAny>>,
        waiter: Option<Py<PyAny>>,
        extra: Option<Py<PyDict>>,
        is_shared: bool,
    ) -> PyResult<Py<Self>> {
        let py = owner.py();
        let fd: RawFd = socket.call_method0(intern!(py, "fileno"))?.extract()?;
        if fd < 0 {
            return Err(PyValueError::new_err("sock: the socket is closed"));
        }
        let family: i32 = socket.getattr(intern!(py, "family"))?.extract()?;
        let base = BaseTransport::build(
            owner,
            TransportArguments {
                class: TransportClass::Datagram,
                fd,
                descriptor: Descriptor::Socket(socket.clone().unbind()),
                protocol,
                extra,
                server: None,
                context: CallbackContext::new(py, None)?,
            },
        )?;
        let this = Self {
            family,
            is_shared,
            is_connected: net::peer_addr(fd).is_ok(),
            remote: match address {
                Some(address) if address.is_truthy()? => Some(address.unbind()),
                _ => None,
            },
            known: GilCell::new(Known::default()),
        };
        let transport =
            class_with_dict::instance(py, PyClassInitializer::from(base).add_subclass(this))?;
        let base = transport.bind(py).as_super();
        let size = match family {
            libc::AF_UNIX => DatagramSize::Large,
            _ => DatagramSize::Buffer,
        };
        BaseTransport::attach(base, |engine, shared| {
            let key = engine.transports().open_datagram(fd, size, shared);
            if is_shared {
                engine.transports().share_datagrams(key);
            }
            key
        })?;
        let start = Ready::Start(base.clone().unbind(), waiter);
        owner.get().push_ready(py, start);
        Ok(transport)
    }

    #[getter]
    fn _address(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.remote.as_ref().map(|remote| remote.clone_ref(py))
    }

    /// Sends one datagram to `addr`, or to the remote address of a connected socket.
    #[pyo3(signature = (data, addr = None))]
    fn sendto(
        slf: &Bound<'_, Self>,
        data: &Bound<'_, PyAny>,
        addr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let base = slf.as_super().get();
        let data = bytes_like_objects::bytes_like(data)?;
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
        let Some(key) = base.writable(py)? else {
            return Ok(());
        };
        let to = if this.is_connected {
            None
        } else {
            let none = py.None().into_bound(py);
            let addr = addr.unwrap_or_else(|| this.remote.as_ref().map_or(&none, |r| r.bind(py)));
            match this.target(addr) {
                Ok(target) => Some(target),
                Err(error) => return Self::send_failed(slf, error),
            }
        };
        let message = SendMsg::plain(data, to);
        match base.command(py, |engine| engine.transports().send_datagram(key, message))? {
            WriteOutcome::PauseWriting => BaseTransport::pause_writing(slf.as_super()),
            WriteOutcome::Queued | WriteOutcome::Lost => Ok(()),
        }
    }

    // asyncio's datagram transport inherits these methods of streams from its base classes. They raise
    // NotImplementedError.

    #[expect(unused_variables, reason = "the name is asyncio's, and a keyword")]
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyNotImplementedError::new_err(()))
    }

    /// Calls write() with the joined data, as asyncio's base class does.
    fn writelines(slf: &Bound<'_, Self>, list_of_data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let data = PyBytes::new(py, b"").call_method1(intern!(py, "join"), (list_of_data,))?;
        slf.call_method1(intern!(py, "write"), (data,)).map(drop)
    }

    fn write_eof(&self) -> PyResult<()> {
        Err(PyNotImplementedError::new_err(()))
    }

    fn can_write_eof(&self) -> PyResult<bool> {
        Err(PyNotImplementedError::new_err(()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.remote)?;
        self.known
            .traverse(|known| {
                let (senders, targets) = (known.senders.iter(), known.targets.iter());
                senders
                    .chain(targets)
                    .try_for_each(|(_, python)| visit.call(python))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.known.take(py));
    }
}

fn hash(addr: SocketAddr) -> usize {
    let host = match addr.ip() {
        std::net::IpAddr::V4(ip) => u64::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits() as u64 ^ (ip.to_bits() >> 64) as u64,
    };
    // Clients on one machine often have successive ports. Adding the port puts them into different slots.
    (host.wrapping_mul(HASH_FACTOR) >> 32) as usize + usize::from(addr.port())
}

fn hash_object(object: *mut pyo3::ffi::PyObject) -> usize {
    ((object as u64 >> 4).wrapping_mul(HASH_FACTOR) >> 32) as usize
}

/// 2^64 divided by the golden ratio. A multiplication by it scatters successive numbers.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The longest time for which one loop iteration receives from a shared socket. It allows a few datagrams with short
/// callbacks.
const SHARED_ITERATION_MAX: Duration = Duration::from_micros(100);
