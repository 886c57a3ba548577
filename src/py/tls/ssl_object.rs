//! One `ssl.SSLObject` and its BIOs: calls through Python's `ssl` module, and calls that bypass it.
//!
//! Handshake and shutdown always go through the module. If `openssl_functions` finds the object's `SSL`, data goes
//! directly to OpenSSL through a [`RecordBio`]; otherwise it goes through the module and its memory BIOs. An operation
//! that OpenSSL refuses is repeated once through the module, which finds OpenSSL's errors still queued and raises its
//! usual exception.
//!
//! This file does not depend on transports or protocols, and decides nothing about the order of calls. No borrow of a
//! cell may be held around these calls, because OpenSSL may call Python code (callbacks for SNI, messages and PSK).

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use super::openssl_functions::{OpenSsl, Ssl};
use super::record_bio::{Loan, RecordBio};
use crate::capi::buffer_exporter::{Target, lend};
use crate::capi::bytes_like_objects::{self, Outgoing};
use crate::capi::fresh_bytes::FreshBytes;

/// The TLS object of one connection.
pub struct SslObject {
    /// The object that `wrap_bio` has returned, which programs see.
    public: Py<PyAny>,
    /// The object whose methods are called. If the class of `public` is exactly `ssl.SSLObject`, whose methods only
    /// delegate, it is the C object behind that one; else it is `public`.
    core: Py<PyAny>,
    direct: bool,
    beneath: Bios,
}

/// The BIOs: the source of the peer's bytes for OpenSSL, and the destination of its records.
enum Bios {
    Module {
        incoming: Py<PyAny>,
        outgoing: Py<PyAny>,
    },
    RecordBio(Arc<RecordBio>, Engine),
}

/// OpenSSL's object, called with the interpreter lock held. A call that encrypts or decrypts a piece is shorter than
/// the switch interval of the lock, so releasing the lock would cost more than it gains.
struct Engine {
    openssl: &'static OpenSsl,
    /// Alive as long as the `_ssl._SSLSocket` that [`SslObject::core`] refers to. That object never replaces its `SSL`.
    ssl: NonNull<Ssl>,
}

// SAFETY: an SSL is bound to no thread. As with CPython's own calls, the program must not use one connection on two
// threads at once; the loop uses it on one.
unsafe impl Send for Engine {}
// SAFETY: every use needs a `Python` token, and so the interpreter lock.
unsafe impl Sync for Engine {}

/// Records for the peer.
pub enum Records<'py> {
    Python(Bound<'py, PyBytes>),
    Own(Vec<u8>),
}

impl<'py> Records<'py> {
    pub fn to_python(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match self {
            Self::Python(bytes) => bytes.clone(),
            Self::Own(bytes) => PyBytes::new(py, bytes),
        }
    }

    /// The records for a stream's write queue. Small ones are copied there; large ones are moved with their memory out
    /// of this object.
    pub fn outgoing(&mut self) -> Outgoing<'_> {
        match self {
            Self::Python(bytes) => Outgoing::bytes(bytes),
            Self::Own(bytes) if bytes.len() >= bytes_like_objects::REFERENCED_FROM_BYTES => {
                Outgoing::Kept(Bytes::from(std::mem::take(bytes)))
            }
            Self::Own(bytes) => Outgoing::Copied(bytes),
        }
    }
}

/// The result of a TLS operation. Failures are Python exceptions.
#[derive(Debug)]
pub enum Step<T> {
    Done(T),
    /// OpenSSL needs more bytes of the peer before it can continue.
    Again,
}

impl SslObject {
    /// Calls `context.wrap_bio(...)`. Fails with its errors.
    pub fn wrap(
        context: &Bound<'_, PyAny>,
        server_side: bool,
        server_hostname: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = context.py();
        let names = Names::of(py)?;
        let incoming = names.memory_bio.bind(py).call0()?;
        let outgoing = names.memory_bio.bind(py).call0()?;
        let public = context.call_method1(
            intern!(py, "wrap_bio"),
            (&incoming, &outgoing, server_side, server_hostname),
        )?;
        let core = if public.get_type().is(&names.ssl_object) {
            public
                .getattr_opt(intern!(py, "_sslobj"))?
                .filter(|core| core.get_type().is(&names.core))
        } else {
            None
        };
        let direct = core.is_some();
        let engine = match &core {
            Some(core) if !has_message_callback(&public)? => Engine::of(core, &incoming, &outgoing),
            _ => None,
        };
        let beneath = match engine {
            Some((record_bio, engine)) => Bios::RecordBio(record_bio, engine),
            None => Bios::Module {
                incoming: incoming.unbind(),
                outgoing: outgoing.unbind(),
            },
        };
        Ok(Self {
            core: core.unwrap_or_else(|| public.clone()).unbind(),
            direct,
            public: public.unbind(),
            beneath,
        })
    }

