//! The addresses and sockets that connections use (RFC 9000 section 9).
//!
//! - `path`: the local and remote addresses of one connection's packets.
//! - `addresses`: a client's validated address, and the limits of others.
//! - `aliases`: addresses of servers that replace the state machine's address.
//! - `peer_parameters`: a server's preferred address, and if a client may migrate at all.
//!
//! Not here: when a connection changes its path (`connection::migration`, `connection::preferred`,
//! `endpoint::migration`).

pub(super) mod addresses;
pub(super) mod aliases;
pub(super) mod path;
pub(super) mod peer_parameters;
