//! TLS 1.3 for QUIC (RFC 9001): certificates and their verification, and the crypto session that
//! the QUIC state machine drives, over `rustls::quic`.
//!
//! - `settings`: what a host may set, as plain data, and [`ConfigError`].
//! - `config`: settings to rustls configurations.
//! - `clock`: the time of day, which the host tells.
//! - `certificates`: which certificate a server shows to whom, and how a server's is judged.
//! - `handshake`: the crypto session: one handshake, and what comes out of it.
//! - `keys`: packet protection, what is sealed besides packets, and a view of packets in the clear.
//! - `random`: bytes that nobody can guess.
//! - `sessions`: what is resumed, on a server and on a client, in this process and beyond.
//! - `versions`: QUIC versions 1 and 2, and the choice between them.
//! - `fuzzing`: private parsers, opened for fuzz targets.
//!
//! Nothing here knows streams or datagrams, or reads a clock, a file or the environment.

mod certificates;
mod clock;
mod config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod keys;
mod random;
mod sessions;
mod settings;
mod versions;

pub(crate) use crate::seams::path_challenge::{Probe, ProbeSlot};
pub(crate) use clock::HostClock;
pub(crate) use config::{ClientTls, ServerTls, client_config, server_config};
pub(crate) use handshake::{
    ClientCrypto, ServerCrypto, SessionDetails, reason::describe_alert, server_initial_keys,
};
pub(crate) use keys::{
    reset::reset_key,
    retry::is_valid as is_valid_retry,
    tap::{PacketObserver, Tap},
    token::token_key,
};
pub(crate) use random::random_bytes;
pub(crate) use sessions::resumption::TicketInbox;
pub(crate) use versions::{Answer, Versions, reserved_besides};

pub use certificates::{SERVER_NAMES_MAX, validity::validity};
pub use clock::WallClock;
pub use sessions::{MemorySessions, SessionStore, tickets::SessionTicket};
pub use settings::{
    CipherSuite, ClientAuth, ConfigError, Identity, NamedIdentity, Roots, TrustStore,
};
