//! HTTP/1.1 connections of a server: passes the bytes of a transport to the requests of `asgi`, and responses back.
//!
//! | file | content |
//! | --- | --- |
//! | `service` | [`Http1Service`](service::Http1Service): the connections of a server |
//! | `connection` | [`Http1Connection`](connection::Http1Connection): the protocol of a transport, and its requests |
//! | `exchange` | one request and its response, as the `HttpStream` of a request |
//! | `lower_transport` | the transport beneath: a stream of this extension, TLS over it, or any other transport |
//! | `limits` | [`Limits`](uringcore_http::http1::Limits) from Python |
//!
//! A stream of this extension exchanges bytes with a connection without Python objects.

mod connection;
mod exchange;
mod limits;
mod lower_transport;
mod service;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<service::Http1Service>()?;
    m.add_class::<connection::Http1Connection>()?;
    m.add_class::<limits::Http1Limits>()
}
