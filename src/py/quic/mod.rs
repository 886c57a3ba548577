//! QUIC for Python: the endpoint on a loop (or without one), the connection, its events.
//!
//! | file | noun |
//! | --- | --- |
//! | `endpoint` | `QuicEndpoint`: one UDP socket's worth of connections |
//! | `endpoint_settings` | what Python says about one |
//! | `connection` | `QuicConnectionCore`: the commands of one connection |
//! | `credentials` | session tickets, and where a server keeps sessions |
//! | `events` | the event classes |
//! | `key_log` | TLS secrets, on their way to a file |
//! | `packet_log` | recorded packets, for qlog |
//! | `trace_folder` | qlog traces that are written as events come |
//! | `setup` | checked configurations |
//! | `client_hello` | the ClientHello in first datagrams |
//! | `clock` | Python's seconds beside `Instant` |
//! | `wire_buffer` | `Buffer`, for programs with their own framing |
//!
//! Nothing here decides what a packet means, and nothing runs per packet: a turn's events of a
//! connection reach Python as one list.

mod client_hello;
mod clock;
mod connection;
mod credentials;
mod endpoint;
mod endpoint_settings;
mod events;
mod key_log;
mod packet_log;
mod setup;
mod trace_folder;
mod wire_buffer;

use pyo3::prelude::*;
use uringcore_engine::Key;

use crate::event_loop::loop_core::LoopCore;

pub use connection::{Attached, QuicConnectionCore};
pub use endpoint::QuicEndpoint;

/// An endpoint of this loop has events.
pub fn ready(slf: &Bound<'_, LoopCore>, key: Key) -> PyResult<()> {
    match hosted(slf, key, false) {
        Some(endpoint) => QuicEndpoint::deliver(endpoint.bind(slf.py())),
        None => Ok(()),
    }
}

/// An endpoint of this loop is gone; its socket may be closed.
pub fn closed(slf: &Bound<'_, LoopCore>, key: Key) -> PyResult<()> {
    match hosted(slf, key, true) {
        Some(endpoint) => QuicEndpoint::ended(endpoint.bind(slf.py())),
        None => Ok(()),
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<QuicEndpoint>()?;
    m.add_class::<connection::QuicConnectionCore>()?;
    m.add_class::<client_hello::ClientHelloReader>()?;
    m.add_class::<packet_log::PacketLog>()?;
    m.add_class::<trace_folder::TraceFile>()?;
    m.add_class::<trace_folder::TraceFolder>()?;
    events::register(m)?;
    setup::register(m)?;
    endpoint_settings::register(m)?;
    wire_buffer::register(m)
}

fn hosted(slf: &Bound<'_, LoopCore>, key: Key, forget: bool) -> Option<Py<QuicEndpoint>> {
    let py = slf.py();
    let object = slf.get().hosts.with(py, |hosts| match forget {
        true => hosts.quic.remove(&key),
        false => hosts.quic.get(&key).map(|object| object.clone_ref(py)),
    })?;
    object
        .bind(py)
        .cast::<QuicEndpoint>()
        .ok()
        .map(|endpoint| endpoint.clone().unbind())
}
