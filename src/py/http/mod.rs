//! HTTP on its connections: what joins a transport's events to the requests of `asgi`.
//!
//! | file | noun |
//! | --- | --- |
//! | `http3` | `Http3Connection`: the requests of one QUIC connection |
//! | `exchange` | one of its streams, as a request's wire |
//! | `sessions` | what of it is WebTransport's |
//! | `ends` | where its requests come in: addresses and TLS |
//! | `limits` | what Python says of [`Limits`](uringcore_http::http3::Limits) |
//!
//! The life of a connection (when it is told to go away, when it is closed) is Python's to decide.

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
