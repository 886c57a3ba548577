//! WebTransport's sessions as Python's objects: `uringcore.webtransport`, and the ASGI server's sessions.
//!
//! | file | noun |
//! | --- | --- |
//! | `session` | `WebTransportSessionCore`: one session between its connection and the program |
//! | `registry` | the sessions of one connection, and whom an event is for |
//! | `session_transport` | a session as what carries streams: they are those of `streams` |
//! | `limits` | what Python says of [`Limits`](uringcore_http::webtransport::Limits) |
//! | `client` | `WebTransportClient`: a client's connection, which is for sessions alone |
//!
//! A server's connection is `http`'s, whose requests and sessions come on one port. What sessions are is
//! `uringcore_http`'s business, and their life, beyond their streams, Python's.

mod client;
pub mod limits;
pub mod registry;
pub mod session;
mod session_transport;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<session::SessionCore>()?;
    m.add_class::<limits::WebTransportLimits>()?;
    m.add_class::<client::WebTransportClient>()
}
