//! What makes up for what quinn-proto and rustls do not offer, one gap a file: on top of each stands
//! what it assumes of the library and why.
//!
//! Of quinn-proto:
//!
//! - `layout`: packets of version 2 for a state machine that knows the layout of version 1.
//! - `hidden_acks`: acknowledgements of a ServerHello that count for nothing.
//! - `transport_close`: a CONNECTION_CLOSE of the transport in the place of the application's.
//! - `path_challenge`: a packet of our own in the place of a PING.
//! - `partial_packet`: packets of which only a part is sent, to addresses that are not validated.
//! - `reset_stream_at`: resets behind data that counts all the same, received.
//! - `delivered`: whether the peer has the first bytes of a stream.
//! - `padding`: PADDING that nobody has to read.
//! - `packet_size`: how large a UDP payload may be that the state machine fills.
//! - `heard`: whether a datagram was authentic.
//! - `duplicates`: which packets have come before.
//! - `losses`: the packets that the state machine counts as lost, by their numbers.
//! - `gauge`: what a congestion controller sees and the state machine does not tell.
//! - `fresh_id`: another of the peer's connection IDs, and whether there was one.
//! - `issued_ids`: the numbers of connection IDs that were given out.
//! - `waiting_incoming`: new connections that wait until somebody has decided about them.
//! - `peak_tables`: the room that connections took which have gone.
//! - `datagram_buffer`: how many DATAGRAM frames the state machine has in hand.
//! - `datagram_limit`: the size of DATAGRAM frames that each side announces.
//! - `inflow`: how far the data of each stream has come.
//! - `credit`: a receive window that grows with its use and can be taken back.
//! - `early_data`: what becomes of 0-RTT data, and the size of its DATAGRAM frames.
//! - `forged_retry`: Retry packets that no server made.
//! - `stream_limits`: an entry for each stream that the peer may open.
//! - `key_update`: keys that are changed before the peer has shown that it has them.
//! - `phases`: keys of later phases, which are made when a packet needs them.
//! - `token_context`: what the address validation tokens of an endpoint are about.
//!
//! Of rustls:
//!
//! - `hkdf`: cipher suites whose key derivation passes through our hands.
//! - `labels`: keys of another QUIC version than a TLS session was begun with.
//! - `tickets`: sessions of clients that go to other processes and come from there.
//! - `draft_parameters`: transport parameters under the number that drafts had for them.
//!
//! Each file's tests ask the bare library whether it does what is assumed: `cargo test -p
//! uringcore-quic seams`, to be run first after an upgrade (CONTRIBUTING.md).
//!
//! Above the wire and below everything that is written around the two libraries.

pub(crate) mod credit;
pub(crate) mod datagram_buffer;
pub(crate) mod datagram_limit;
pub(crate) mod delivered;
pub(crate) mod draft_parameters;
pub(crate) mod duplicates;
pub(crate) mod early_data;
pub(crate) mod forged_retry;
pub(crate) mod fresh_id;
pub(crate) mod gauge;
pub(crate) mod heard;
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
