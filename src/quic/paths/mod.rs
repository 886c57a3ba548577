//! The addresses and sockets that connections use (RFC 9000 section 9).
//!
//! - `path`: where one connection's packets go and come from.
//! - `addresses`: which of a client's addresses is validated, and what others may get.
//! - `aliases`: addresses of servers that stand for the one that the state machine knows.
//! - `peer_parameters`: where a server would have its clients go, and whether they may go at all.
//!
//! Not here: when a connection changes its path, which it decides itself (`connection::migration`,
//! `connection::preferred`, `endpoint::migration`).

pub(super) mod addresses;
pub(super) mod aliases;
pub(super) mod path;
pub(super) mod peer_parameters;
