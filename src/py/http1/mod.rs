//! HTTP/1.1 connections of a server: passes the bytes of a transport to the requests of `asgi`, and responses back.
//!
//! | file | content |
//! | --- | --- |
//! | `connection` | [`Http1Connection`](connection::Http1Connection): the protocol of a transport, and its requests |
//! | `exchange` | one request and its response, as the `HttpStream` of a request |
//!
//! A connection whose client begins with HTTP/2, or has negotiated it by ALPN, is passed on to `http2`.

mod connection;
mod exchange;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<connection::Http1Connection>()
}
