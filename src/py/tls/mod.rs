//! TLS over any transport, driven through `ssl.SSLObject` and memory BIOs: what asyncio's `sslproto`
//! does, on the way of every byte without Python frames.
//!
//! | file | noun |
//! | --- | --- |
//! | `protocol` | [`TlsProtocol`]: the protocol of the transport beneath; one connection's state |
//! | `transport` | [`TlsTransport`]: the transport that the application holds |
//! | `handshake` | from the first byte to the application's `connection_made` |
//! | `incoming` | records to `data_received` or `buffer_updated`, reading paused and resumed |
//! | `outgoing` | writes to records, the backlog, writing paused and resumed |
//! | `shutdown` | close_notify, ends of file, failures, `connection_lost` |
//! | `lower` | the transport beneath: our stream, or anybody's |
//! | `ssl_object` | the calls into Python's `ssl` module |
//! | `accept` | connections of a TLS server |
//! | `devcert` | the key of a development certificate |
//!
//! Not here: certificates, ciphers, what a record holds. That is OpenSSL's, behind Python's `ssl`.
//!
//! **Invariants.** Calls into `ssl` may run Python code, which may call back into this connection: no
//! borrow of the state spans one, the phase is looked at again after each, and while one runs
//! (`in_ssl`) writes and closes are only noted. Ciphertext leaves in the order in which OpenSSL made
//! it, so whatever comes out of the outgoing BIO goes down at once or not at all.

mod accept;
mod devcert;
mod handshake;
mod incoming;
mod lower;
mod outgoing;
mod protocol;
mod shutdown;
mod ssl_object;
mod transport;

pub use accept::accepted;
pub use protocol::TlsProtocol;
use transport::TlsTransport;

use pyo3::prelude::*;

use crate::capi::open_class;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<TlsProtocol>()?;
    m.add("SSLTransport", open_class::class::<TlsTransport>(m.py())?)?;
    devcert::register(m)
}
