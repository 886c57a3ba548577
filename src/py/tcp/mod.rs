//! What HTTP/1.1 and HTTP/2 over TCP share: the connections of a server, and the transport beneath one.
//!
//! | file | content |
//! | --- | --- |
//! | `server_connections` | [`TcpService`](server_connections::TcpService): the connections of a server, of either version |
//! | `tls_server_transport` | TLS by rustls, under either version |
//! | `lower_transport` | the transport beneath: a stream of this extension, TLS over it, or any other transport |
//! | `connection_info` | the addresses and TLS of a connection, for scopes |
//! | `proxy_header` | the header of the PROXY protocol, for Python |
//! | `limits` | the limits of both versions from Python |
//!
//! A stream of this extension exchanges bytes with a connection without Python objects.

pub mod connection_info;
pub mod limits;
pub mod lower_transport;
mod proxy_header;
pub mod server_connections;
pub mod tls_server_transport;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<server_connections::TcpService>()?;
    m.add_class::<tls_server_transport::TlsServerTransport>()?;
    m.add_function(wrap_pyfunction!(proxy_header::read_proxy_header, m)?)?;
    m.add_class::<limits::TcpLimits>()
}
