//! `uringcore._uringcore`: the Python bindings.
//!
//! | folder | what it binds |
//! | --- | --- |
//! | `loop` | the event loop: turn, handles, timers, watchers |
//! | `transport` | stream and datagram transports |
//! | `sock` | the `sock_*` calls |
//! | `ops` | operations that a future waits for: files, child processes |
//! | `tls` | TLS over any transport, through `ssl.SSLObject` |
//! | `quic`, `h3` | QUIC and HTTP/3 objects |
//! | `streams` | streams and datagrams of a QUIC connection, read and written by awaiting |
//! | `asgi`, `http` | applications, and the connections that their requests come on |
//! | `capi` | Python's C API, and what crosses the boundary everywhere |
//!
//! This room knows no protocol rule: what bytes mean is decided in `proto`, when they move in `engine`.

mod asgi;
mod capi;
// `loop` is a word of the language's.
#[path = "loop/mod.rs"]
mod event_loop;
mod h3;
mod http;
mod ops;
mod quic;
mod sock;
mod streams;
mod tls;
mod transport;

use pyo3::prelude::*;

// A free-threaded interpreter stays free-threaded: state sits in cells with a lock of their own there
// (see `capi::cell`), and each loop belongs to the thread that runs it.
#[pymodule(gil_used = false)]
fn _uringcore(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    event_loop::register(m)?;
    transport::register(m)?;
    ops::register(m)?;
    sock::register(m)?;
    tls::register(m)?;
    quic::register(m)?;
    streams::register(m)?;
    h3::register(m)?;
    asgi::register(m)?;
    http::register(m)
}
