//! What both kinds of transport answer to `get_extra_info` in the same way.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The socket as asyncio shows it: without the methods that would move bytes past the transport.
pub fn transport_socket(py: Python<'_>, socket: Py<PyAny>) -> PyResult<Py<PyAny>> {
    Ok(py
        .import(intern!(py, "asyncio.trsock"))?
        .call_method1(intern!(py, "TransportSocket"), (socket,))?
        .unbind())
}

/// The entry that the transport was made with, else the caller's default.
pub fn or_default(
    py: Python<'_>,
    extra: Option<Py<PyDict>>,
    name: &str,
    default: Option<Py<PyAny>>,
) -> PyResult<Option<Py<PyAny>>> {
    if let Some(extra) = extra
        && let Some(value) = extra.bind(py).get_item(name)?
    {
        return Ok(Some(value.unbind()));
    }
    Ok(default)
}
