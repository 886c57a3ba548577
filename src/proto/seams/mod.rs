//! What makes up for what quinn-proto and rustls do not offer, one gap a file: on top of each stands
//! what it assumes of the library and why.
//!
//! - `hkdf`: key derivation of rustls that passes through our hands.
//! - `labels`: keys of another QUIC version than a TLS session was begun with.
//! - `layout`: packets of version 2 for a state machine that knows the layout of version 1.
//! - `losses`: the packets that the state machine counts as lost, by their numbers.
//! - `path_challenge`: a packet of our own in the place of a PING.
//!
//! Above the wire and below everything that is written around the two libraries.

pub(crate) mod hkdf;
pub(crate) mod labels;
pub(crate) mod layout;
pub(crate) mod losses;
pub(crate) mod path_challenge;
