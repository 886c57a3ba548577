//! What is on the wire, as plain codecs: bytes to values and back, and nothing of a connection.
//!
//! - `varint`: QUIC's variable-length integers.
//! - `frames`: the frames of a packet in the clear.
//! - `tls`: TLS' messages and records.
//!
//! A leaf: nothing here imports another module of the crate. No input makes anything here fail but
//! by an answer that says so.

pub(crate) mod frames;
pub(crate) mod tls;
pub mod varint;
