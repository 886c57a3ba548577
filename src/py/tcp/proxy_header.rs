//! The header of the PROXY protocol, for Python.

use std::net::SocketAddr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uringcore_http::proxy_protocol::ProxyHeader;

type Address = (String, u16);
/// The length of the header, the addresses of the client and of the proxy's socket, and true for a connection of the
/// proxy's own.
type Header = (usize, Option<(Address, Address)>, bool);

/// Reads the PROXY header with which `data` begins. Returns `None` if more bytes are needed, and otherwise the length
/// of the header, the addresses of the client and of the proxy's socket, or `None`, and true if the proxy has opened
/// the connection for itself.
///
/// Raises `ValueError` if no header begins like `data`.
#[pyfunction]
pub fn read_proxy_header(data: &[u8]) -> PyResult<Option<Header>> {
    let header =
        ProxyHeader::read(data).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let address = |address: SocketAddr| (address.ip().to_string(), address.port());
    Ok(header.map(|header| {
        let addresses = header.addresses;
        let addresses = addresses.map(|(client, server)| (address(client), address(server)));
        (header.length, addresses, header.is_local)
    }))
}
