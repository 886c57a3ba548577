//! The tests of QUIC over a simulated link. They are one program, because each separate test file would link the
//! crate again.

mod accepted_refused_and_failed_handshakes;
mod address_validation;
mod backpressure;
mod certificate_selection;
mod connection_ends;
mod datagram_frames_and_pings;
mod early_data_versions;
mod early_datagram_frames;
mod held_first_flight;
mod invalid_datagrams;
mod key_updates_ids_batches_and_stats;
mod memory_budget;
mod migration;
mod mutated_datagrams;
mod packet_log_and_connection_id_events;
mod pending_session_lookups;
mod pre_connect_commands;
mod read_on_demand;
mod resumption;
mod server_limits;
mod stream_limits;
mod streams;
mod support;
mod tls_handshakes;
mod version_credentials;
mod version_negotiation;
