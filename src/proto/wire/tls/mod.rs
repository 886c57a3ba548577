//! TLS as it is on the wire (RFC 8446), as far as it is read beside the TLS library.
//!
//! - `client_hello`: what a client shows.
//! - `records`: where records end in TLS over TCP, which is the `ssl` module's otherwise.

pub(crate) mod client_hello;
pub(crate) mod records;
