//! Plain settings of connections and endpoints, checked and built once into shared configurations.
//!
//! Not here: the TLS half of the work (`tls::config`).

use std::{
    fmt,
    net::{SocketAddrV4, SocketAddrV6},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use quinn_proto as quinn;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{
    AcceptRate, Worker,
    admission::{
        lobby::{FOLLOWERS_MAX, FOLLOWERS_OF_ALL_MAX},
        tokens::{self, ConnectionTokens, EarlierTokens, ServerTokens},
    },
    connection::{
        congestion::{self, Congestion},
        datagrams,
    },
    endpoint::negotiation,
};
use crate::qlog::Recorder;
use crate::seams::token_context::TokenContext;
use crate::tls::{
    self, CipherSuite, ClientAuth, ConfigError, HostClock, Identity, MemorySessions, NamedIdentity,
    Roots, SessionStore, SessionTicket, WallClock,
};

/// What the peer is asked for by draft-ietf-quic-ack-frequency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFrequency {
    /// How many packets that ask for an ACK may come without one; 0 asks for one at once.
    pub packets: u64,
    /// How long an ACK may wait; `None`: as long as the peer said it would.
    pub max_delay: Option<Duration>,
    /// After how many packets out of order an ACK is wanted at once; 0: never for that.
    pub reordering: u64,
}

/// Limits and timings of a connection. Bytes and [`Duration`]s.
#[derive(Debug, Clone)]
pub struct TransportSettings {
    /// How long nothing may be heard before the connection is given up; zero switches it off.
    pub idle_timeout: Duration,
    /// What the peer may have outstanding on all streams together, and on one.
    pub max_data: u64,
    pub max_stream_data: u64,
    /// How many streams the peer may have open at a time.
    pub max_streams_bidi: u64,
    pub max_streams_uni: u64,
    /// What may be sent and not yet acknowledged, at most. Less is used while the congestion window
    /// is small.
    pub send_window: u64,
    /// The UDP payload size that sending starts with.
    pub max_datagram_size: u16,
    /// Whether larger sizes are probed (RFC 8899).
    pub mtu_discovery: bool,
    pub initial_rtt: Duration,
    pub congestion: Congestion,
    /// How many bytes of received DATAGRAM frames wait for the host, the oldest dropped first;
    /// `None` refuses them altogether (RFC 9221 section 3).
    pub datagram_recv_bytes: Option<usize>,
    /// How many bytes of DATAGRAM frames may wait to be sent.
    pub datagram_send_bytes: usize,
    /// How often an idle connection pings its peer.
    pub keep_alive: Option<Duration>,
    /// Whether a client moves to the address that its server prefers (RFC 9000 section 9.6).
    pub use_preferred_address: bool,
    /// The addresses that a server prefers its clients to use after the handshake. The endpoint
    /// must receive there.
    pub preferred_v4: Option<SocketAddrV4>,
    pub preferred_v6: Option<SocketAddrV6>,
    /// How the peer is asked to acknowledge, where it can be asked.
    pub ack_frequency: Option<AckFrequency>,
    /// After how many packets the keys are changed (RFC 9001 section 6); `None`: near the limit of
    /// the cipher.
    pub key_update_packets: Option<u64>,
    /// Whether packets are recorded for a qlog trace: `Connection::packet_log`.
    pub packet_log: bool,
}

impl Default for TransportSettings {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(60),
            max_data: 1 << 20,
            max_stream_data: 1 << 20,
            max_streams_bidi: 128,
            max_streams_uni: 128,
            send_window: 8 << 20,
            max_datagram_size: 1_200,
            mtu_discovery: true,
            initial_rtt: Duration::from_millis(100),
            congestion: Congestion::Cubic,
            datagram_recv_bytes: None,
            datagram_send_bytes: 1 << 20,
            keep_alive: None,
            use_preferred_address: true,
            preferred_v4: None,
            preferred_v6: None,
            ack_frequency: None,
            key_update_packets: None,
            packet_log: false,
        }
    }
}

impl TransportSettings {
    /// The limits that clients remember for 0-RTT data (RFC 9000 section 7.4.1), as bytes.
    fn limits(&self) -> Vec<u8> {
        let datagrams = self.datagram_recv_bytes.map_or(0, |bytes| bytes as u64);
        [
            self.max_data,
            self.max_stream_data,
            self.max_streams_bidi,
            self.max_streams_uni,
            datagrams,
        ]
        .iter()
        .flat_map(|limit| limit.to_be_bytes())
        .collect()
    }

