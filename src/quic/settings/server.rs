//! A server's settings.

use std::{fmt, sync::Arc};

use quinn_proto as quinn;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{
    TransportSettings,
    versions::{DEFAULT_VERSIONS, known_versions},
};
use crate::{
    address_tokens::ServerTokens,
    seams::address_token_context::TokenContext,
    tls::{
        self, CipherSuite, ClientAuth, ConfigError, Group, HostClock, Identity, MemorySessions,
        NamedIdentity, ServerCrypto, SessionStore, WallClock,
    },
};

/// A server's settings.
#[derive(Clone)]
pub struct ServerSettings {
    /// The time of day, for the validity of certificates, tickets and tokens.
    pub clock: Arc<dyn WallClock>,
    pub transport: TransportSettings,
    /// Application protocols in order of preference (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    pub cert_chain: Vec<CertificateDer<'static>>,
    pub key: Arc<PrivateKeyDer<'static>>,
    /// Used instead of `cert_chain` for clients that request one of their names.
    pub named: Vec<NamedIdentity>,
    pub client_auth: ClientAuth,
    /// Only these suites, in this order. `None`: all, AES-128-GCM first.
    pub cipher_suites: Option<Vec<CipherSuite>>,
    /// Groups for the key exchange, only these, in this order. `None`: X25519, P-256 and P-384, and
    /// X25519MLKEM768 for clients that sent a key share of it.
    pub groups: Option<Vec<Group>>,
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    pub retry: Retry,
    /// The store of sessions for resumption. `None`: clients get no tickets.
    pub sessions: Option<Arc<dyn SessionStore>>,
    /// True if the host must look up sessions before a handshake that may resume one begins, because `sessions` has
    /// only entries that the host puts there.
    pub asks_for_sessions: bool,
    /// True if the host must also look up if an address validation token was used before, at all servers that share
    /// its log. A server itself only detects tokens that it has accepted.
    pub asks_for_tokens: bool,
    /// True if 0-RTT data is read. Each ticket is good for it once, as long as the store returns each session once.
    /// The application's use of the data should still be safe to replay (RFC 9001 section 9.2).
    pub early_data: bool,
    /// Supported QUIC versions. The client's preference decides among them (RFC 9368 section 2.3).
    pub supported_versions: Vec<u32>,
    /// The keys of address validation tokens (RFC 9000 section 8.1.4): the first one seals, all of them open. An
    /// empty list generates a random one. Servers that share a port share the keys.
    pub token_keys: Vec<Vec<u8>>,
}

/// When clients must prove their address by a Retry first (RFC 9000 section 8.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    Always,
    Never,
    /// When `retry_handshakes` handshakes are in progress, or half of an address's limit or of the accept rate is
    /// used up.
    #[default]
    Auto,
}

impl From<bool> for Retry {
    /// `true` is `Always`, `false` is `Never`.
    fn from(always: bool) -> Self {
        match always {
            true => Self::Always,
            false => Self::Never,
        }
    }
}

impl ServerSettings {
    pub fn new(identity: Identity, clock: Arc<dyn WallClock>) -> Self {
        Self {
            clock,
            transport: TransportSettings::default(),
            alpn: Vec::new(),
            cert_chain: identity.cert_chain,
            key: Arc::new(identity.key),
            named: Vec::new(),
            client_auth: ClientAuth::Off,
            cipher_suites: None,
            groups: None,
            key_log: None,
            retry: Retry::Auto,
            sessions: Some(Arc::new(MemorySessions::new(SESSIONS_MAX))),
            asks_for_sessions: false,
            asks_for_tokens: false,
            early_data: false,
            supported_versions: DEFAULT_VERSIONS.to_vec(),
            token_keys: Vec::new(),
        }
    }
}

/// A server's settings, checked and built. Cheap to clone.
#[derive(Clone)]
pub struct ServerSetup {
    /// The configuration without the tokens, which belong to an endpoint.
    config: quinn::ServerConfig,
    crypto: Arc<ServerCrypto>,
    tokens: ServerTokens,
    pub(crate) transport: Arc<TransportSettings>,
    pub(crate) retry: Retry,
    pub(crate) asks_for_sessions: bool,
    pub(crate) asks_for_tokens: bool,
    pub(crate) versions: Vec<u32>,
}

impl ServerSetup {
    pub fn new(settings: &ServerSettings) -> Result<Self, ConfigError> {
        let versions = known_versions(&settings.supported_versions)?;
        let crypto = tls::server_config(&tls::ServerTls {
            clock: &settings.clock,
            alpn: &settings.alpn,
            identity: (&settings.cert_chain, &settings.key),
            named: &settings.named,
            client_auth: &settings.client_auth,
            cipher_suites: settings.cipher_suites.as_deref(),
            groups: settings.groups.as_deref(),
            key_log: settings.key_log.clone(),
            sessions: settings.sessions.clone(),
            early_data: settings.early_data,
            limits: &settings.transport.limits(),
            versions: &settings.supported_versions,
        })?
        .with_packet_options(settings.transport.packet_options());
        let tokens = ServerTokens::new(&settings.token_keys)?;
        let crypto = Arc::new(crypto);
        let mut config = quinn::ServerConfig::new(crypto.clone(), tokens.key.clone());
        config
            .time_source(Arc::new(HostClock(settings.clock.clone())))
            .transport_config(Arc::new(settings.transport.build_server()?))
            .preferred_address_v4(settings.transport.preferred_v4)
            .preferred_address_v6(settings.transport.preferred_v6)
            .incoming_buffer_size(FOLLOWERS_MAX)
            .incoming_buffer_size_total(FOLLOWERS_OF_ALL_MAX);
        Ok(Self {
            config,
            crypto,
            tokens,
            transport: Arc::new(settings.transport.clone()),
            retry: settings.retry,
            asks_for_sessions: settings.asks_for_sessions || settings.asks_for_tokens,
            asks_for_tokens: settings.asks_for_tokens,
            versions,
        })
    }
}

impl ServerSetup {
    /// A copy for one connection whose ClientHello (with its type and length) the host has read: a handshake that
    /// begins with another hello fails.
    pub fn expecting(mut self, hello: &[u8]) -> Self {
        self.crypto = Arc::new(self.crypto.expecting(hello));
        self.config.crypto = self.crypto.clone();
        self
    }

    /// The configuration for an endpoint with this context.
    pub(crate) fn config(&self, context: &TokenContext) -> Arc<quinn::ServerConfig> {
        let mut config = self.config.clone();
        self.tokens.enter(&mut config, context);
        Arc::new(config)
    }

    /// A replacement of `other`, whose random token keys are kept: a client that has just received a token by a
    /// Retry packet could not connect otherwise. Keys that the host gave are not copied.
    pub(crate) fn in_place_of(self, other: &Self) -> Self {
        Self {
            tokens: self.tokens.in_place_of(&other.tokens),
            ..self
        }
    }
}

impl fmt::Debug for ServerSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSetup")
            .field("transport", &self.transport)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// About 300 bytes each.
const SESSIONS_MAX: usize = 4_096;

/// The buffer of the state machine for packets after a first one, for one connection: the rest of the hello and a
/// first flight of 0-RTT data. Further packets are dropped, and the client sends them again.
const FOLLOWERS_MAX: u64 = 64 << 10;
/// The bound for all connections together.
const FOLLOWERS_OF_ALL_MAX: u64 = 4 << 20;
