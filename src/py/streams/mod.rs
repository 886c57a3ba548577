//! Streams and datagrams of a QUIC connection as Python's objects: `uringcore.quic`'s own face.
//!
//! | file | noun |
//! | --- | --- |
//! | `stream_manager` | `QuicStreams`: what is between a connection's events, or a session's, and those who wait |
//! | `reach` | how a stream manager reaches the transport of its streams |
//! | `connection` | `ConnectionBase`: opening, accepting, datagrams |
//! | `stream` | `SendStream`, `ReceiveStream` and `BidirectionalStream` |
//! | `reading`, `sending` | what their methods do, step by step |
//! | `work` | what the methods give back: awaitables |
//! | `errors` | the exceptions of `uringcore.quic._errors` |
//!
//! No event becomes an object here. One that somebody waits for sets a future, and the awaitable behind
//! it reads the bytes out of the state machine at its next step: so whoever is cancelled before that has
//! taken nothing. What streams and connections are is `uringcore_quic`'s business.
//!
//! The state machine is the receive buffer: a connection is read on demand, so the peer gets credit for what the
//! program read, and the windows of the settings are the bound. Bytes are copied once, into the object that the
//! program gets. Only a read that is not whole yet (`readexactly`, `readuntil`, until the end) keeps bytes with its
//! stream, and no more than it asked for.

mod connection;
mod errors;
pub mod reach;
mod reading;
mod sending;
mod stream;
pub mod stream_manager;
mod work;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<stream_manager::StreamManager>()?;
    m.add_class::<work::Waiting>()?;
    connection::register(m)?;
    stream::register(m)
}
