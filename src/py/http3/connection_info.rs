//! The parts of an ASGI scope that belong to a connection: the addresses of client and server, and TLS.

use std::net::{IpAddr, Ipv6Addr};

use pyo3::prelude::*;
use uringcore_http::request_head::Head;
use uringcore_quic as quic;

use super::http3_connection::Http3Connection;
use crate::asgi::open_file_permits::FileClient;
use crate::asgi::scope::ConnectionInfo;

/// The TLS information of the connection, for applications.
pub(super) enum Tls {
    /// The function that returns the information. Called at a request, until the handshake is complete.
    Asked(Py<PyAny>),
    /// The information, from the end of the handshake on.
    Known(Py<PyAny>),
}

impl Tls {
    pub fn object(&self) -> &Py<PyAny> {
        match self {
            Self::Asked(object) | Self::Known(object) => object,
        }
    }
}

impl Http3Connection {
    pub(super) fn ends<'py>(
        &self,
        py: Python<'py>,
        stream_id: u64,
        head: &Head,
    ) -> PyResult<ConnectionInfo<'py>> {
        let datagram_max = head.protocol.as_ref().and_then(|_| {
            self.with_connections_unraisable(py, |http, quic, _| {
                http.max_datagram_size(quic, stream_id)
            })
            .flatten()
        });
        Ok(ConnectionInfo {
            client: self.client(py)?,
            server: self.server.bind(py).clone(),
            tls: self.tls(py)?,
            datagram_max,
        })
    }

    /// The `tls` extension of ASGI. The result is not cached before the handshake is complete, because a client's
    /// certificate may still arrive.
    fn tls<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let ask = self.state.with(py, |state| match &state.tls {
            None => None,
            Some(Tls::Asked(ask)) => Some(Err(ask.clone_ref(py))),
            Some(Tls::Known(known)) => Some(Ok(known.clone_ref(py))),
        });
        let ask = match ask {
            None => return Ok(None),
            Some(Ok(known)) => return Ok(Some(known.into_bound(py))),
            Some(Err(ask)) => ask,
        };
        let reported = ask.bind(py).call0()?;
        let is_established = quic::Connection::is_established;
        let is_established = self
            .endpoint
            .get()
            .peek_connection(py, self.key, is_established)?;
        if is_established == Some(true) {
            let known = Tls::Known(reported.clone().unbind());
            let old = self.state.with(py, |state| state.tls.replace(known));
            drop(old);
        }
        Ok(Some(reported))
    }

    /// The client to which open files are charged. All connections without a validated address count as one client.
    pub(super) fn file_client(&self, py: Python<'_>) -> FileClient {
        let address = |quic: &quic::Connection| quic.validated_addr();
        let found = self.endpoint.get().peek_connection(py, self.key, address);
        let found = found.ok().flatten().flatten();
        let address = found.map_or(Ipv6Addr::UNSPECIFIED.into(), |address| address.ip());
        FileClient {
            block: address.into(),
            max: self.max_files,
        }
    }

    /// The client's address in ASGI's form: an IPv4-mapped address as IPv4, without flow label and scope. Only a
    /// validated address is returned, because applications and logs trust it (RFC 9000 section 9.3.1).
    fn client<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let remote =
            self.endpoint
                .get()
                .peek_connection(py, self.key, quic::Connection::validated_addr)?;
        let Some(remote) = remote.flatten() else {
            return Ok(py.None().into_bound(py));
        };
        let known = self.state.with(py, |state| match &state.client {
            Some((address, tuple)) if *address == remote => Some(tuple.clone_ref(py)),
            _ => None,
        });
        if let Some(tuple) = known {
            return Ok(tuple.into_bound(py).into_any());
        }
        let ip = match remote.ip() {
            IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
            ip => ip,
        };
        let tuple = (ip.to_string(), remote.port()).into_pyobject(py)?;
        let kept = tuple.clone().unbind();
        let old = self
            .state
            .with(py, |state| state.client.replace((remote, kept)));
        drop(old);
        Ok(tuple.into_any())
    }
}
