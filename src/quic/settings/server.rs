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
    tls::{
        self, ApplicationClock, CipherSuite, ClientAuth, ConfigError, Group, Identity,
        MemorySessions, NamedIdentity, ServerCrypto, SessionStore, WallClock,
    },
    workarounds::address_token_version::TokenContext,
};

/// A server's settings, as plain data.
#[derive(Clone)]
pub struct ServerSettings {
    /// The clock for the validity of certificates, tickets and tokens.
    pub clock: Arc<dyn WallClock>,
    pub transport: TransportSettings,
    /// Application protocols (RFC 7301), the preferred one first.
    pub alpn: Vec<Vec<u8>>,
    pub cert_chain: Vec<CertificateDer<'static>>,
    pub key: Arc<PrivateKeyDer<'static>>,
    /// Certificates for clients that request one of their names. Other clients get `cert_chain`.
    pub named: Vec<NamedIdentity>,
    pub client_auth: ClientAuth,
    /// The allowed cipher suites, the preferred one first. `None`: all, AES-128-GCM first.
    pub cipher_suites: Option<Vec<CipherSuite>>,
    /// The allowed key exchange groups, the preferred one first. `None`: X25519, P-256 and P-384, and X25519MLKEM768
    /// for clients that have sent a key share of it.
    pub groups: Option<Vec<Group>>,
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    pub retry: Retry,
    /// The store of TLS sessions for resumption. `None`: clients get no tickets.
    pub sessions: Option<Arc<dyn SessionStore>>,
    /// True if the application must look up sessions before a handshake that may resume one begins. `sessions` then has
    /// only entries that the application has put there.
    pub asks_for_sessions: bool,
    /// True if the application must also look up whether an address validation token was used before, at any of several
    /// servers. A server by itself only detects tokens that it has accepted itself.
    pub asks_for_tokens: bool,
    /// True to accept 0-RTT data. Each ticket is valid for it once, if the store returns each session once. Even so, an
    /// application should only use 0-RTT data in ways that are safe to replay (RFC 9001 section 9.2).
    pub early_data: bool,
    /// The supported QUIC versions. The client's preference decides among them (RFC 9368 section 2.3).
    pub supported_versions: Vec<u32>,
    /// The keys of address validation tokens (RFC 9000 section 8.1.4). The first key seals tokens, all of them open
    /// tokens. If the list is empty, a random key is generated. Servers that share a port must share the keys.
    pub token_keys: Vec<Vec<u8>>,
}

/// Selects when a client must first prove its address by a Retry (RFC 9000 section 8.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    Always,
    Never,
    /// When `retry_handshakes` handshakes are in progress, or when half of the limit of an address or of the accept
    /// rate is used up.
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
    /// The configuration without the token key, which an endpoint adds.
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
            .time_source(Arc::new(ApplicationClock(settings.clock.clone())))
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
    /// A copy for one connection whose ClientHello, with its type and length, the application has read. A handshake
    /// that begins with another ClientHello fails.
    pub fn expecting(mut self, hello: &[u8]) -> Self {
        self.crypto = Arc::new(self.crypto.expecting(hello));
        self.config.crypto = self.crypto.clone();
        self
    }

    /// The configuration for an endpoint that has this token context.
    pub(crate) fn config(&self, context: &TokenContext) -> Arc<quinn::ServerConfig> {
        let mut config = self.config.clone();
        self.tokens.enter(&mut config, context);
        Arc::new(config)
    }

    /// Returns this setup for an endpoint whose setup was `other`. A random token key of `other` is kept: otherwise a
    /// client that has just received a token in a Retry packet could not connect. Keys that the application has set are
    /// not copied.
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

/// The number of sessions in the default store. Each has about 300 bytes.
const SESSIONS_MAX: usize = 4_096;

/// The maximum number of bytes that quinn-proto stores for one new connection after its first packet: the rest of the
/// ClientHello and 0-RTT data. Further packets are dropped, and the client sends them again.
const FOLLOWERS_MAX: u64 = 64 << 10;
/// The bound on these bytes for all new connections together.
const FOLLOWERS_OF_ALL_MAX: u64 = 4 << 20;