    /// True if data goes directly to OpenSSL.
    pub fn is_past_the_module(&self) -> bool {
        matches!(self.beneath, Bios::RecordBio(..))
    }

    /// The `ssl.SSLObject`.
    pub fn public<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.public.bind(py)
    }

    // The bytes beneath --------------------------------------------------------------------------

    /// Passes bytes of the peer to OpenSSL.
    pub fn feed(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        match &self.beneath {
            Bios::RecordBio(record_bio, _) => {
                record_bio.feed(data);
                Ok(())
            }
            Bios::Module { incoming, .. } => lend(py, data, |view| {
                incoming
                    .bind(py)
                    .call_method1(intern!(py, "write"), (view,))
                    .map(drop)
            }),
        }
    }

    /// Lends bytes of the peer to OpenSSL until the loan is dropped. `None` if the memory BIOs are in use, which only
    /// accept copies.
    pub fn lend<'a>(&'a self, data: &'a [u8]) -> Option<Loan<'a>> {
        match &self.beneath {
            Bios::RecordBio(record_bio, _) => Some(record_bio.lend(data)),
            Bios::Module { .. } => None,
        }
    }

    /// The number of the peer's bytes that OpenSSL has not read yet.
    pub fn incoming_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.beneath {
            Bios::RecordBio(record_bio, _) => Ok(record_bio.incoming_bytes()),
            Bios::Module { incoming, .. } => {
                incoming.bind(py).getattr(intern!(py, "pending"))?.extract()
            }
        }
    }

    /// The number of bytes of records that wait in the outgoing BIO.
    pub fn outgoing_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.beneath {
            Bios::RecordBio(record_bio, _) => Ok(record_bio.outgoing_bytes()),
            Bios::Module { outgoing, .. } => {
                outgoing.bind(py).getattr(intern!(py, "pending"))?.extract()
            }
        }
    }

    /// Takes the records for the peer.
    pub fn take_outgoing<'py>(&self, py: Python<'py>) -> PyResult<Records<'py>> {
        match &self.beneath {
            Bios::RecordBio(record_bio, _) => Ok(Records::Own(record_bio.take_outgoing())),
            Bios::Module { outgoing, .. } => {
                let bytes = outgoing.bind(py).call_method0(intern!(py, "read"))?;
                Ok(Records::Python(bytes.cast_into::<PyBytes>()?))
            }
        }
    }

    /// Takes back the memory of records that were sent or copied.
    pub fn reuse(&self, records: Records<'_>) {
        if let (Bios::RecordBio(record_bio, _), Records::Own(spent)) = (&self.beneath, records) {
            record_bio.reuse(spent);
        }
    }

    // The TLS operations -------------------------------------------------------------------------

    pub fn do_handshake(&self, py: Python<'_>) -> PyResult<Step<()>> {
        let called = self.core.bind(py).call_method0(intern!(py, "do_handshake"));
        step(py, called.map(drop))
    }

    /// Sends close_notify. Done when the peer's close_notify has come.
    pub fn shut_down(&self, py: Python<'_>) -> PyResult<Step<()>> {
        let name = if self.direct {
            intern!(py, "shutdown")
        } else {
            intern!(py, "unwrap")
        };
        step(py, self.core.bind(py).call_method0(name).map(drop))
    }

    /// Reads up to `count` bytes of one record. The result is empty if the peer has sent close_notify.
    pub fn read<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Step<Bound<'py, PyBytes>>> {
        let core = self.core.bind(py);
        let read = core.call_method1(intern!(py, "read"), (count,));
        step(py, read.and_then(|bytes| Ok(bytes.cast_into::<PyBytes>()?)))
    }

    /// Reads from one record into the space after the first `from` bytes of `target`. The result is 0 if the peer has
    /// sent close_notify.
    pub fn read_into(
        &self,
        py: Python<'_>,
        target: &Target<'_>,
        from: usize,
    ) -> PyResult<Step<usize>> {
        let space = target.len() - from;
        if let Bios::RecordBio(_, engine) = &self.beneath {
            // SAFETY: the buffer is held and has `space` bytes after the first `from`.
            match unsafe { engine.read(py, target.start(from), space) } {
                Called::Done(count) => return Ok(Step::Done(count)),
                Called::Again => return Ok(Step::Again),
                Called::Failed => {}
            }
        }
        target.fill(py, from, |view| self.read_view(view, space))
    }

    /// Reads from one record and appends the bytes to `target`.
    pub fn read_to(&self, py: Python<'_>, target: &mut FreshBytes) -> PyResult<Step<usize>> {
        let space = target.space();
        if let Bios::RecordBio(_, engine) = &self.beneath {
            // SAFETY: the object has `space` free bytes from `free()` on, and no other code has seen it.
            match unsafe { engine.read(py, target.free(), space) } {
                Called::Done(count) => {
                    // SAFETY: SSL_read_ex has written `count` bytes.
                    unsafe { target.advance(count) };
                    return Ok(Step::Done(count));
                }
                Called::Again => return Ok(Step::Again),
                Called::Failed => {}
            }
        }
        let call = |view: &Bound<'_, PyAny>| match self.read_view(view, space)? {
            Step::Done(count) => Ok(Some(count)),
            Step::Again => Ok(None),
        };
        // SAFETY: the result of `call` is the number of bytes that SSL_read or our own copy has written.
        let read = unsafe { target.fill(py, call) }?;
        Ok(read.map_or(Step::Again, Step::Done))
    }

    /// Reads through the module into `view`, which is lent and has `space` bytes.
    fn read_view(&self, view: &Bound<'_, PyAny>, space: usize) -> PyResult<Step<usize>> {
        let py = view.py();
        if !self.direct {
            // A subclass of `ssl.SSLObject` runs Python code, which might keep a view of the memory. So it gets no
            // view, and the bytes are copied.
            return Ok(match self.read(py, space)? {
                Step::Done(bytes) if bytes.as_bytes().is_empty() => Step::Done(0),
                Step::Done(bytes) => {
                    Step::Done(bytes_like_objects::copy_into(view, bytes.as_bytes())?)
                }
                Step::Again => Step::Again,
            });
        }
        let core = self.core.bind(py);
        let read = core.call_method1(intern!(py, "read"), (space, view));
        step(py, read.and_then(|count| count.extract()))
    }

    /// Encrypts a whole `bytes` object. The result is the object's length.
    pub fn write(&self, data: &Bound<'_, PyBytes>) -> PyResult<Step<usize>> {
        let py = data.py();
        match self.write_past(py, data.as_bytes()) {
            Some(step) => Ok(step),
            None => self.write_any(data),
        }
    }

    /// Encrypts a whole slice of memory.
    pub fn write_slice(&self, py: Python<'_>, data: &[u8]) -> PyResult<Step<usize>> {
        if let Some(step) = self.write_past(py, data) {
            return Ok(step);
        }
        if self.direct {
            lend(py, data, |view| self.write_any(view))
        } else {
            self.write_any(&PyBytes::new(py, data))
        }
    }

    /// Encrypts by a direct call of OpenSSL. `None` if the data has to go through the module.
    fn write_past(&self, py: Python<'_>, data: &[u8]) -> Option<Step<usize>> {
        let Bios::RecordBio(record_bio, engine) = &self.beneath else {
            return None;
        };
        record_bio.expect_write(data.len());
        match engine.write(py, data) {
            Called::Done(count) => Some(Step::Done(count)),
            Called::Again => Some(Step::Again),
            Called::Failed => None,
        }
    }

    fn write_any(&self, data: &Bound<'_, PyAny>) -> PyResult<Step<usize>> {
        let py = data.py();
        let core = self.core.bind(py);
        let written = core.call_method1(intern!(py, "write"), (data,));
        step(py, written.and_then(|count| count.extract()))
    }

    pub fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.public)?;
        visit.call(&self.core)?;
        match &self.beneath {
            Bios::Module { incoming, outgoing } => {
                visit.call(incoming)?;
                visit.call(outgoing)
            }
            Bios::RecordBio(..) => Ok(()),
        }
    }
}

