//! The addresses and TLS of a connection, as applications get them.

use std::net::IpAddr;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::lower_transport::LowerTransport;
use super::server_connections::TcpService;
use crate::asgi::scope::ConnectionInfo;
use crate::capi::gil_cell::GilCell;

/// The addresses and TLS of one connection.
pub struct Ends {
    client: Py<PyAny>,
    server: Py<PyAny>,
    /// The extension `tls`. `None` until the first request, and without TLS.
    tls: Option<Py<PyAny>>,
}

impl Ends {
    pub fn of(transport: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (client, server) = addresses(transport)?;
        Ok(Self {
            client,
            server,
            tls: None,
        })
    }

    /// The address of the client; `None` for a Unix socket.
    pub fn ip(&self, py: Python<'_>) -> Option<IpAddr> {
        ip_of(self.client.bind(py))
    }

    /// The values for a scope.
    fn info<'py>(&self, py: Python<'py>) -> ConnectionInfo<'py> {
        ConnectionInfo {
            client: self.client.bind(py).clone(),
            server: self.server.bind(py).clone(),
            tls: self.tls.as_ref().map(|tls| tls.bind(py).clone()),
            datagram_max: None,
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tls)
    }
}

/// The state of a connection, of either version of HTTP.
pub trait HasEnds {
    fn ends(&mut self) -> Option<&mut Ends>;

    fn lower(&self) -> Option<&LowerTransport>;
}

/// Returns the addresses and TLS for a scope; `None` if the connection is lost. The first call makes the extension
/// `tls`.
pub fn connection_info<'py>(
    py: Python<'py>,
    state: &GilCell<impl HasEnds>,
    service: &TcpService,
) -> PyResult<Option<ConnectionInfo<'py>>> {
    let known = state.with(py, |state| {
        let is_open = state.lower().is_some();
        let ends = state.ends().filter(|_| is_open)?;
        Some(match &service.tls {
            Some(make_tls) if ends.tls.is_none() => Err((make_tls, state.lower()?.clone_ref(py))),
            _ => Ok(ends.info(py)),
        })
    });
    let (make_tls, lower) = match known {
        None => return Ok(None),
        Some(Ok(info)) => return Ok(Some(info)),
        Some(Err(missing)) => missing,
    };
    let tls = make_tls.bind(py).call1((lower.object(py),))?.unbind();
    let made = state.with(py, |state| {
        let ends = state.ends()?;
        let old = ends.tls.replace(tls);
        Some((ends.info(py), old))
    });
    Ok(made.map(|(info, _)| info))
}

/// Returns the addresses of the client and the server in the form of ASGI. As in uvicorn, a Unix socket has no client,
/// and its path as the server.
fn addresses(transport: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
    let py = transport.py();
    let get = |name| transport.call_method1(intern!(py, "get_extra_info"), (name,));
    let client = match inet(&get(intern!(py, "peername"))?)? {
        Some(address) => address.into_any().unbind(),
        None => py.None(),
    };
    let name = get(intern!(py, "sockname"))?;
    let server = match (inet(&name)?, name.cast::<PyString>()) {
        (Some(address), _) => address.into_any().unbind(),
        (None, Ok(path)) => (path, py.None()).into_pyobject(py)?.into_any().unbind(),
        (None, Err(_)) => py.None(),
    };
    Ok((client, server))
}

/// Returns the host and the port of an IPv4 or IPv6 address.
fn inet<'py>(name: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    match name.cast::<PyTuple>() {
        Ok(name) if name.len() >= 2 => {
            let pair = (name.get_item(0)?, name.get_item(1)?);
            Ok(Some(pair.into_pyobject(name.py())?))
        }
        _ => Ok(None),
    }
}

fn ip_of(address: &Bound<'_, PyAny>) -> Option<IpAddr> {
    let host = address.cast::<PyTuple>().ok()?.get_item(0).ok()?;
    let host = host.cast::<PyString>().ok()?.to_str().ok()?.to_owned();
    // The zone of a link-local address is left out.
    host.split('%').next()?.parse().ok()
}
