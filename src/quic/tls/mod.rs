//! TLS 1.3 for QUIC (RFC 9001): certificates and their verification, and the crypto session that quinn-proto drives,
//! over `rustls::quic`. With the same certificates, a server's TLS over TCP.
//!
//! - `settings`: the application's settings, as plain data, and [`ConfigError`].
//! - `rustls_config`: builds rustls configurations from settings.
//! - `wall_clock`: the wall clock, which the application passes.
//! - `certificates`: the choice of a server's certificate, and verification of a peer's.
//! - `handshake`: the crypto session of one handshake.
//! - `keys`: packet protection, keys of tokens, resets and Retry tags, and observation of packets in plain text.
//! - `random`: random bytes.
//! - `sessions`: session resumption, on a server and on a client, in this process and beyond.
//! - `tcp`: a server's TLS over TCP.
//! - `versions`: QUIC versions 1 and 2, and the choice between them.
//! - `fuzzing`: private parsers, opened for fuzz targets.
//!
//! This module does not depend on streams or datagrams, and reads no clock, file or environment.

mod certificates;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod keys;
mod random;
mod rustls_config;
mod sessions;
mod settings;
mod tcp;
mod versions;
mod wall_clock;

pub(crate) use crate::workarounds::path_challenge::{Probe, ProbeSlot};
pub(crate) use handshake::{
    ClientCrypto, PacketOptions, ServerCrypto, SessionDetails, error_text::describe_alert,
    server_initial_keys,
};
pub(crate) use keys::{
    address_token_keys::token_key,
    packet_hook::{PacketHook, PacketObserver},
    retry_tag::is_valid as is_valid_retry,
    stateless_reset_keys::{ResetKeys, TOKEN_SIZE, mark_of},
};
pub(crate) use random::random_bytes;
pub(crate) use rustls_config::{ClientTls, ServerTls, client_config, server_config};
pub(crate) use sessions::client_session_store::TicketInbox;
pub(crate) use versions::{Answer, Versions, reserved_besides};
pub(crate) use wall_clock::ApplicationClock;

pub use certificates::{SERVER_NAMES_MAX, host_name_match::is_for_host, validity_dates::validity};
pub use keys::stateless_reset_keys::RESET_KEYS_MAX;
pub use sessions::{MemorySessions, SessionStore, client_session_ticket::SessionTicket};
pub use settings::{
    CipherSuite, ClientAuth, ConfigError, Group, Identity, NamedIdentity, Roots, TrustStore,
};
pub use tcp::{Failure, Negotiated, ServerSession, TcpServerSettings, TcpServerSetup};
pub use wall_clock::WallClock;
