//! Streams and datagrams of a QUIC connection as Python objects: the typed API of `uringcore.quic`.
//!
//! | file | content |
//! | --- | --- |
//! | `stream_manager` | `QuicStreams`: events of a connection or a session to the futures that wait for them |
//! | `transport_access` | access of a stream manager to the transport of its streams |
//! | `connection_base` | `ConnectionBase`: opening, accepting, datagrams |
//! | `stream` | `SendStream`, `ReceiveStream` and `BidirectionalStream` |
//! | `reading`, `sending` | the steps of their methods |
//! | `stream_awaitables` | the awaitables that the methods return |
//! | `errors` | the exceptions of `uringcore.quic._errors` |
//!
//! No event becomes an object here. An event sets a future, and the awaitable of that future reads the bytes out of the
//! state machine in its next step. So a call that is cancelled before has taken nothing. The protocol of streams and
//! connections is in `proto`.
//!
//! The state machine is the receive buffer: a connection is read on demand, so the peer gets credit for what the
//! program read, and the windows of the settings are the bound. Bytes are copied once, into the object that the
//! program gets. Only a read that is not complete yet (`readexactly`, `readuntil`, until the end) keeps bytes with its
//! stream, and no more than it needs.

mod connection_base;
mod errors;
mod reading;
mod sending;
mod stream;
mod stream_awaitables;
pub mod stream_manager;
pub mod transport_access;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<stream_manager::StreamManager>()?;
    m.add_class::<stream_awaitables::StreamAwaitable>()?;
    connection_base::register(m)?;
    stream::register(m)
}
