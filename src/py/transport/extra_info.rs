//! What a transport answers to `get_extra_info`, and the Python socket over its descriptor.
//!
//! Everything here is made when somebody asks for it: most connections of a server are never asked.

use std::os::fd::{AsRawFd, IntoRawFd};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};
use uringcore_io::net;

use crate::capi::address;
use crate::sock::plain_socket;
use crate::transport::base::{BaseTransport, Descriptor};

/// The transport's own dictionary with the three entries that every socket transport has.
pub fn dictionary<'py>(slf: &Bound<'py, BaseTransport>) -> PyResult<Bound<'py, PyDict>> {
    let py = slf.py();
    for name in ["socket", "sockname", "peername"] {
        entry(slf, name)?;
    }
    Ok(kept(slf.get(), py))
}

/// `get_extra_info(name)`; `None` when there is no such entry.
pub fn find<'py>(
    slf: &Bound<'py, BaseTransport>,
    name: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = slf.py();
    let extra = slf
        .get()
        .state
        .with(py, |state| state.extra.as_ref().map(|e| e.clone_ref(py)));
    if let Some(extra) = extra
        && let Some(value) = extra.bind(py).get_item(name)?
    {
        return Ok(Some(value));
    }
    match name.extract::<&str>() {
        Ok(name @ ("socket" | "sockname" | "peername")) => entry(slf, name).map(Some),
        _ => Ok(None),
    }
}

/// What a program has put in the place of `asyncio.BaseTransport.get_extra_info`, as a method of this
/// transport. It is the one method that asyncio's transports inherit as it is, so whoever replaces it
/// there (test suites do) means every transport.
pub fn replacement<'py>(slf: &Bound<'py, BaseTransport>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = slf.py();
    let (class, original) = inherited(py)?;
    let found = class.bind(py).getattr(intern!(py, "get_extra_info"))?;
    if found.is(original) {
        return Ok(None);
    }
    // A function becomes a method, what is no descriptor (a mock) stays what it is.
    match found.get_type().getattr_opt(intern!(py, "__get__"))? {
        Some(bind) => bind.call1((found, slf, slf.get_type())).map(Some),
        None => Ok(Some(found)),
    }
}

/// asyncio's class and its method, as they were when this module was imported.
pub fn inherited(py: Python<'_>) -> PyResult<&(Py<PyAny>, Py<PyAny>)> {
    static INHERITED: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    INHERITED.get_or_try_init(py, || {
        let class = py.import("asyncio.transports")?.getattr("BaseTransport")?;
        let original = class.getattr("get_extra_info")?;
        Ok((class.unbind(), original.unbind()))
    })
}

/// The Python socket: the caller's own, or one made on first demand over our descriptor, which is
/// the socket's from then on. `None` after the end.
pub fn socket<'py>(slf: &Bound<'py, BaseTransport>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = slf.py();
    let this = slf.get();
    enum Found {
        Socket(Py<PyAny>),
        Number(i32),
        Nothing,
    }
    let found = this.state.with(py, |state| match &state.descriptor {
        Descriptor::Socket(socket) => Found::Socket(socket.clone_ref(py)),
        Descriptor::Owned(fd) => Found::Number(fd.as_raw_fd()),
        Descriptor::Gone => Found::Nothing,
    });
    let number = match found {
        Found::Socket(socket) => return Ok(Some(socket.into_bound(py))),
        Found::Nothing => return Ok(None),
        Found::Number(number) => number,
    };
    let made = plain_socket::object_over(py, number)?;
    let kept = made.clone().unbind();
    // Another thread may have asked as well, or the transport may have come to its end meanwhile.
    let taken = this.state.with(py, |state| {
        match std::mem::replace(&mut state.descriptor, Descriptor::Gone) {
            Descriptor::Owned(fd) => {
                let _ = fd.into_raw_fd();
                state.descriptor = Descriptor::Socket(kept);
                Ok(())
            }
            other => {
                state.descriptor = other;
                Err(kept)
            }
        }
    });
    match taken {
        Ok(()) => Ok(Some(made)),
        Err(kept) => {
            made.call_method0(intern!(py, "detach"))?;
            drop(kept);
            socket(slf)
        }
    }
}

/// The addresses go with the descriptor: they are asked for in time where anybody is left who can want
/// them.
pub fn keep_addresses(slf: &Bound<'_, BaseTransport>) -> PyResult<()> {
    // SAFETY: a live object. Without an interpreter lock a count tells nothing.
    let references = unsafe { ffi::Py_REFCNT(slf.as_ptr()) };
    if references > OUR_REFERENCES || cfg!(Py_GIL_DISABLED) {
        entry(slf, "sockname")?;
        entry(slf, "peername")?;
    }
    Ok(())
}

fn entry<'py>(slf: &Bound<'py, BaseTransport>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let this = slf.get();
    let extra = kept(this, py);
    if let Some(value) = extra.get_item(name)? {
        return Ok(value);
    }
    let value = match name {
        "socket" => transport_socket(slf)?,
        _ => {
            // The descriptor is not closed while it is asked.
            let addr = this
                .state
                .with(py, |state| match (&state.descriptor, name) {
                    (Descriptor::Gone, _) => None,
                    (_, "peername") => net::peer_addr(this.fd).ok(),
                    _ => net::local_addr(this.fd).ok(),
                });
            match addr {
                Some(addr) => address::to_python(py, &addr)?.into_bound(py),
                None => py.None().into_bound(py),
            }
        }
    };
    extra.set_item(name, &value)?;
    Ok(value)
}

/// The dictionary that the transport was made with, or one of its own.
fn kept<'py>(this: &BaseTransport, py: Python<'py>) -> Bound<'py, PyDict> {
    let known = this
        .state
        .with(py, |state| state.extra.as_ref().map(|e| e.clone_ref(py)));
    match known {
        Some(extra) => extra.into_bound(py),
        None => {
            let extra = PyDict::new(py);
            let kept = extra.clone().unbind();
            let old = this.state.with(py, |state| state.extra.replace(kept));
            drop(old);
            extra
        }
    }
}

/// The socket as asyncio shows it: without the methods that would move bytes past the transport.
fn transport_socket<'py>(slf: &Bound<'py, BaseTransport>) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let socket = match socket(slf)? {
        Some(socket) => socket,
        // asyncio shows a closed socket after the end, and so does this.
        None => slf
            .get()
            .owner
            .bind(py)
            .call_method0(intern!(py, "_closed_socket"))?,
    };
    py.import(intern!(py, "asyncio.trsock"))?
        .call_method1(intern!(py, "TransportSocket"), (socket,))
}

/// At a transport's end: the loop's, and that of whoever runs its last callback.
const OUR_REFERENCES: isize = 2;
