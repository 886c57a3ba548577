//! Python's socket objects, made over descriptors that are ours: until one is whole, its descriptor stays
//! with us whatever fails. Not here: what an object tells of itself (`plain_socket`).

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::sock::plain_socket::socket_types;

/// A socket object of a connection that was accepted.
pub fn object(py: Python<'_>, fd: OwnedFd) -> PyResult<Bound<'_, PyAny>> {
    let made = object_over(py, fd.as_raw_fd())?;
    let _ = fd.into_raw_fd();
    Ok(made)
}

/// A socket object made with `arguments`, which closes `fd` from now on.
pub fn object_with<'py>(arguments: Bound<'py, PyDict>, fd: OwnedFd) -> PyResult<Bound<'py, PyAny>> {
    let made = make(arguments, fd.as_raw_fd())?;
    let _ = fd.into_raw_fd();
    Ok(made)
}

/// A non-blocking socket object that closes `number` from now on. The caller lets go of it if this
/// succeeds, and keeps it otherwise.
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
    // Two steps where a call of the class is one: what fails in the second leaves us the object.
    let made = class.call_method1(intern!(py, "__new__"), (class,))?;
    let set_up = made.call_method(intern!(py, "__init__"), (), Some(&arguments));
    or_give_back(&made, set_up)?;
    Ok(made)
}

/// After a failure the object has no descriptor any more. `__init__` is Python's, so whatever a signal's
/// handler raises may leave it after it took the number, which the object would close when it dies.
fn or_give_back(made: &Bound<'_, PyAny>, outcome: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    let Err(error) = outcome else {
        return Ok(());
    };
    // The C class's own method: no signal is handled on its way.
    socket_types(made.py())?
        .detach
        .bind(made.py())
        .call1((made,))?;
    Err(error)
}
