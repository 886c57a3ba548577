//! Codecs of wire formats: bytes to values and back, without connection state.
//!
//! - `varint`: QUIC's variable-length integers.
//! - `coalesced_packets`: splits a datagram into packets.
//! - `packet_header`: packet headers, and the versions that define them.
//! - `version_negotiation`: Version Negotiation packets.
//! - `frame_iterator`: the frames of a decrypted packet.
//! - `transport_parameters`: transport parameters.
//! - `structured_fields`: structured fields of HTTP.
//! - `field_compression`: what HPACK and QPACK share.
//! - `tls`: TLS messages and records.
//! - `host_characters`: the characters of a URI's host and port.
//!
//! This crate depends on no other crate of the workspace. Every parser reports bad input by its return value and never
//! panics.

#![forbid(unsafe_code)]

pub mod coalesced_packets;
pub mod field_compression;
pub mod frame_iterator;
pub mod host_characters;
pub mod packet_header;
pub mod structured_fields;
pub mod tls;
pub mod transport_parameters;
pub mod varint;
pub mod version_negotiation;
