//! Workarounds for gaps of quinn-proto and rustls, one a file. The head of each file states the reason, and what the
//! file assumes about the library.
//!
//! Of quinn-proto:
//!
//! - `version_2_packets`: converts packets of version 2, because quinn-proto only has the layout of version 1.
//! - `server_hello_ack_hiding`: hides acknowledgements of a ServerHello.
//! - `transport_close`: sends a CONNECTION_CLOSE of the transport instead of the application's.
//! - `path_challenge`: sends a packet of this crate instead of a PING.
//! - `amplification_limited_packet`: sends a part of a packet to an address that is not validated.
//! - `reset_stream_at`: receives resets that keep the first bytes of a stream.
//! - `acked_stream_prefix`: detects when the peer has the first bytes of a stream.
//! - `received_padding_removal`: removes PADDING before quinn-proto reads it.
//! - `large_udp_payload_panic`: the largest UDP payload with which quinn-proto does not panic.
//! - `authentic_datagram_detection`: detects if a datagram was authentic.
//! - `duplicate_packet_detection`: detects packets that have arrived before.
//! - `lost_packet_detection`: the packets that quinn-proto counts as lost, by number.
//! - `congestion_controller_wrapper`: values of a congestion controller that quinn-proto does not report.
//! - `fresh_connection_id`: switches to another connection ID of the peer, and reports if there was one.
//! - `issued_connection_ids`: the sequence numbers of this side's connection IDs.
//! - `incoming_leak`: a new connection that is dropped without a decision leaks memory.
//! - `endpoint_table_memory`: the memory of tables after connections have ended.
//! - `datagram_frame_send_buffer`: bytes of DATAGRAM frames in quinn-proto.
//! - `max_datagram_frame_size`: the largest DATAGRAM frame that each side announces.
//! - `received_offsets`: the offset up to which the data of each stream has arrived.
//! - `growing_receive_window`: a receive window that grows with its use and can be taken back.
//! - `rejected_early_data`: rejected 0-RTT data, and the size of its DATAGRAM frames.
//! - `forged_retry`: drops Retry packets that the server did not send.
//! - `two_step_stream_limit`: announces the limit of the peer's streams in two steps.
//! - `key_update_guard`: delays a key update until the peer has the current keys.
//! - `lazy_phase_keys`: makes the keys of later phases when a packet needs them.
//! - `address_token_version`: the version and the nonce of address validation tokens.
//!
//! Of rustls:
//!
//! - `hkdf_wrapper`: cipher suites whose key derivation is wrapped.
//! - `hkdf_labels`: keys of another QUIC version than the one that a TLS session began with.
//! - `session_export`: exports and imports clients' sessions.
//!
//! Each file's tests check the assumptions on the bare library: `cargo test -p uringcore-quic workarounds`, the first
//! test to run after an upgrade (CONTRIBUTING.md).
//!
//! This module is above `wire` and below all code that uses the two libraries.

pub(crate) mod acked_stream_prefix;
pub(crate) mod address_token_version;
pub(crate) mod amplification_limited_packet;
pub(crate) mod authentic_datagram_detection;
pub(crate) mod congestion_controller_wrapper;
pub(crate) mod datagram_frame_send_buffer;
pub(crate) mod duplicate_packet_detection;
pub(crate) mod endpoint_table_memory;
pub(crate) mod forged_retry;
pub(crate) mod fresh_connection_id;
pub(crate) mod growing_receive_window;
pub(crate) mod hkdf_labels;
pub(crate) mod hkdf_wrapper;
pub(crate) mod incoming_leak;
pub(crate) mod issued_connection_ids;
pub(crate) mod key_update_guard;
pub(crate) mod large_udp_payload_panic;
pub(crate) mod lazy_phase_keys;
pub(crate) mod lost_packet_detection;
pub(crate) mod max_datagram_frame_size;
pub(crate) mod path_challenge;
pub(crate) mod received_offsets;
pub(crate) mod received_padding_removal;
pub(crate) mod rejected_early_data;
pub(crate) mod reset_stream_at;
pub(crate) mod server_hello_ack_hiding;
pub(crate) mod session_export;
pub(crate) mod transport_close;
pub(crate) mod two_step_stream_limit;
pub(crate) mod version_2_packets;

#[cfg(test)]
#[path = "tests/bare_quinn.rs"]
pub(crate) mod bare_quinn;
