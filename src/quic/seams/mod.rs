//! Workarounds for gaps of quinn-proto and rustls, one a file. The head of each file states its assumptions about the
//! library and the reason.
//!
//! Of quinn-proto:
//!
//! - `layout`: packets of version 2 for a state machine that implements the layout of version 1.
//! - `hidden_acks`: hides acknowledgements of a ServerHello.
//! - `transport_close`: sends a CONNECTION_CLOSE of the transport instead of the application's.
//! - `path_challenge`: sends a packet of our own instead of a PING.
//! - `partial_packet`: sends part of a packet to addresses that are not validated.
//! - `reset_stream_at`: receives resets that keep the first bytes of a stream.
//! - `delivered`: detects when the peer has the first bytes of a stream.
//! - `padding`: removes PADDING before the state machine reads it.
//! - `packet_size`: the largest UDP payload that the state machine can fill.
//! - `authentic`: detects if a datagram was authentic.
//! - `duplicates`: detects packets that have arrived before.
//! - `losses`: the packets that the state machine counts as lost, by number.
//! - `congestion_gauge`: values of a congestion controller that the state machine does not report.
//! - `fresh_id`: switches to another connection ID of the peer, and reports if there was one.
//! - `issued_ids`: the sequence numbers of our connection IDs.
//! - `waiting_incoming`: new connections that wait for a decision.
//! - `peak_tables`: memory of connections that have ended.
//! - `datagram_buffer`: bytes of DATAGRAM frames in the state machine.
//! - `datagram_limit`: the size of DATAGRAM frames that each side announces.
//! - `inflow`: how far the data of each stream has arrived.
//! - `credit`: a receive window that grows with its use and can be taken back.
//! - `early_data`: rejected 0-RTT data, and the size of its DATAGRAM frames.
//! - `forged_retry`: filters Retry packets that the server did not send.
//! - `stream_limits`: announces the limit of the peer's streams in two steps.
//! - `key_update`: delays a key update until the peer has the current keys.
//! - `phases`: makes the keys of later phases when a packet needs them.
//! - `token_context`: the version and the nonce of address validation tokens.
//!
//! Of rustls:
//!
//! - `hkdf`: cipher suites whose key derivation is wrapped.
//! - `labels`: keys of another QUIC version than the one that a TLS session began with.
//! - `tickets`: exports and imports clients' sessions.
//!
//! Each file's tests check the assumptions on the bare library: `cargo test -p uringcore-quic seams`, the first test
//! to run after an upgrade (CONTRIBUTING.md).
//!
//! This module is above `wire` and below all code that uses the two libraries.

pub(crate) mod authentic;
pub(crate) mod congestion_gauge;
pub(crate) mod credit;
pub(crate) mod datagram_buffer;
pub(crate) mod datagram_limit;
pub(crate) mod delivered;
pub(crate) mod duplicates;
pub(crate) mod early_data;
pub(crate) mod forged_retry;
pub(crate) mod fresh_id;
pub(crate) mod hidden_acks;
pub(crate) mod hkdf;
pub(crate) mod inflow;
pub(crate) mod issued_ids;
pub(crate) mod key_update;
pub(crate) mod labels;
pub(crate) mod layout;
pub(crate) mod losses;
pub(crate) mod packet_size;
pub(crate) mod padding;
pub(crate) mod partial_packet;
pub(crate) mod path_challenge;
pub(crate) mod peak_tables;
pub(crate) mod phases;
pub(crate) mod reset_stream_at;
pub(crate) mod stream_limits;
pub(crate) mod tickets;
pub(crate) mod token_context;
pub(crate) mod transport_close;
pub(crate) mod waiting_incoming;

#[cfg(test)]
#[path = "tests/bare.rs"]
pub(crate) mod bare;
