//! HTTP on its connections: it connects a transport's events to the requests of `asgi`.
//!
//! | file | noun |
//! | --- | --- |
//! | `http3_connection` | `Http3Connection`: the requests of one QUIC connection |
//! | `exchange` | one of its streams, as a request's wire |
//! | `webtransport_sessions` | its WebTransport sessions |
//! | `connection_info` | both ends of the connection for the scope: addresses and TLS |
//! | `http3_limits` | [`Limits`](uringcore_http::http3::Limits) from Python |
//!
//! Python decides about the life of a connection: when GOAWAY is sent, and when it is closed.

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
