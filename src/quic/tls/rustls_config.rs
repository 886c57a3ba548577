//! Builds rustls configurations and their cryptography providers from settings.
//!
//! Not here: roots, identities and certificate verification (`certificates`), and the handshake (`handshake`).

use std::sync::Arc;

use rustls::{
    ConfigBuilder, NamedGroup, ServerConfig, SupportedCipherSuite, WantsVerifier,
    client::danger::ServerCertVerifier,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{NoServerSessionStorage, WantsServerCert, WebPkiClientVerifier},
    version::TLS13,
};

use super::{
    ApplicationClock, CipherSuite, ClientAuth, ConfigError, Group, NamedIdentity, Roots,
    SessionStore, SessionTicket, WallClock,
    certificates::{
        ServerCertificates,
        configured_key_errors::{identity_error, non_empty},
        ed448::provider_with_ed448,
        roots::{LoadedRoots, load_roots},
        verifiers::{ClientVerifier, ServerVerifier},
    },
    handshake::{ClientCrypto, ServerCrypto},
    sessions::{ScopedSessions, client_session_store::Sessions},
};
use crate::workarounds::{hkdf_labels::with_labels, session_export};

/// A client's TLS settings, borrowed.
pub(crate) struct ClientTls<'a> {
    pub clock: &'a Arc<dyn WallClock>,
    pub alpn: &'a [Vec<u8>],
    pub roots: &'a Roots,
    pub verify: bool,
    pub check_hostname: bool,
    pub identity: Option<(&'a Vec<CertificateDer<'static>>, &'a PrivateKeyDer<'static>)>,
    pub cipher_suites: Option<&'a [CipherSuite]>,
    pub groups: Option<&'a [Group]>,
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    pub session_ticket: Option<&'a SessionTicket>,
    pub certificate_hashes: Option<&'a [[u8; 32]]>,
    /// QUIC versions, the preferred one first.
    pub versions: &'a [u32],
    /// The QUIC version of the first packets, if this crate does not implement it.
    pub first_version: Option<u32>,
}

/// A server's TLS settings, borrowed.
pub(crate) struct ServerTls<'a> {
    pub clock: &'a Arc<dyn WallClock>,
    pub alpn: &'a [Vec<u8>],
    pub identity: (&'a Vec<CertificateDer<'static>>, &'a PrivateKeyDer<'static>),
    /// Certificates for clients that request one of their names.
    pub named: &'a [NamedIdentity],
    pub client_auth: &'a ClientAuth,
    pub cipher_suites: Option<&'a [CipherSuite]>,
    pub groups: Option<&'a [Group]>,
    pub key_log: Option<Arc<dyn rustls::KeyLog>>,
    /// The store of TLS sessions. `None`: clients get no tickets.
    pub sessions: Option<Arc<dyn SessionStore>>,
    pub early_data: bool,
    /// The limits for 0-RTT data, as bytes. A server may accept 0-RTT data only if its limits are not lower than those
    /// of the server that issued the ticket (RFC 9000 section 7.4.1).
    pub limits: &'a [u8],
    /// QUIC versions, the preferred one first.
    pub versions: &'a [u32],
}

pub(crate) fn client_config(tls: &ClientTls<'_>) -> Result<ClientCrypto, ConfigError> {
    tls.session_ticket.map_or(Ok(()), SessionTicket::check)?;
    let mut provider = provider_with(tls.cipher_suites, tls.groups, |suite| {
        session_export::with_secret_hook(suite.in_provider())
    })?;
    if tls.groups.is_none() {
        remove_post_quantum_group(&mut provider);
    }
    let provider = Arc::new(provider);
    let verifier = match (tls.verify, tls.certificate_hashes) {
        (false, _) => ServerVerifier::accept_all(&provider),
        (true, Some(hashes)) => ServerVerifier::pinned(&provider, hashes.to_vec()),
        (true, None) => ServerVerifier::new(
            &provider,
            load_roots("roots", tls.roots)?,
            tls.check_hostname,
        )?,
    };
    let verifier: Arc<dyn ServerCertVerifier> = Arc::new(verifier);
    let clock = ApplicationClock(tls.clock.clone());
    let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| ConfigError::new("cipher_suites", e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone());
    let mut config = match tls.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(non_empty("client_cert", chain)?, key.clone_key())
            .map_err(|e| identity_error("client_cert", "client_cert", &e))?,
    };
    config.alpn_protocols = checked_alpn(tls.alpn)?;
    if let Some(key_log) = &tls.key_log {
        config.key_log = key_log.clone();
    }
    let credentials = config.client_auth_cert_resolver.clone();
    let imported = tls.session_ticket.cloned();
    let sessions = Sessions::new(imported, verifier, credentials, clock.clone());
    config.enable_early_data = tls.session_ticket.is_some_and(|ticket| ticket.early_data);
    let crypto = ClientCrypto::new(
        Arc::new(config),
        clock,
        tls.versions.to_vec(),
        tls.first_version,
    );
    Ok(crypto.resuming(sessions))
}

