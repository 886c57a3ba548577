//! What Python's socket objects are, read cheaply: the class, the descriptor, family, type, protocol.

use std::os::fd::RawFd;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::{ffi, intern};

use crate::loop_core::LoopCore;

/// The descriptor of a `socket.socket` of an ordinary family, and whether it is a stream. `None` for
/// anything else.
///
/// Raises what asyncio does in debug mode for a blocking socket.
pub fn plain(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
) -> PyResult<Option<(RawFd, bool)>> {
    let py = slf.py();
    let types = socket_types(py)?;
    if !socket.get_type().is(&types.class) {
        return Ok(None);
    }
    if slf.get().is_debug(py) {
        let timeout = socket.call_method0(intern!(py, "gettimeout"))?;
        if timeout.is_none() || timeout.extract::<f64>()? != 0.0 {
            return Err(PyValueError::new_err("the socket must be non-blocking"));
        }
    }
    let fd = fileno(socket)?;
    let family = member(socket, "family")?;
    if fd < 0 || ![libc::AF_INET, libc::AF_INET6, libc::AF_UNIX].contains(&family) {
        return Ok(None);
    }
    Ok(Some((fd, member(socket, "type")? == libc::SOCK_STREAM)))
}

pub struct SocketTypes {
    /// `socket.socket`.
    pub class: Py<PyType>,
    /// The descriptors of the C class behind it: its Python properties make enumerations, at ten
    /// times the price.
    family: Py<PyAny>,
    kind: Py<PyAny>,
    proto: Py<PyAny>,
}

pub fn socket_types(py: Python<'_>) -> PyResult<&SocketTypes> {
    static TYPES: PyOnceLock<SocketTypes> = PyOnceLock::new();
    TYPES.get_or_try_init(py, || {
        let class = py.import("socket")?.getattr("socket")?;
        let base = py.import("_socket")?.getattr("socket")?;
        Ok(SocketTypes {
            class: class.cast_into::<PyType>()?.unbind(),
            family: base.getattr("family")?.unbind(),
            kind: base.getattr("type")?.unbind(),
            proto: base.getattr("proto")?.unbind(),
        })
    })
}

/// `family`, `type` or `proto` of a socket object as a plain number.
pub fn member(socket: &Bound<'_, PyAny>, name: &str) -> PyResult<i32> {
    let py = socket.py();
    let types = socket_types(py)?;
    let descriptor = match name {
        "family" => &types.family,
        "type" => &types.kind,
        _ => &types.proto,
    };
    // SAFETY: the interpreter lock is held; a member descriptor of the socket class has `tp_descr_get`
    // and answers a new reference, or NULL with an exception when the object is of another class.
    let value = unsafe {
        let class = ffi::Py_TYPE(descriptor.as_ptr());
        let Some(get) = (*class).tp_descr_get else {
            return socket.getattr(name)?.extract();
        };
        let value = get(descriptor.as_ptr(), socket.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, value)?
    };
    value.extract()
}

/// The descriptor of a socket object, -1 when it is closed.
pub fn fileno(socket: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    socket
        .call_method0(intern!(socket.py(), "fileno"))?
        .extract()
}
