//! TLS over any transport, through `ssl.SSLObject` and memory BIOs. It replaces asyncio's `sslproto`; the bytes pass
//! through no Python frames.
//!
//! | file | content |
//! | --- | --- |
//! | `protocol` | [`TlsProtocol`]: the protocol of the transport beneath; the state of one connection |
//! | `transport` | [`TlsTransport`]: the transport of the application's protocol |
//! | `handshake` | from the first byte to the application's `connection_made` |
//! | `decryption` | records to `data_received` or `buffer_updated`; reading paused and resumed |
//! | `encryption` | writes to records, writes that wait; writing paused and resumed |
//! | `shutdown` | close_notify, ends of file, failures, `connection_lost` |
//! | `lower_transport` | the transport beneath: our stream, or any other |
//! | `ssl_object` | calls through Python's `ssl` module, and calls that bypass it |
//! | `openssl_functions` | the OpenSSL that `ssl` has loaded, and the layout of its objects |
//! | `record_bio` | our BIO: the peer's bytes for OpenSSL, and the records that OpenSSL makes |
//! | `accepted_connections` | connections of a TLS server |
//! | `devcert_key` | the key of a development certificate |
//!
//! Not here: certificates, ciphers, the contents of records. OpenSSL handles those, through Python's `ssl`.
//!
//! **Invariants.** A call into `ssl` may run Python code, which may call this connection again. So no borrow of the
//! state spans such a call, the phase is read again after it, and writes and closes during it are only recorded
//! (`in_ssl`). Records are sent in the order in which OpenSSL has made them. So bytes that are taken out of the
//! outgoing BIO are passed down at once or dropped with the connection.
//!
//! **The way of the data.** Handshake and shutdown go through the `ssl` module. Data goes directly to the OpenSSL
//! library that the module has loaded (`openssl_functions`, `ssl_object`). Our own BIO (`record_bio`) replaces the two
//! memory BIOs: OpenSSL reads ciphertext where the kernel has put it, decrypts into the object that `data_received`
//! gets, and writes records into the memory in which they wait for the kernel. OpenSSL is called only when a whole
//! record has come (`uringcore_wire::tls::RecordBoundaries`), because an earlier call fails with an exception. The
//! pieces of one loop iteration are decrypted one by one and delivered together, up to 256 KiB. While the transport
//! beneath is above its high-water mark, plaintext waits here. Up to 256 KiB are encrypted at once, so a large write is
//! one send.
//!
//! If a check of `openssl_functions` fails, data goes through the module's own calls and memory BIOs, in pieces of four
//! records. The same happens for subclasses of `ssl.SSLObject`, for a context with a message callback, and with
//! `URINGCORE_DIRECT_TLS=0`. asyncio's logger gets one line with the reason. A direct call that OpenSSL refuses is
//! repeated once through the module: OpenSSL has marked the connection as failed and its errors are still queued, so
//! the module raises its usual exception. The interpreter lock is held during a direct call, for about 0.1 ms with
//! 256 KiB.
//!
//! Deliberate differences to asyncio's `sslproto`, also on CPython 3.10, whose `sslproto` has an older design:
//!
//! - An alert is sent before a failed connection is closed. Data that was decrypted before a bad record is delivered.
//! - Data written before `close()` is sent even to a peer that continues to send.
//! - A reader that is paused in `connection_made` does not hold back the last flight of the handshake.
//! - `close()` ends a connection whose end of file came while reading was paused.
//! - Small pieces of one `writelines` share records.
//! - With a high-water mark of 0, a pause of writing ends with the loop iteration if nothing waits.

mod accepted_connections;
mod decryption;
mod devcert_key;
mod encryption;
mod handshake;
mod lower_transport;
mod openssl_functions;
mod protocol;
mod record_bio;
mod shutdown;
mod ssl_object;
mod transport;

pub use accepted_connections::accepted;
pub use protocol::TlsProtocol;
pub use transport::TlsTransport;

use pyo3::prelude::*;

use crate::capi::class_with_dict;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<TlsProtocol>()?;
    m.add(
        "SSLTransport",
        class_with_dict::class::<TlsTransport>(m.py())?,
    )?;
    m.add_function(wrap_pyfunction!(openssl_functions::tls_fallback_reason, m)?)?;
    devcert_key::register(m)
}
