//! TLS over any transport, driven through `ssl.SSLObject` and memory BIOs. It does what asyncio's `sslproto` does,
//! without Python frames in the path of a byte.
//!
//! | file | noun |
//! | --- | --- |
//! | `protocol` | [`TlsProtocol`]: the protocol of the transport beneath; one connection's state |
//! | `transport` | [`TlsTransport`]: the transport that the application holds |
//! | `handshake` | from the first byte to the application's `connection_made` |
//! | `decryption` | records to `data_received` or `buffer_updated`, reading paused and resumed |
//! | `encryption` | writes to records, the backlog, writing paused and resumed |
//! | `shutdown` | close_notify, ends of file, failures, `connection_lost` |
//! | `lower_transport` | the transport beneath: our stream, or any other |
//! | `ssl_object` | calls through Python's `ssl` module, and calls that bypass it |
//! | `openssl` | the library that `ssl` has loaded, and the layout of its objects |
//! | `record_bio` | our BIO, which carries the bytes |
//! | `accept` | connections of a TLS server |
//! | `devcert` | the key of a development certificate |
//!
//! Not here: certificates, ciphers, the contents of records. OpenSSL does those, behind Python's `ssl`.
//!
//! **Invariants.** Calls into `ssl` may run Python code, which may call back into this connection. So no borrow of
//! the state spans such a call, the phase is read again after each one, and writes and closes are only recorded while
//! one runs (`in_ssl`). Ciphertext is sent in the order in which OpenSSL made it. So bytes that leave the outgoing
//! BIO are passed down at once or not at all.
//!
//! The path of a byte: handshake and shutdown go through the `ssl` module. Data goes straight to the OpenSSL that the
//! module has loaded (`openssl`, `ssl_object`). Our own BIO (`record_bio`) replaces the two memory BIOs: OpenSSL reads
//! ciphertext where the kernel has put it, decrypts into the object that `data_received` gets, and leaves records in
//! the memory that waits for the kernel. OpenSSL is called only when a whole record is there
//! (`uringcore_wire::tls::RecordBoundaries`), because it answers an early call with an exception. The pieces of one
//! turn are delivered together, up to 256 KiB, each decrypted when it comes. Plaintext waits in the backlog while the
//! transport beneath is above its high-water mark. Up to 256 KiB are encrypted at once, so a large write is one send.
//!
//! If a check of `openssl` fails, the module's own calls and memory BIOs carry the data. Subclasses of
//! `ssl.SSLObject`, a context with a message callback, and `URINGCORE_DIRECT_TLS=0` also take that path. Its pieces
//! are four records. asyncio's logger gets one line that names the reason. A call that OpenSSL refuses is repeated
//! once through the module: OpenSSL has marked the connection as failed by then and its errors are still queued, so
//! the module raises its usual exception. The interpreter lock is held during a direct call, about 0.1 ms for 256
//! KiB.
//!
//! Deliberately different from asyncio's `sslproto` (CPython 3.10, whose own `sslproto` has an older design, also
//! gets this behaviour):
//!
//! - An alert is sent before a failed connection is closed. Data that was decrypted before a bad record is delivered.
//! - Data written before `close()` is sent even to a peer that continues to send.
//! - A reader that is paused in `connection_made` does not hold back the last flight of the handshake.
//! - `close()` ends a connection whose end of file came while reading was paused.
//! - Small pieces of one `writelines` share records.
//! - A pause that a high-water mark of 0 causes while nothing waits ends with the turn.

mod accept;
mod decryption;
mod devcert;
mod encryption;
mod handshake;
mod lower_transport;
mod openssl;
mod protocol;
mod record_bio;
mod shutdown;
mod ssl_object;
mod transport;

pub use accept::accepted;
pub use protocol::TlsProtocol;
use transport::TlsTransport;

use pyo3::prelude::*;

use crate::capi::class_with_dict;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<TlsProtocol>()?;
    m.add(
        "SSLTransport",
        class_with_dict::class::<TlsTransport>(m.py())?,
    )?;
    m.add_function(wrap_pyfunction!(openssl::tls_fallback_reason, m)?)?;
    devcert::register(m)
}