    pub(super) fn build(&self) -> Result<quinn::TransportConfig, ConfigError> {
        let mut config = quinn::TransportConfig::default();
        config
            .max_idle_timeout(idle_timeout(self.idle_timeout)?)
            .receive_window(varint("max_data", self.max_data)?)
            .stream_receive_window(varint("max_stream_data", self.max_stream_data)?)
            .max_concurrent_bidi_streams(stream_count("max_streams_bidi", self.max_streams_bidi)?)
            .max_concurrent_uni_streams(stream_count("max_streams_uni", self.max_streams_uni)?)
            .send_window(self.send_window)
            .initial_rtt(nonzero("initial_rtt", self.initial_rtt)?)
            .initial_mtu(self.udp_payload_size()?)
            .keep_alive_interval(self.keep_alive)
            .datagram_receive_buffer_size(self.datagram_recv_bytes)
            .datagram_send_buffer_size(datagrams::SEND_BUFFER);
        if self.send_window == 0 {
            return Err(ConfigError::new("send_window", "must not be zero"));
        }
        if let Some(wanted) = &self.ack_frequency {
            let mut frequency = quinn::AckFrequencyConfig::default();
            frequency
                .ack_eliciting_threshold(varint("ack_packets_max", wanted.packets)?)
                .max_ack_delay(wanted.max_delay)
                .reordering_threshold(varint("ack_reordering", wanted.reordering)?);
            config.ack_frequency_config(Some(frequency));
        }
        if self.key_update_packets == Some(0) {
            return Err(ConfigError::new("key_update_packets", "must not be zero"));
        }
        if !self.mtu_discovery {
            config.mtu_discovery_config(None);
        }
        config.congestion_controller_factory(self.congestion_factory());
        Ok(config)
    }

    /// RFC 9000 section 14: a path must carry 1,200 bytes. The state machine asserts on long-header
    /// packets of 16 KiB, and the first flight is made of those.
    fn udp_payload_size(&self) -> Result<u16, ConfigError> {
        match self.max_datagram_size {
            1_200..=16_000 => Ok(self.max_datagram_size),
            size => {
                let message = format!("must be from 1200 to 16000 bytes, not {size}");
                Err(ConfigError::new("max_datagram_size", message))
            }
        }
    }

    /// RFC 9002 section 7.2: ten datagrams, at most 14,720 bytes, and never less than two
    /// datagrams: a window below one datagram would never send anything.
    fn congestion_factory(&self) -> Arc<dyn quinn::congestion::ControllerFactory + Send + Sync> {
        let size = u64::from(self.max_datagram_size);
        let window = (10 * size).min(14_720.max(2 * size));
        congestion::factory(self.congestion, window)
    }
}

/// What a client needs to know before it connects.
#[derive(Clone)]
pub struct ClientSettings {
    /// The time of day, by which certificates and tickets are judged.
    pub clock: Arc<dyn WallClock>,
    pub transport: TransportSettings,
    /// Application protocols in order of preference (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    pub roots: Roots,
    /// Whether the server's certificate is verified at all.
    pub verify: bool,
    /// Whether the certificate must be for the name connected to. Only asked when `verify` is on.
    pub check_hostname: bool,
    /// SHA-256 hashes of the DER certificates that the server may have: one of them is accepted for
    /// any name and from any issuer while its dates are right, and no other is. Only asked when
    /// `verify` is on.
    pub certificate_hashes: Option<Vec<[u8; 32]>>,
    pub client_cert: Option<(Vec<CertificateDer<'static>>, Arc<PrivateKeyDer<'static>>)>,
    /// Only these, in this order. `None`: all, AES-128-GCM first.
    pub cipher_suites: Option<Vec<CipherSuite>>,
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    /// The session to resume, if it is one of the server connected to and its time is not over. With
    /// one that allows it, what is sent before the handshake is complete goes out as 0-RTT data.
    pub session_ticket: Option<SessionTicket>,
    /// The token that proves the client's address to the server (RFC 9000 section 8.1.3). Empty:
    /// one of an earlier connection with the same setup, if there was any.
    pub token: Bytes,
    /// The version that `token` is for: only a connection that begins with it shows the token (RFC
    /// 9369 section 5). `None`: the host answers for it.
    pub token_version: Option<u32>,
    /// QUIC versions in order of preference: what the server may choose from, and what is tried
    /// when it asks for another version. Unknown ones are offered and never chosen.
    pub supported_versions: Vec<u32>,
    /// The version of the first packets; `None`: the first of `supported_versions`. One that is
    /// unknown asks the server for a Version Negotiation packet.
    pub original_version: Option<u32>,
}

