//! HTTP/3 connections of a server: passes the events of a QUIC connection to the requests of `asgi`.
//!
//! | file | content |
//! | --- | --- |
//! | `http3_connection` | `Http3Connection`: the requests of one QUIC connection |
//! | `exchange` | one request stream of a connection, as the `HttpStream` of a request |
//! | `webtransport_sessions` | the WebTransport sessions of a connection |
//! | `connection_info` | addresses and TLS of a connection, for the scope |
//! | `http3_limits` | [`Limits`](uringcore_http::http3::Limits) from Python |
//!
//! Python decides when GOAWAY is sent and when a connection is closed.

mod connection_info;
mod exchange;
mod http3_connection;
mod http3_limits;
mod webtransport_sessions;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<http3_connection::Http3Connection>()?;
    m.add_class::<http3_limits::Http3Limits>()
}
