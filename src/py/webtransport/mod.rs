//! WebTransport sessions as Python objects: `uringcore.webtransport`, and the ASGI server's sessions.
//!
//! | file | content |
//! | --- | --- |
//! | `session` | `WebTransportSessionCore`: one session, between its connection and the program |
//! | `session_registry` | the sessions of one connection; finds the session of an event |
//! | `session_transport` | the streams and datagrams of a session, for `streams` |
//! | `session_limits` | [`Limits`](uringcore_http::webtransport::Limits) from Python |
//! | `client` | `WebTransportClient`: a client's connection that carries only sessions |
//!
//! A server's connection is in `http3`, because it carries requests and sessions. `uringcore_http` has the rules of
//! sessions. Python decides when a session is accepted and closed.

mod client;
pub mod session;
pub mod session_limits;
pub mod session_registry;
mod session_transport;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<session::SessionCore>()?;
    m.add_class::<session_limits::WebTransportLimits>()?;
    m.add_class::<client::WebTransportClient>()
}
