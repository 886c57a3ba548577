//! Codecs of wire formats: bytes to values and back, without connection state.
//!
//! - `varint`: QUIC's variable-length integers.
//! - `datagram`: splits a datagram into packets.
//! - `header`: packet headers, and the versions that define them.
//! - `negotiation`: Version Negotiation packets.
//! - `frames`: the frames of a decrypted packet.
//! - `parameters`: transport parameters.
//! - `structured`: structured fields of HTTP.
//! - `tls`: TLS messages and records.
//!
//! This crate is a leaf: it depends on no other crate of the workspace. Every parser reports bad input by its return
//! value and never panics.

#![forbid(unsafe_code)]

pub mod datagram;
pub mod frames;
pub mod header;
pub mod negotiation;
pub mod parameters;
pub mod structured;
pub mod tls;
pub mod varint;
