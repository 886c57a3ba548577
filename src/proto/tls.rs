//! TLS 1.3 for QUIC (RFC 9001): certificates and their verification, and the crypto session that
//! the QUIC state machine drives, over `rustls::quic`.
//!
//! - `settings`: what a host may set, as plain data, and [`ConfigError`].
//! - `certificates`: which certificate a server shows to whom.
//! - `clock`: the time of day, which the host tells.
//! - `config`: settings to rustls configurations.
//! - `verify`, `validity`: how a server's certificate is judged.
//! - `session`: one handshake, and what comes out of it.
//! - `hello`: which tickets a client shows, before TLS looks.
//! - `sessions`: where a server keeps what its tickets stand for.
//! - `hkdf`: the seam in rustls' key derivation.
//! - `keys`, `retry`: packet protection.
//! - `tickets`, `resumption`: a client's sessions, in this process and beyond.
//! - `token_key`: what address validation tokens are sealed with.
//! - `versions`: QUIC versions 1 and 2, and the choice between them.
//! - `probe`: a packet of our own in the place of a PING.
//! - `tap`: a view of packets in the clear for the layer above.
//! - `reason`: failures in words.
//! - `records`: where records end in TLS over TCP, which is the `ssl` module's otherwise.
//!
//! Nothing here knows streams or datagrams, or reads a clock, a file or the environment.

mod certificates;
mod clock;
mod config;
mod hello;
mod hkdf;
mod keys;
mod probe;
mod reason;
mod records;
mod resumption;
mod retry;
mod session;
mod sessions;
mod settings;
mod tap;
mod tickets;
mod token_key;
mod validity;
mod verify;
mod versions;

pub(crate) use clock::HostClock;
pub(crate) use config::{
    ClientTls, ServerTls, client_config, random_bytes, reset_key, server_config,
};
pub(crate) use hello::{HELLO_BYTES_MAX, shown_tickets};
pub(crate) use probe::{Probe, ProbeSlot};
pub(crate) use reason::describe_alert;
pub(crate) use resumption::TicketInbox;
pub(crate) use retry::is_valid as is_valid_retry;
pub(crate) use session::{ClientCrypto, SessionDetails, server_initial_keys};
pub(crate) use tap::{PacketObserver, Space, Tap};
pub(crate) use token_key::token_key;
pub(crate) use versions::{
    Answer, KNOWN as KNOWN_VERSIONS, TicketScope, Versions, reserved as reserved_version,
    shift_type, unshift_type, version_of,
};

pub use certificates::SERVER_NAMES_MAX;
pub use clock::WallClock;
pub use records::RecordBoundaries;
pub use sessions::{MemorySessions, SessionStore};
pub use settings::{
    CipherSuite, ClientAuth, ConfigError, Identity, NamedIdentity, Roots, TrustStore,
};
pub use tickets::SessionTicket;
pub use versions::{VERSION_1, VERSION_2};
