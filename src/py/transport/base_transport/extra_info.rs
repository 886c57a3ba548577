//! The data behind `get_extra_info`: a transport's dictionary, its addresses, and the Python socket over its
//! descriptor. `_transport_extra_info.py` makes the values from them.
//!
//! Addresses are read when a program first requests them. If a program still has the transport when the descriptor is
//! closed, they are read before that. `SO_PEERNAME` still has the address of a peer that has reset the connection.

use std::os::fd::{AsRawFd, IntoRawFd};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;
use pyo3::{ffi, intern};
use uringcore_io::net;

use super::{BaseTransport, Descriptor};
use crate::capi::address;
use crate::sock::socket_object_creation;

/// The Python module `_transport_extra_info.py`, which `uringcore._loop` has imported.
pub fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || {
        py.import("uringcore._transport_extra_info")
            .map(Bound::unbind)
    })?;
    Ok(module.bind(py))
}

/// The Python socket of the transport: the one that the program has passed, or one that is made at the first call and
/// owns the descriptor from then on. `None` after the transport's end.
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
    let made = socket_object_creation::object_over(py, number)?;
    let kept = made.clone().unbind();
    // Python code ran while the socket was made. Meanwhile another thread may have made the socket, or the transport
    // may have ended.
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

/// Reads the addresses before the descriptor is closed, if the program still has the transport.
pub fn keep_addresses(slf: &Bound<'_, BaseTransport>) -> PyResult<()> {
    // SAFETY: `slf` is a live object. On a free-threaded build the count may be wrong, so the next line ignores it.
    let references = unsafe { ffi::Py_REFCNT(slf.as_ptr()) };
    if references > OUR_REFERENCES || cfg!(Py_GIL_DISABLED) {
        module(slf.py())?.call_method1(intern!(slf.py(), "keep_addresses"), (slf,))?;
    }
    Ok(())
}

/// The address `name`, "sockname" or "peername". `None` if there is no such address, or if the descriptor was closed
/// before the address was read.
pub fn address(this: &BaseTransport, py: Python<'_>, name: &str) -> PyResult<Option<Py<PyAny>>> {
    // The cell is borrowed during this call, so the descriptor cannot be closed meanwhile.
    let found = this
        .state
        .with(py, |state| match (&state.descriptor, name) {
            (Descriptor::Gone, _) => None,
            (_, "peername") => net::peer_addr(this.fd).ok(),
            _ => net::local_addr(this.fd).ok(),
        });
    found.map(|addr| address::to_python(py, &addr)).transpose()
}

/// The number of references that the loop and the last callback hold when a transport ends. Each further reference
/// belongs to the program.
const OUR_REFERENCES: isize = 2;
