//! HTTP/2 connections of a server: passes the bytes of a transport to the requests of `asgi`, and responses back.
//!
//! | file | content |
//! | --- | --- |
//! | `connection` | [`Http2Connection`]: the protocol of a transport, and its requests |
//! | `exchange` | one request and its response, as the `HttpStream` of a request |
//!
//! `http1` makes a connection of HTTP/2 when a client begins with it, or has negotiated it by ALPN.

mod connection;
mod exchange;

pub use connection::Http2Connection;
use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Http2Connection>()
}
