//! The addresses and TLS of a connection, as applications get them.

use std::net::IpAddr;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::lower_transport::LowerTransport;
use super::server_connections::TcpService;
use crate::asgi::scope::ConnectionInfo;

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

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            client: self.client.clone_ref(py),
            server: self.server.clone_ref(py),
            tls: self.tls.as_ref().map(|tls| tls.clone_ref(py)),
        }
    }

    /// The address of the client; `None` for a Unix socket.
    pub fn ip(&self, py: Python<'_>) -> Option<IpAddr> {
        ip_of(self.client.bind(py))
    }

    /// Makes the extension `tls`. Returns it if it has to be kept for later requests.
    pub fn make_tls(
        &self,
        py: Python<'_>,
        service: &TcpService,
        lower: &LowerTransport,
    ) -> PyResult<Option<Py<PyAny>>> {
        match (&self.tls, &service.tls) {
            (None, Some(make)) => make
                .bind(py)
                .call1((lower.object(py),))
                .map(|it| Some(it.unbind())),
            _ => Ok(None),
        }
    }

    pub fn keep_tls(&mut self, tls: Py<PyAny>) -> Option<Py<PyAny>> {
        self.tls.replace(tls)
    }

    /// The values for a scope; `None` if [`make_tls`](Self::make_tls) has to be called first.
    pub fn known_info<'py>(
        &self,
        py: Python<'py>,
        service: &TcpService,
    ) -> Option<ConnectionInfo<'py>> {
        let is_known = self.tls.is_some() || service.tls.is_none();
        is_known.then(|| self.info(py))
    }

    /// The values for a scope.
    pub fn info<'py>(&self, py: Python<'py>) -> ConnectionInfo<'py> {
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
