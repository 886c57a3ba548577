//! Makes Python's socket objects over descriptors of the engine. If a step fails, the caller keeps the descriptor.
//! The attributes of socket objects are read in `plain_sockets`.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::sock::plain_sockets::socket_types;

/// Makes the socket object of an accepted connection.
pub fn object(py: Python<'_>, fd: OwnedFd) -> PyResult<Bound<'_, PyAny>> {
    let made = object_over(py, fd.as_raw_fd())?;
    let _ = fd.into_raw_fd();
    Ok(made)
}

/// Makes a socket object with the keyword arguments `arguments`. The object owns `fd` from then on.
pub fn object_with<'py>(arguments: Bound<'py, PyDict>, fd: OwnedFd) -> PyResult<Bound<'py, PyAny>> {
    let made = make(arguments, fd.as_raw_fd())?;
    let _ = fd.into_raw_fd();
    Ok(made)
}

/// Makes a non-blocking socket object, which owns the descriptor `number` from then on. If this fails, the caller still
/// owns the descriptor.
pub fn object_over(py: Python<'_>, number: RawFd) -> PyResult<Bound<'_, PyAny>> {
    let made = make(PyDict::new(py), number)?;
    let set = made.call_method1(intern!(py, "setblocking"), (false,));
    or_give_back(&made, set)?;
    Ok(made)
}

fn make<'py>(arguments: Bound<'py, PyDict>, number: RawFd) -> PyResult<Bound<'py, PyAny>> {
    let py = arguments.py();
    let class = socket_types(py)?.class.bind(py);
    arguments.set_item(intern!(py, "fileno"), number)?;
    // `__new__` and `__init__` are called one after the other instead of the class, so that the object is accessible if
    // `__init__` fails.
    let made = class.call_method1(intern!(py, "__new__"), (class,))?;
    let set_up = made.call_method(intern!(py, "__init__"), (), Some(&arguments));
    or_give_back(&made, set_up)?;
    Ok(made)
}

/// After a failure of `outcome`, detaches the descriptor from the object `made`. `__init__` is Python code: an
/// exception of a signal handler may interrupt it after the object has taken the descriptor, and the object would close
/// the descriptor when it is freed.
fn or_give_back(made: &Bound<'_, PyAny>, outcome: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    let Err(error) = outcome else {
        return Ok(());
    };
    // The method of the C class is called, and not Python's override, because no signal is handled while a C function
    // runs.
    socket_types(made.py())?
        .detach
        .bind(made.py())
        .call1((made,))?;
    Err(error)
}
