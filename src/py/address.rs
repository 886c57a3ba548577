//! Socket addresses to and from Python, in the shapes of the `socket` module.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use uringcore_io::SockAddr;

/// `(host, port)`, `(host, port, flowinfo, scope_id)`, a path, or `None` for other families.
pub fn to_python(py: Python<'_>, addr: &SockAddr) -> PyResult<Py<PyAny>> {
    if let Some(inet) = addr.as_socket() {
        return Ok(inet_to_python(py, inet)?.into_any().unbind());
    }
    if addr.is_unix() {
        if let Some(path) = addr.as_pathname() {
            return Ok(path.as_os_str().into_pyobject(py)?.into_any().unbind());
        }
        if let Some(name) = addr.as_abstract_namespace() {
            let mut bytes = vec![0];
            bytes.extend_from_slice(name);
            return Ok(PyBytes::new(py, &bytes).into_any().unbind());
        }
        return Ok(PyString::new(py, "").into_any().unbind());
    }
    Ok(py.None())
}

pub fn inet_to_python(py: Python<'_>, addr: SocketAddr) -> PyResult<Bound<'_, PyTuple>> {
    match addr {
        SocketAddr::V4(v4) => (v4.ip().to_string(), v4.port()).into_pyobject(py),
        SocketAddr::V6(v6) => {
            (v6.ip().to_string(), v6.port(), v6.flowinfo(), v6.scope_id()).into_pyobject(py)
        }
    }
}

/// An internet address from the `socket` module's tuple. A host name is looked up, which blocks, as
/// it does in asyncio's own `sendto`.
pub fn inet_from_python(addr: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    let tuple = addr.cast::<PyTuple>().map_err(|_| {
        PyTypeError::new_err(format!("address must be a (host, port) tuple, not {addr}"))
    })?;
    if !(2..=4).contains(&tuple.len()) {
        return Err(PyTypeError::new_err(
            "address must be a (host, port[, flowinfo[, scope_id]]) tuple",
        ));
    }
    let host: String = tuple.get_item(0)?.extract()?;
    let port: i64 = tuple.get_item(1)?.extract()?;
    let port = u16::try_from(port)
        .map_err(|_| pyo3::exceptions::PyOverflowError::new_err("port must be 0-65535."))?;
    let item = |index: usize| -> PyResult<u32> {
        if tuple.len() > index {
            tuple.get_item(index)?.extract()
        } else {
            Ok(0)
        }
    };
    let (flowinfo, scope_id) = (item(2)?, item(3)?);
    let ip = match host.as_str() {
        "" => return Err(PyValueError::new_err("address: the host is empty")),
        "<broadcast>" => IpAddr::from([255, 255, 255, 255]),
        text => match text.parse::<IpAddr>() {
            Ok(ip) => ip,
            Err(_) => (text, port)
                .to_socket_addrs()
                .map_err(|error| crate::error::io_error(&error))?
                .next()
                .ok_or_else(|| PyValueError::new_err(format!("no address for host {text:?}")))?
                .ip(),
        },
    };
    Ok(match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, port, flowinfo, scope_id)),
    })
}