/// True if the context has a message callback. Such a context uses the module's calls, because an exception of the
/// callback is kept in the object until the end of a call of the module.
fn has_message_callback(public: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = public.py();
    let context = public.getattr(intern!(py, "context"))?;
    let callback = context.getattr_opt(intern!(py, "_msg_callback"))?;
    Ok(callback.is_some_and(|callback| !callback.is_none()))
}

/// The result of a direct call of OpenSSL.
enum Called {
    Done(usize),
    Again,
    /// The call has failed. The module must raise the exception, because OpenSSL's errors are still queued.
    Failed,
}

impl Engine {
    /// Finds the `SSL` of a new object and replaces its BIOs by a [`RecordBio`]. `None` if the `SSL` is not found.
    fn of(
        core: &Bound<'_, PyAny>,
        incoming: &Bound<'_, PyAny>,
        outgoing: &Bound<'_, PyAny>,
    ) -> Option<(Arc<RecordBio>, Self)> {
        let openssl = OpenSsl::get(core.py()).as_ref().ok()?;
        let ssl = openssl.ssl_of(core, incoming, outgoing)?;
        // SAFETY: the SSL is alive, and its object was just made, so no other code has it.
        let record_bio = unsafe { RecordBio::under(openssl, ssl) }?;
        Some((record_bio, Self { openssl, ssl }))
    }