impl ClientSettings {
    /// A client that trusts nobody yet.
    pub fn new(clock: Arc<dyn WallClock>) -> Self {
        Self {
            clock,
            transport: TransportSettings::default(),
            alpn: Vec::new(),
            roots: Roots::None,
            verify: true,
            check_hostname: true,
            certificate_hashes: None,
            client_cert: None,
            cipher_suites: None,
            key_log: None,
            session_ticket: None,
            token: Bytes::new(),
            token_version: None,
            supported_versions: negotiation::DEFAULT_VERSIONS.to_vec(),
            original_version: None,
        }
    }
}

/// What a server needs to know before it accepts.
#[derive(Clone)]
pub struct ServerSettings {
    /// The time of day, by which certificates, tickets and tokens are judged.
    pub clock: Arc<dyn WallClock>,
    pub transport: TransportSettings,
    /// Application protocols in order of preference (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    pub cert_chain: Vec<CertificateDer<'static>>,
    pub key: Arc<PrivateKeyDer<'static>>,
    /// Shown instead of that to clients that ask for one of their names.
    pub named: Vec<NamedIdentity>,
    pub client_auth: ClientAuth,
    /// Only these, in this order. `None`: all, AES-128-GCM first.
    pub cipher_suites: Option<Vec<CipherSuite>>,
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    pub retry: Retry,
    /// Where sessions are kept for resumption. `None`: clients get no tickets.
    pub sessions: Option<Arc<dyn SessionStore>>,
    /// Whether the host is asked for sessions before a handshake that may resume one begins, because
    /// `sessions` holds only what the host puts there.
    pub asks_for_sessions: bool,
    /// Whether the host is asked as well whether address validation tokens were used before, at servers
    /// that it knows of. A server by itself knows of its own.
    pub asks_for_tokens: bool,
    /// Whether 0-RTT data is read. Each ticket is good for it once, as long as the store gives each
    /// session out once; what the application does with it should be harmless when repeated all the
    /// same (RFC 9001 section 9.2).
    pub early_data: bool,
    /// QUIC versions to speak. Of those the client's preference decides (RFC 9368 section 2.3).
    pub supported_versions: Vec<u32>,
    /// The keys of address validation tokens (RFC 9000 section 8.1.4): the first one seals, all of
    /// them open. None makes a random one. Servers that share a port share them.
    pub token_keys: Vec<Vec<u8>>,
}

/// When clients must prove their address by a Retry first (RFC 9000 section 8.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    Always,
    Never,
    /// When `retry_incoming` handshakes are under way, or half of what an address or the accept rate
    /// allows is used up.
    #[default]
    Auto,
}

impl From<bool> for Retry {
    /// Always or never.
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
            key_log: None,
            retry: Retry::Auto,
            sessions: Some(Arc::new(MemorySessions::new(SESSIONS_MAX))),
            asks_for_sessions: false,
            asks_for_tokens: false,
            early_data: false,
            supported_versions: negotiation::DEFAULT_VERSIONS.to_vec(),
            token_keys: Vec::new(),
        }
    }
}

/// A client's settings, checked and built. Cheap to clone; connections made with clones share
/// resumption tickets.
#[derive(Clone)]
pub struct ClientSetup {
    pub(super) config: quinn::ClientConfig,
    crypto: Arc<tls::ClientCrypto>,
    quinn_transport: Arc<quinn::TransportConfig>,
    pub(super) transport: Arc<TransportSettings>,
    token: (Bytes, Option<u32>),
    earlier_tokens: Arc<EarlierTokens>,
    version: u32,
}

impl ClientSetup {
    pub fn new(settings: &ClientSettings) -> Result<Self, ConfigError> {
        if settings.token.len() > tokens::TOKEN_BYTES_MAX {
            let message = format!("must have at most {} bytes", tokens::TOKEN_BYTES_MAX);
            return Err(ConfigError::new("token", message));
        }
        let (version, first_version) =
            negotiation::first_version(&settings.supported_versions, settings.original_version)?;
        let crypto = tls::client_config(&tls::ClientTls {
            clock: &settings.clock,
            alpn: &settings.alpn,
            roots: &settings.roots,
            verify: settings.verify,
            check_hostname: settings.check_hostname,
            identity: settings
                .client_cert
                .as_ref()
                .map(|(chain, key)| (chain, &**key)),
            cipher_suites: settings.cipher_suites.as_deref(),
            key_log: settings.key_log.clone(),
            session_ticket: settings.session_ticket.as_ref(),
            certificate_hashes: settings.certificate_hashes.as_deref(),
            versions: &settings.supported_versions,
            first_version,
        })?
        .recorded(settings.transport.packet_log);
        let crypto = Arc::new(crypto);
        let quinn_transport = Arc::new(settings.transport.build()?);
        Ok(Self {
            config: client_config(crypto.clone(), &quinn_transport, version),
            crypto,
            quinn_transport,
            transport: Arc::new(settings.transport.clone()),
            token: (settings.token.clone(), settings.token_version),
            earlier_tokens: Arc::default(),
            version,
        })
    }

