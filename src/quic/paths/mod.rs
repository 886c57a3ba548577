//! The addresses and sockets that connections use (RFC 9000 section 9).
//!
//! - `path`: the local and remote addresses of one connection's packets.
//! - `amplification_limits`: a client's validated address, and the amplification limits of other addresses.
//! - `address_aliases`: addresses of servers that replace the address that quinn-proto has.
//! - `peer_transport_parameters`: a server's preferred address, and a ban on migration.
//!
//! Not here: when a connection changes its path (`connection::migration`, `connection::preferred_address`,
//! `endpoint::migration`).

pub(super) mod address_aliases;
pub(super) mod amplification_limits;
pub(super) mod path;
pub(super) mod peer_transport_parameters;