pub(crate) fn server_config(tls: &ServerTls<'_>) -> Result<ServerCrypto, ConfigError> {
    let provider = provider_with(tls.cipher_suites, tls.groups, CipherSuite::in_provider)?;
    let provider = Arc::new(provider);
    let clock = ApplicationClock(tls.clock.clone());
    let builder =
        rustls::ServerConfig::builder_with_details(provider.clone(), Arc::new(clock.clone()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| ConfigError::new("cipher_suites", e.to_string()))?;
    let builder = with_client_auth(builder, &provider, tls.client_auth)?;
    let (chain, key) = tls.identity;
    let certificates = ServerCertificates::new(&provider, (chain, key), tls.named)?;
    let mut config = builder.with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = checked_alpn(tls.alpn)?;
    // The server's order of cipher suites is used: AES-256 makes a handshake a fifth more expensive, because SHA-384
    // has no hardware support.
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    let sessions = tls.sessions.as_ref().map(|store| {
        let (kind, roots) = client_auth_requirements(tls.client_auth);
        ScopedSessions::new(store.clone(), &[kind, &roots, tls.limits])
    });
    if sessions.is_none() {
        config.send_tls13_tickets = 0;
    }
    if tls.early_data {
        if tls.sessions.is_none() {
            return Err(ConfigError::new("early_data", "needs a session store"));
        }
        // RFC 9001 section 4.6.1: in QUIC, flow control limits the amount of 0-RTT data instead.
        config.max_early_data_size = u32::MAX;
    }
    if let Some(key_log) = &tls.key_log {
        config.key_log = key_log.clone();
    }
    let crypto = ServerCrypto::new(Arc::new(config), clock, tls.versions.to_vec());
    Ok(crypto.keeping(sessions))
}

/// Adds the verification of client certificates.
pub(super) fn with_client_auth(
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    provider: &Arc<CryptoProvider>,
    client_auth: &ClientAuth,
) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, ConfigError> {
    let roots = match client_auth {
        ClientAuth::Off => return Ok(builder.with_no_client_auth()),
        ClientAuth::Optional(roots) | ClientAuth::Required(roots) => roots,
    };
    let LoadedRoots { store, given } = load_roots("client_auth", roots)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(store, provider.clone());
    let verifier = match client_auth {
        ClientAuth::Optional(_) => verifier.allow_unauthenticated(),
        _ => verifier,
    };
    let verifier = verifier
        .build()
        .map_err(|e| ConfigError::new("client_auth", e.to_string()))?;
    Ok(builder.with_client_cert_verifier(Arc::new(ClientVerifier::new(verifier, given))))
}

/// The requirements for client certificates, as bytes. Servers with different ones must not resume each other's
/// sessions.
pub(super) fn client_auth_requirements(client_auth: &ClientAuth) -> (&'static [u8], Vec<u8>) {
    let (kind, roots): (&[u8], _) = match client_auth {
        ClientAuth::Off => return (b"off", Vec::new()),
        ClientAuth::Optional(roots) => (b"optional", roots),
        ClientAuth::Required(roots) => (b"required", roots),
    };
    let name = match roots {
        Roots::Pem(pem) => pem.clone(),
        Roots::Store(store) => store.name(),
        Roots::None => Vec::new(),
    };
    (kind, name)
}

/// A provider with these cipher suites and groups, in this order. By default AES-128-GCM is first, unlike in rustls.
fn provider_with(
    suites: Option<&[CipherSuite]>,
    groups: Option<&[Group]>,
    make: fn(CipherSuite) -> SupportedCipherSuite,
) -> Result<CryptoProvider, ConfigError> {
    const DEFAULT: &[CipherSuite] = &[
        CipherSuite::Aes128GcmSha256,
        CipherSuite::Aes256GcmSha384,
        CipherSuite::ChaCha20Poly1305Sha256,
    ];
    let suites = suites.unwrap_or(DEFAULT);
    if suites.is_empty() {
        return Err(ConfigError::new("cipher_suites", "must not be empty"));
    }
    if groups.is_some_and(<[Group]>::is_empty) {
        return Err(ConfigError::new("groups", "must not be empty"));
    }
    let mut result = provider_with_ed448();
    result.cipher_suites = suites.iter().copied().map(make).map(with_labels).collect();
    if let Some(groups) = groups {
        result.kx_groups = groups.iter().map(|group| group.in_provider()).collect();
    }
    Ok(result)
}

/// Removes the post-quantum group from a client's defaults. rustls would offer it without a key share. A server that
/// prefers it, as those in Go do, would request the share, which costs a round trip on every connection and all 0-RTT
/// data (RFC 8446 section 4.2.10). With the share, a ClientHello does not fit in one datagram.
fn remove_post_quantum_group(provider: &mut CryptoProvider) {
    provider
        .kx_groups
        .retain(|group| group.name() != NamedGroup::X25519MLKEM768);
}

/// RFC 7301 section 3.1: names have 1 to 255 bytes.
pub(super) fn checked_alpn(names: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ConfigError> {
    match names
        .iter()
        .find(|name| name.is_empty() || name.len() > 255)
    {
        Some(name) => {
            let message = format!("a protocol name has {} bytes, must be 1 to 255", name.len());
            Err(ConfigError::new("alpn", message))
        }
        None => Ok(names.to_vec()),
    }
}