    pub(super) fn connection_tokens(&self) -> ConnectionTokens {
        let earlier = self.earlier_tokens.clone();
        ConnectionTokens::new(self.token.clone(), earlier, self.version)
    }

    /// The configuration after a Version Negotiation packet that led to `version`.
    pub(super) fn told(
        &self,
        version: u32,
        packet_log: Option<Arc<Recorder>>,
    ) -> quinn::ClientConfig {
        let crypto = Arc::new(self.crypto.told(packet_log));
        client_config(crypto, &self.quinn_transport, version)
    }
}

fn client_config(
    crypto: Arc<tls::ClientCrypto>,
    transport: &Arc<quinn::TransportConfig>,
    version: u32,
) -> quinn::ClientConfig {
    let mut config = quinn::ClientConfig::new(crypto);
    config.version(version).transport_config(transport.clone());
    config
}

impl fmt::Debug for ClientSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSetup")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// A server's settings, checked and built. Cheap to clone.
#[derive(Clone)]
pub struct ServerSetup {
    /// But for tokens, which are an endpoint's.
    config: quinn::ServerConfig,
    tokens: ServerTokens,
    pub(super) transport: Arc<TransportSettings>,
    pub(super) retry: Retry,
    pub(super) asks_for_sessions: bool,
    pub(super) asks_for_tokens: bool,
    pub(super) versions: Vec<u32>,
}

