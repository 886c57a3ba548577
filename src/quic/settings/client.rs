//! A client's settings.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use quinn_proto as quinn;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{TransportSettings, versions};
use crate::{
    address_tokens::{self, ConnectionTokens, EarlierTokens},
    qlog::Recorder,
    tls::{self, CipherSuite, ConfigError, Group, Roots, SessionTicket, WallClock},
};

/// A client's settings, as plain data.
#[derive(Clone)]
pub struct ClientSettings {
    /// The clock for the validity of certificates and tickets.
    pub clock: Arc<dyn WallClock>,
    pub transport: TransportSettings,
    /// Application protocols (RFC 7301), the preferred one first.
    pub alpn: Vec<Vec<u8>>,
    pub roots: Roots,
    /// True to verify the server's certificate.
    pub verify: bool,
    /// True to require that the certificate is valid for the server's name. Used only with `verify`.
    pub check_hostname: bool,
    /// SHA-256 hashes of DER certificates. If set, exactly these certificates are accepted, for any name and from any
    /// issuer, while their dates are valid. Used only with `verify`.
    pub certificate_hashes: Option<Vec<[u8; 32]>>,
    pub client_cert: Option<(Vec<CertificateDer<'static>>, Arc<PrivateKeyDer<'static>>)>,
    /// The allowed cipher suites, the preferred one first. `None`: all, AES-128-GCM first.
    pub cipher_suites: Option<Vec<CipherSuite>>,
    /// The allowed key exchange groups, the preferred one first; a key share of that is sent. `None`: X25519, P-256 and
    /// P-384.
    pub groups: Option<Vec<Group>>,
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    /// The session to resume. Ignored if it belongs to another server or has expired. If it allows 0-RTT, data that is
    /// written before the handshake is complete is sent as 0-RTT data.
    pub session_ticket: Option<SessionTicket>,
    /// The token that proves the client's address to the server (RFC 9000 section 8.1.3). If it is empty, a token of an
    /// earlier connection with the same setup is used, if there is one.
    pub token: Bytes,
    /// The QUIC version that `token` is for. Only a connection that begins with this version sends the token (RFC 9369
    /// section 5). `None`: the token is sent with every version.
    pub token_version: Option<u32>,
    /// QUIC versions, the preferred one first. The server may choose one of them, and so may this client after a
    /// Version Negotiation packet. Versions that this crate does not implement are offered and never used.
    pub supported_versions: Vec<u32>,
    /// The QUIC version of the first packets. `None`: the first of `supported_versions`. A version that the server does
    /// not support provokes a Version Negotiation packet.
    pub original_version: Option<u32>,
}

impl ClientSettings {
    /// The default settings, which trust no certificate authority.
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
            groups: None,
            key_log: None,
            session_ticket: None,
            token: Bytes::new(),
            token_version: None,
            supported_versions: versions::DEFAULT_VERSIONS.to_vec(),
            original_version: None,
        }
    }
}

/// A client's settings, checked and built. Cheap to clone. Connections that are made with clones share session
/// tickets.
#[derive(Clone)]
pub struct ClientSetup {
    pub(crate) config: quinn::ClientConfig,
    crypto: Arc<tls::ClientCrypto>,
    quinn_transport: Arc<quinn::TransportConfig>,
    pub(crate) transport: Arc<TransportSettings>,
    token: (Bytes, Option<u32>),
    earlier_tokens: Arc<EarlierTokens>,
    version: u32,
}

impl ClientSetup {
    pub fn new(settings: &ClientSettings) -> Result<Self, ConfigError> {
        if settings.token.len() > address_tokens::TOKEN_BYTES_MAX {
            let message = format!(
                "must have at most {} bytes",
                address_tokens::TOKEN_BYTES_MAX
            );
            return Err(ConfigError::new("token", message));
        }
        let (version, first_version) =
            versions::first_version(&settings.supported_versions, settings.original_version)?;
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
            groups: settings.groups.as_deref(),
            key_log: settings.key_log.clone(),
            session_ticket: settings.session_ticket.as_ref(),
            certificate_hashes: settings.certificate_hashes.as_deref(),
            versions: &settings.supported_versions,
            first_version,
        })?
        .with_packet_options(settings.transport.packet_options());
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

    pub(crate) fn connection_tokens(&self) -> ConnectionTokens {
        let earlier = self.earlier_tokens.clone();
        ConnectionTokens::new(self.token.clone(), earlier, self.version)
    }

    /// The configuration of a connection that restarts with `version` after a Version Negotiation packet.
    pub(crate) fn after_version_negotiation(
        &self,
        version: u32,
        packet_log: Option<Arc<Recorder>>,
    ) -> quinn::ClientConfig {
        let crypto = Arc::new(self.crypto.after_version_negotiation(packet_log));
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
