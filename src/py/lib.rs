//! `uringcore._uringcore`: the Python bindings.
//!
//! | folder | contents |
//! | --- | --- |
//! | `loop` | the event loop: loop iteration, handles, timers, watchers |
//! | `transport` | stream and datagram transports |
//! | `sock` | the `sock_*` calls |
//! | `ops` | operations of the ring with futures: files, child processes |
//! | `tls` | TLS over any transport, through `ssl.SSLObject` |
//! | `quic`, `h3` | QUIC and HTTP/3 objects |
//! | `streams` | streams and datagrams of a QUIC connection or a WebTransport session, with awaitable methods |
//! | `websocket_frames` | frames of a client's WebSocket |
//! | `asgi` | ASGI requests of each HTTP version |
//! | `http3`, `http1`, `http2` | the HTTP/3, HTTP/1.1 and HTTP/2 connections that carry them |
//! | `tcp` | what HTTP/1.1 and HTTP/2 share |
//! | `process_memory_budgets` | the memory budgets that servers share |
//! | `webtransport` | WebTransport sessions on HTTP/3 connections |
//! | `capi` | Python's C API, and conversions that every room needs |
//!
//! This room has no protocol rules: the protocol crates interpret bytes, and `engine` moves them.
//!
//! The module makes the loop's classes at import and all other classes when a program first reads one of their names.
//! So a program that only uses a loop neither waits for the others nor has their pages in memory.

mod asgi;
mod capi;
// `loop` is a keyword of Rust.
#[path = "loop/mod.rs"]
mod event_loop;
mod h3;
mod http1;
mod http2;
mod http3;
mod ops;
mod process_memory_budgets;
mod quic;
mod sock;
mod streams;
mod tcp;
mod tls;
mod transport;
mod websocket_frames;
mod webtransport;

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

/// The folders whose classes are made when they are first used, in the order in which a name is looked up in them.
static LAZY_FOLDERS: [LazyFolder; 11] = [
    LazyFolder::new(tls::register),
    LazyFolder::new(quic::register),
    LazyFolder::new(streams::register),
    LazyFolder::new(h3::register),
    LazyFolder::new(asgi::register),
    LazyFolder::new(websocket_frames::register),
    LazyFolder::new(http3::register),
    LazyFolder::new(http1::register),
    LazyFolder::new(http2::register),
    LazyFolder::new(tcp::register),
    LazyFolder::new(webtransport::register),
];

/// A folder whose classes are made once, when a program first reads one of their names.
///
/// **Invariant.** The function `register` calls nothing that imports a module. Code of that import could look up a
/// name of this extension module, and the look-up would wait for the `register` that is still running.
struct LazyFolder {
    register: fn(&Bound<'_, PyModule>) -> PyResult<()>,
    is_made: PyOnceLock<()>,
}

impl LazyFolder {
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

// The module supports free-threaded interpreters (`gil_used = false`): with such an interpreter, `capi::gil_cell` uses
// a mutex, and each loop belongs to the thread that runs it.
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

/// Removes `__all__`, in which PyO3 lists the names that exist when the module is made. Classes that are made later
/// would be missing.
fn forget_all(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.dict().del_item(intern!(m.py(), "__all__"))
}

/// The module's `__getattr__` (PEP 562): makes the classes of one folder after another until `name` exists.
#[pyfunction(name = "__getattr__", pass_module)]
fn look_later<'py>(m: &Bound<'py, PyModule>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    // The import system reads names such as `__path__`. They must not cause a registration.
    if !name.starts_with("__") {
        for later in &LAZY_FOLDERS {
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
    LAZY_FOLDERS.iter().try_for_each(|later| later.make(m))?;
    Ok(m.dict().keys())
}