impl ServerSetup {
    pub fn new(settings: &ServerSettings) -> Result<Self, ConfigError> {
        let versions = negotiation::known_versions(&settings.supported_versions)?;
        let crypto = tls::server_config(&tls::ServerTls {
            clock: &settings.clock,
            alpn: &settings.alpn,
            identity: (&settings.cert_chain, &settings.key),
            named: &settings.named,
            client_auth: &settings.client_auth,
            cipher_suites: settings.cipher_suites.as_deref(),
            key_log: settings.key_log.clone(),
            sessions: settings.sessions.clone(),
            early_data: settings.early_data,
            limits: &settings.transport.limits(),
            versions: &settings.supported_versions,
        })?
        .recorded(settings.transport.packet_log);
        let tokens = ServerTokens::new(&settings.token_keys)?;
        let mut config = quinn::ServerConfig::new(Arc::new(crypto), tokens.key.clone());
        config
            .time_source(Arc::new(HostClock(settings.clock.clone())))
            .transport_config(Arc::new(settings.transport.build()?))
            .preferred_address_v4(settings.transport.preferred_v4)
            .preferred_address_v6(settings.transport.preferred_v6)
            .incoming_buffer_size(FOLLOWERS_MAX)
            .incoming_buffer_size_total(FOLLOWERS_OF_ALL_MAX);
        Ok(Self {
            config,
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
    /// For an endpoint with this context.
    pub(super) fn config(&self, context: &TokenContext) -> Arc<quinn::ServerConfig> {
        let mut config = self.config.clone();
        self.tokens.enter(&mut config, context);
        Arc::new(config)
    }

    /// The same in the place of `other`, whose tokens stay good: a client that has just been given
    /// one by a Retry packet would else never be let in. Keys that the host gave are its own to keep.
    pub(super) fn in_place_of(self, other: &Self) -> Self {
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

/// Limits of an endpoint, whatever its connections are configured to.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// Length of the connection IDs that we issue, 0 to 20 bytes. With 0, packets are told apart by
    /// address.
    pub connection_id_length: usize,
    /// Connections at a time, clients' and servers' together. A server refuses more with
    /// CONNECTION_REFUSED, `connect` raises
    /// [`ConnectError::TooManyConnections`](super::ConnectError::TooManyConnections).
    pub max_connections: usize,
    /// Connections at a time that a server has from one IPv4 address or one IPv6 /64. More are
    /// refused; with [`Retry::Auto`], the upper half must prove the address.
    pub max_connections_per_address: Option<usize>,
    /// Connections that a server accepts in a second. First packets beyond that are dropped, and an
    /// honest client repeats them; with [`Retry::Auto`], the second half of a burst must prove the
    /// address.
    pub accept_rate: Option<AcceptRate>,
    /// Incoming handshakes under way at a time. More are refused.
    pub max_incoming: usize,
    /// Incoming handshakes under way from which on [`Retry::Auto`] has clients prove their address.
    pub retry_incoming: usize,
    /// How long an incoming handshake may take before its state is dropped.
    pub handshake_timeout: Duration,
    /// The largest UDP payload that we take (RFC 9000 section 18.2), 1,200 to 65,527.
    pub max_udp_payload_size: u16,
    /// Whether the socket forbids fragmentation, without which path MTU discovery would lie.
    pub dont_fragment: bool,
    /// The key of stateless reset tokens; `None` makes a random one. Endpoints that share a port
    /// share it.
    pub reset_key: Option<[u8; 32]>,
    /// Which of several workers on the port this is; its connection IDs say so.
    pub worker: Option<Worker>,
    /// The first connection ID that is issued, where the host had to name it beforehand. Of
    /// `connection_id_length` bytes.
    pub first_connection_id: Option<Vec<u8>>,
    /// Makes the endpoint's random choices repeatable, for tests.
    pub rng_seed: Option<[u8; 32]>,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            connection_id_length: 8,
            max_connections: 65_536,
            max_connections_per_address: None,
            accept_rate: None,
            max_incoming: 4_096,
            retry_incoming: 2_048,
            handshake_timeout: Duration::from_secs(10),
            max_udp_payload_size: 1_472,
            dont_fragment: true,
            reset_key: None,
            worker: None,
            first_connection_id: None,
            rng_seed: None,
        }
    }
}

impl EndpointSettings {
    /// Checks the ranges that [`Endpoint::new`](super::Endpoint::new) relies on.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.connection_id_length > 20 {
            let message = format!("must be from 0 to 20, not {}", self.connection_id_length);
            return Err(ConfigError::new("connection_id_length", message));
        }
        if !(1_200..=65_527).contains(&self.max_udp_payload_size) {
            let message = format!(
                "must be from 1200 to 65527, not {}",
                self.max_udp_payload_size
            );
            return Err(ConfigError::new("max_udp_payload_size", message));
        }
        if let Some(id) = &self.first_connection_id
            && id.len() != self.connection_id_length
        {
            let message = "must have as many bytes as connection_id_length says";
            return Err(ConfigError::new("first_connection_id", message));
        }
        if self.max_connections == 0 {
            return Err(ConfigError::new("max_connections", "must not be zero"));
        }
        if let Some(worker) = self.worker
            && (worker.index >= worker.count || self.connection_id_length == 0)
        {
            let message = "must be one of the count, and needs connection IDs";
            return Err(ConfigError::new("worker", message));
        }
        match self.accept_rate {
            Some(rate)
                if !(rate.per_second > 0.0 && rate.per_second.is_finite()) || rate.burst == 0 =>
            {
                Err(ConfigError::new(
                    "accept_rate",
                    "must be positive, and so must be the burst",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn varint(field: &'static str, value: u64) -> Result<quinn::VarInt, ConfigError> {
    quinn::VarInt::from_u64(value).map_err(|_| ConfigError::new(field, "must be below 2^62"))
}

/// The state machine keeps a map entry for every stream that the peer may open.
fn stream_count(field: &'static str, value: u64) -> Result<quinn::VarInt, ConfigError> {
    match value {
        0..=1_000_000 => varint(field, value),
        _ => Err(ConfigError::new(
            field,
            format!("must be at most 1000000, not {value}"),
        )),
    }
}

fn nonzero(field: &'static str, value: Duration) -> Result<Duration, ConfigError> {
    match value.is_zero() {
        true => Err(ConfigError::new(field, "must not be zero")),
        false => Ok(value),
    }
}

fn idle_timeout(value: Duration) -> Result<Option<quinn::IdleTimeout>, ConfigError> {
    match value.is_zero() {
        true => Ok(None),
        false => value
            .try_into()
            .map(Some)
            .map_err(|_| ConfigError::new("idle_timeout", "must be below 2^62 milliseconds")),
    }
}

/// Some 300 bytes each.
const SESSIONS_MAX: usize = 4_096;
