//! HTTP on its connections: it connects a transport's events to the requests of `asgi`.
//!
//! | file | noun |
//! | --- | --- |
//! | `http3` | `Http3Connection`: the requests of one QUIC connection |
//! | `exchange` | one of its streams, as a request's wire |
//! | `sessions` | its WebTransport sessions |
//! | `ends` | both ends of the connection for the scope: addresses and TLS |
//! | `limits` | [`Limits`](uringcore_http::http3::Limits) from Python |
//!
//! Python decides about the life of a connection: when GOAWAY is sent, and when it is closed.

mod ends;
mod exchange;
mod http3;
mod limits;
mod sessions;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<http3::Http3Connection>()?;
    m.add_class::<limits::Http3Limits>()
}
