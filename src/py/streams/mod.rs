//! Streams and datagrams of a QUIC connection as Python objects: the typed API of `uringcore.quic`.
//!
//! | file | content |
//! | --- | --- |
//! | `stream_manager` | `QuicStreams`: wakes the futures that wait for the events of a connection or a session |
//! | `transport_access` | access of a stream manager to its connection or session |
//! | `connection_base` | `ConnectionBase`: opening and accepting streams, datagrams |
//! | `stream` | `SendStream`, `ReceiveStream` and `BidirectionalStream` |
//! | `reading`, `sending` | the work of a stream's methods |
//! | `stream_awaitables` | the awaitables that the methods return |
//! | `errors` | the exceptions that streams raise |
//!
//! Events do not become Python objects here. An event sets a future, and the awaitable that waits for the future
//! reads the bytes from the state machine in its next step. So a call that is cancelled before that step has taken no
//! bytes. The protocol of streams and connections is in `uringcore_quic` and `uringcore_http`.
//!
//! The state machine is the receive buffer. Streams are read on demand: the peer gets flow control credit for the
//! bytes that the program has read, so at most the configured windows are buffered. Bytes are copied once, into the
//! object that the program gets. Only an incomplete read (`readexactly`, `readuntil`, a read to the end) stores bytes
//! with its stream, and no more than it needs.

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
