//! QUIC for Python: the endpoint on a loop (or without one), the connection, its events.
//!
//! | file | content |
//! | --- | --- |
//! | `endpoint` | `QuicEndpoint`: a UDP socket and its connections |
//! | `endpoint_settings` | an endpoint's settings from Python |
//! | `connection` | `QuicConnectionCore`: the commands of one connection |
//! | `session_stores` | a server's session stores |
//! | `ticket_and_token_conversion` | session tickets and address validation tokens as Python objects |
//! | `events` | the event classes |
//! | `tls_key_log` | TLS secrets for a file |
//! | `qlog_recorder` | recorded packets, for qlog |
//! | `qlog_files` | qlog traces that are written as events happen |
//! | `client_and_server_config` | checked configurations of clients and servers |
//! | `tls_server_setup` | checked settings of a server's TLS over TCP, which has the same certificates |
//! | `client_hello_reader` | reads the ClientHello in first datagrams |
//! | `clock_conversion` | conversion between Python's seconds and `Instant` |
//! | `wire_buffer` | `Buffer`, for programs with their own framing |
//!
//! No file here interprets a packet, and no code here runs for each packet: a loop iteration's events of a connection
//! reach Python as one list.

mod client_and_server_config;
mod client_hello_reader;
mod clock_conversion;
mod connection;
mod endpoint;
mod endpoint_settings;
mod events;
mod qlog_files;
mod qlog_recorder;
mod session_stores;
mod ticket_and_token_conversion;
mod tls_key_log;
mod tls_server_setup;
mod wire_buffer;

use pyo3::prelude::*;
use uringcore_engine::Key;

use crate::event_loop::loop_core::LoopCore;

pub use connection::{QuicConnectionCore, StreamProtocol};
pub use endpoint::QuicEndpoint;
pub use tls_server_setup::TlsServerSetup;

/// Delivers the events of an endpoint on this loop.
pub fn ready(slf: &Bound<'_, LoopCore>, key: Key) -> PyResult<()> {
    match hosted(slf, key, false) {
        Some(endpoint) => QuicEndpoint::deliver(endpoint.bind(slf.py())),
        None => Ok(()),
    }
}

/// Ends an endpoint on this loop. The engine has released its socket, which may be closed now.
pub fn closed(slf: &Bound<'_, LoopCore>, key: Key) -> PyResult<()> {
    match hosted(slf, key, true) {
        Some(endpoint) => QuicEndpoint::ended(endpoint.bind(slf.py())),
        None => Ok(()),
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<QuicEndpoint>()?;
    m.add_class::<connection::QuicConnectionCore>()?;
    m.add_class::<client_hello_reader::ClientHelloReader>()?;
    m.add_class::<qlog_recorder::PacketLog>()?;
    m.add_class::<qlog_files::TraceFile>()?;
    m.add_class::<qlog_files::TraceFolder>()?;
    events::register(m)?;
    client_and_server_config::register(m)?;
    endpoint_settings::register(m)?;
    wire_buffer::register(m)
}

fn hosted(slf: &Bound<'_, LoopCore>, key: Key, forget: bool) -> Option<Py<QuicEndpoint>> {
    let py = slf.py();
    let object = slf.get().objects.with(py, |objects| match forget {
        true => objects.quic.remove(&key),
        false => objects.quic.get(&key).map(|object| object.clone_ref(py)),
    })?;
    object
        .bind(py)
        .cast::<QuicEndpoint>()
        .ok()
        .map(|endpoint| endpoint.clone().unbind())
}
