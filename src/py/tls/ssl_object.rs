//! One `ssl.SSLObject` and its two memory BIOs: the calls into Python's `ssl` module.
//!
//! Nothing here knows transports, protocols or what to do when. No borrow of a cell may be held
//! around these calls: OpenSSL calls back into Python (SNI, message and PSK callbacks).

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use crate::capi::fresh_bytes::FreshBytes;
use crate::capi::lend::lend;

/// The TLS object of one connection.
pub struct SslObject {
    /// What `wrap_bio` returned and users see.
    public: Py<PyAny>,
    /// What the calls go to: the C object behind `public` where that is exactly an `ssl.SSLObject`,
    /// whose methods do nothing but pass them on; else `public` itself.
    core: Py<PyAny>,
    direct: bool,
    incoming: Py<PyAny>,
    outgoing: Py<PyAny>,
}

/// What an operation came to; errors other than "again" are Python exceptions.
#[derive(Debug)]
pub enum Step<T> {
    Done(T),
    /// OpenSSL has to read more of the peer's bytes first.
    Again,
}

impl SslObject {
    /// `context.wrap_bio(...)`, with its errors.
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
        Ok(Self {
            core: core.unwrap_or_else(|| public.clone()).unbind(),
            direct,
            public: public.unbind(),
            incoming: incoming.unbind(),
            outgoing: outgoing.unbind(),
        })
    }

    /// The `ssl.SSLObject`.
    pub fn public<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.public.bind(py)
    }

    pub fn incoming<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.incoming.bind(py)
    }

    pub fn outgoing<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.outgoing.bind(py)
    }

    // The BIOs -----------------------------------------------------------------------------------

    /// Gives OpenSSL bytes of the peer.
    pub fn feed(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        lend(py, data, |view| {
            self.incoming(py)
                .call_method1(intern!(py, "write"), (view,))
                .map(drop)
        })
    }

    /// Bytes of the peer that OpenSSL has not taken yet.
    pub fn incoming_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.incoming(py).getattr(intern!(py, "pending"))?.extract()
    }

    /// Bytes for the peer that have not been taken yet.
    pub fn outgoing_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.outgoing(py).getattr(intern!(py, "pending"))?.extract()
    }

    /// Takes the bytes for the peer.
    pub fn take_outgoing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.outgoing(py).call_method0(intern!(py, "read"))?;
        Ok(bytes.cast_into::<PyBytes>()?)
    }

    // The TLS operations -------------------------------------------------------------------------

    pub fn do_handshake(&self, py: Python<'_>) -> PyResult<Step<()>> {
        let called = self.core.bind(py).call_method0(intern!(py, "do_handshake"));
        step(py, called.map(drop))
    }

    /// Sends close_notify, and is done when the peer's has come.
    pub fn shut_down(&self, py: Python<'_>) -> PyResult<Step<()>> {
        let name = if self.direct {
            intern!(py, "shutdown")
        } else {
            intern!(py, "unwrap")
        };
        step(py, self.core.bind(py).call_method0(name).map(drop))
    }

    /// Up to `count` bytes of one record; empty at close_notify.
    pub fn read<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Step<Bound<'py, PyBytes>>> {
        let core = self.core.bind(py);
        let read = core.call_method1(intern!(py, "read"), (count,));
        step(py, read.and_then(|bytes| Ok(bytes.cast_into::<PyBytes>()?)))
    }

    /// Reads from one record into `view`, which is lent and has `space` bytes. Zero at close_notify.
    pub fn read_into(&self, view: &Bound<'_, PyAny>, space: usize) -> PyResult<Step<usize>> {
        let py = view.py();
        if !self.direct {
            // Python code that stands before OpenSSL might keep the view: it gets none.
            return Ok(match self.read(py, space)? {
                Step::Done(bytes) if bytes.as_bytes().is_empty() => Step::Done(0),
                Step::Done(bytes) => {
                    Step::Done(crate::capi::buffer::copy_into(view, bytes.as_bytes())?)
                }
                Step::Again => Step::Again,
            });
        }
        let core = self.core.bind(py);
        let read = core.call_method1(intern!(py, "read"), (space, view));
        step(py, read.and_then(|count| count.extract()))
    }

    /// The same into what is left of `target`.
    pub fn read_to(&self, py: Python<'_>, target: &mut FreshBytes) -> PyResult<Step<usize>> {
        let space = target.space();
        let call = |view: &Bound<'_, PyAny>| match self.read_into(view, space)? {
            Step::Done(count) => Ok(Some(count)),
            Step::Again => Ok(None),
        };
        // SAFETY: the count is SSL_read's, or that of our own copy.
        let read = unsafe { target.fill(py, call) }?;
        Ok(read.map_or(Step::Again, Step::Done))
    }

    /// Encrypts a bytes-like object whole; the count is that of its bytes.
    pub fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<Step<usize>> {
        let py = data.py();
        let core = self.core.bind(py);
        let written = core.call_method1(intern!(py, "write"), (data,));
        step(py, written.and_then(|count| count.extract()))
    }

    /// The same for memory of ours.
    pub fn write_slice(&self, py: Python<'_>, data: &[u8]) -> PyResult<Step<usize>> {
        if self.direct {
            lend(py, data, |view| self.write(view))
        } else {
            self.write(&PyBytes::new(py, data))
        }
    }

    pub fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.public)?;
        visit.call(&self.core)?;
        visit.call(&self.incoming)?;
        visit.call(&self.outgoing)
    }
}

/// asyncio's SSLAgainErrors: want-read, and the end of file that a memory BIO without one reports.
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

/// True for `ssl.SSLError` and what derives from it.
pub fn is_ssl_error(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.is_instance(py, Names::of(py)?.ssl_error.bind(py)))
}

/// True for a certificate that failed verification.
pub fn is_certificate_error(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.is_instance(py, Names::of(py)?.certificate_error.bind(py)))
}

/// What is asked of the `ssl` module on the way of every record, looked up once.
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
