//! `uringcore._uringcore`: the Python bindings.
//!
//! | folder | contents |
//! | --- | --- |
//! | `loop` | the event loop: turn, handles, timers, watchers |
//! | `transport` | stream and datagram transports |
//! | `sock` | the `sock_*` calls |
//! | `ops` | operations that a future waits for: files, child processes |
//! | `tls` | TLS over any transport, through `ssl.SSLObject` |
//! | `quic`, `h3` | QUIC and HTTP/3 objects |
//! | `streams` | streams and datagrams of a QUIC connection, read and written by awaiting |
//! | `websocket_frames` | frames of a client's WebSocket |
//! | `asgi`, `http` | applications, and the connections that their requests come on |
//! | `webtransport` | sessions of streams and datagrams on HTTP/3 connections |
//! | `capi` | Python's C API, and conversions that every room needs |
//!
//! This room has no protocol rules: the protocol crates interpret bytes, and `engine` moves them.
//!
//! Classes that the loop does not need are made when one of their names is first used. A program that only needs a
//! loop neither waits for them nor has their pages in memory.

mod asgi;
mod capi;
// `loop` is a keyword of Rust.
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
mod websocket_frames;
mod webtransport;

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

/// Folders that are registered later, in the order in which they are searched for a name.
static LATER: [Later; 8] = [
    Later::new(tls::register),
    Later::new(quic::register),
    Later::new(streams::register),
    Later::new(h3::register),
    Later::new(asgi::register),
    Later::new(websocket_frames::register),
    Later::new(http::register),
    Later::new(webtransport::register),
];

/// A folder whose classes are made once, at their first use.
///
/// **Invariant.** A `register` calls nothing that imports. A look-up of a name of this module at that time would wait
/// for the `register` that makes it.
struct Later {
    register: fn(&Bound<'_, PyModule>) -> PyResult<()>,
    is_made: PyOnceLock<()>,
}

impl Later {
    const fn new(register: fn(&Bound<'_, PyModule>) -> PyResult<()>) -> Self {
        Self {
            register,
            is_made: PyOnceLock::new(),
        }
    }

    fn make(&self, m: &Bound<'_, PyModule>) -> PyResult<()> {
        let made = self.is_made.get_or_try_init(m.py(), || {
            (self.register)(m)?;
            forget_all(m)
        });
        made.copied()
    }
}

// A free-threaded interpreter stays free-threaded: there the cells of the state have locks of their own (see
// `capi::gil_cell`), and each loop belongs to the thread that runs it.
#[pymodule(gil_used = false)]
fn _uringcore(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_function(wrap_pyfunction!(look_later, m)?)?;
    m.add_function(wrap_pyfunction!(list_names, m)?)?;
    event_loop::register(m)?;
    transport::register(m)?;
    ops::register(m)?;
    sock::register(m)?;
    forget_all(m)
}

/// PyO3 lists the names that it adds in `__all__`, which would lack the later ones.
fn forget_all(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.dict().del_item(intern!(m.py(), "__all__"))
}

/// The module's `__getattr__` (PEP 562).
#[pyfunction(name = "__getattr__", pass_module)]
fn look_later<'py>(m: &Bound<'py, PyModule>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    // Names of the import system cause no registration.
    if !name.starts_with("__") {
        for later in &LATER {
            later.make(m)?;
            if let Some(found) = m.dict().get_item(name)? {
                return Ok(found);
            }
        }
    }
    let text = format!("module 'uringcore._uringcore' has no attribute {name:?}");
    Err(PyAttributeError::new_err(text))
}

#[pyfunction(name = "__dir__", pass_module)]
fn list_names<'py>(m: &Bound<'py, PyModule>) -> PyResult<Bound<'py, PyList>> {
    LATER.iter().try_for_each(|later| later.make(m))?;
    Ok(m.dict().keys())
}
