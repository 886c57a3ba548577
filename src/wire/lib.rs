//! What is on the wire, as plain codecs: bytes to values and back, and nothing of a connection.
//!
//! - `varint`: QUIC's variable-length integers.
//! - `datagram`: a datagram as a row of packets.
//! - `header`: packet headers, and the versions that lay them out.
//! - `negotiation`: Version Negotiation packets.
//! - `frames`: the frames of a packet in the clear.
//! - `parameters`: transport parameters.
//! - `structured`: structured fields of HTTP.
//! - `tls`: TLS' messages and records.
//!
//! A leaf: this crate depends on none of ours. No input makes anything here fail but
//! by an answer that says so.

#![forbid(unsafe_code)]

pub mod datagram;
pub mod frames;
pub mod header;
pub mod negotiation;
pub mod parameters;
pub mod structured;
pub mod tls;
pub mod varint;