    /// Reads from one record. The result is 0 if the peer has sent close_notify.
    ///
    /// # Safety
    ///
    /// There is room for `space` bytes from `target` on, and no other code uses that memory.
    unsafe fn read(&self, _py: Python<'_>, target: *mut u8, space: usize) -> Called {
        let functions = &self.openssl.functions;
        let mut count = 0;
        self.forget_errors();
        // SAFETY: the SSL is alive (`Engine::ssl`), and the caller promises that the memory is valid.
        let status = unsafe {
            (functions.ssl_read_ex)(self.ssl.as_ptr(), target.cast(), space, &raw mut count)
        };
        if status == 1 {
            return Called::Done(count);
        }
        // SAFETY: the SSL is alive.
        let (error, shutdown) = unsafe {
            (
                (functions.ssl_get_error)(self.ssl.as_ptr(), status),
                (functions.ssl_get_shutdown)(self.ssl.as_ptr()),
            )
        };
        match error {
            SSL_ERROR_WANT_READ => Called::Again,
            // As in CPython, close_notify is an end of the stream if we have not sent ours yet.
            SSL_ERROR_ZERO_RETURN if shutdown == SSL_RECEIVED_SHUTDOWN => Called::Done(0),
            _ => Called::Failed,
        }
    }

    fn write(&self, _py: Python<'_>, data: &[u8]) -> Called {
        let functions = &self.openssl.functions;
        let mut count = 0;
        self.forget_errors();
        // SAFETY: the SSL is alive (`Engine::ssl`), and `data` is borrowed for the call.
        let status = unsafe {
            let start = data.as_ptr().cast();
            (functions.ssl_write_ex)(self.ssl.as_ptr(), start, data.len(), &raw mut count)
        };
        if status == 1 {
            return Called::Done(count);
        }
        // SAFETY: the SSL is alive.
        match unsafe { (functions.ssl_get_error)(self.ssl.as_ptr(), status) } {
            SSL_ERROR_WANT_READ => Called::Again,
            _ => Called::Failed,
        }
    }

    /// Empties the thread's queue of errors, as SSL_get_error(3) requires before a call.
    fn forget_errors(&self) {
        let functions = &self.openssl.functions;
        // SAFETY: both functions take no argument, and use only the thread's own queue.
        unsafe {
            if (functions.err_peek_error)() != 0 {
                (functions.err_clear_error)();
            }
        }
    }
}

/// Converts a result of the module. `Step::Again` for asyncio's SSLAgainErrors: SSLWantReadError, and
/// SSLSyscallError, which reports an unexpected end of file of a memory BIO.
fn step<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Step<T>> {
    match result {
        Ok(value) => Ok(Step::Done(value)),
        Err(error) => {
            let names = Names::of(py)?;
            let raised = error.get_type(py);
            if raised.is(&names.want_read) || raised.is(&names.system_call) {
                Ok(Step::Again)
            } else {
                Err(error)
            }
        }
    }
}

/// True for `ssl.SSLError` and its subclasses.
pub fn is_ssl_error(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.is_instance(py, Names::of(py)?.ssl_error.bind(py)))
}

/// True for a certificate that failed verification.
pub fn is_certificate_error(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.is_instance(py, Names::of(py)?.certificate_error.bind(py)))
}

/// Objects of the `ssl` module that are needed for each record, looked up once.
struct Names {
    memory_bio: Py<PyAny>,
    ssl_object: Py<PyAny>,
    core: Py<PyAny>,
    want_read: Py<PyType>,
    system_call: Py<PyType>,
    ssl_error: Py<PyType>,
    certificate_error: Py<PyType>,
}

impl Names {
    fn of(py: Python<'_>) -> PyResult<&'static Self> {
        static NAMES: PyOnceLock<Names> = PyOnceLock::new();
        NAMES.get_or_try_init(py, || {
            let module = |name: &str| {
                py.import(name)
                    .map_err(|_| PyRuntimeError::new_err("stdlib ssl module not available"))
            };
            let (public, native) = (module("ssl")?, module("_ssl")?);
            let class = |name: &str| -> PyResult<Py<PyType>> {
                Ok(public.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            Ok(Self {
                memory_bio: native.getattr("MemoryBIO")?.unbind(),
                ssl_object: public.getattr("SSLObject")?.unbind(),
                core: native.getattr("_SSLSocket")?.unbind(),
                want_read: class("SSLWantReadError")?,
                system_call: class("SSLSyscallError")?,
                ssl_error: class("SSLError")?,
                certificate_error: class("SSLCertVerificationError")?,
            })
        })
    }
}

// From openssl/ssl.h. These values are the same in all versions.
const SSL_ERROR_WANT_READ: c_int = 2;
const SSL_ERROR_ZERO_RETURN: c_int = 6;
const SSL_RECEIVED_SHUTDOWN: c_int = 2;
