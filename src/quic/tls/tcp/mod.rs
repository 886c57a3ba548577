//! A server's TLS 1.2 and 1.3 over TCP (RFC 5246, RFC 8446), as a state machine: records go in and come out.
//!
//! - `server_session`: one connection.
//! - `stateless_tickets`: tickets for resumption, which contain the session.
//!
//! Certificates, the verification of clients and the cryptography provider are those of QUIC. Not here: sockets, the
//! time limits of a handshake and of a closing connection.

mod server_session;
mod stateless_tickets;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustls::{
    SupportedCipherSuite,
    crypto::CryptoProvider,
    server::NoServerSessionStorage,
    version::{TLS12, TLS13},
};

use super::{
    ApplicationClock, ClientAuth, ConfigError, Identity, NamedIdentity, WallClock,
    certificates::{ServerCertificates, ed448::provider_with_ed448},
    rustls_config::{checked_alpn, client_auth_requirements, with_client_auth},
};
use stateless_tickets::StatelessTickets;

pub use server_session::{Failure, Negotiated, ServerSession};

/// The settings of a server.
#[derive(Debug)]
pub struct TcpServerSettings {
    pub clock: Arc<dyn WallClock>,
    /// The application protocols, the preferred one first (RFC 7301). A client that offers only others gets the alert
    /// no_application_protocol, and a client without ALPN is accepted.
    pub alpn: Vec<Vec<u8>>,
    pub identity: Identity,
    /// Certificates for clients that request one of their names.
    pub named: Vec<NamedIdentity>,
    pub client_auth: ClientAuth,
    /// Secrets of at least 32 bytes each. The first one seals tickets, and all of them open tickets. Without secrets, a
    /// random one is made. QUIC's address tokens may be sealed with the same secrets.
    pub ticket_keys: Vec<Vec<u8>>,
}

/// The checked settings of a server, from which connections are made.
#[derive(Debug, Clone)]
pub struct TcpServerSetup {
    config: Arc<rustls::ServerConfig>,
    /// Clients are asked for a certificate.
    has_client_auth: bool,
}

impl TcpServerSetup {
    pub fn new(settings: &TcpServerSettings) -> Result<Self, ConfigError> {
        Self::with_provider(settings, provider_with_ed448())
    }

    fn with_provider(
        settings: &TcpServerSettings,
        mut provider: CryptoProvider,
    ) -> Result<Self, ConfigError> {
        // AES-128-GCM comes first, as over QUIC.
        provider.cipher_suites.sort_by_key(|suite| order(*suite));
        let provider = Arc::new(provider);
        let clock = ApplicationClock(settings.clock.clone());
        let builder = rustls::ServerConfig::builder_with_details(provider.clone(), Arc::new(clock))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| ConfigError::new("cipher_suites", error.to_string()))?;
        let builder = with_client_auth(builder, &provider, &settings.client_auth)?;
        let Identity { cert_chain, key } = &settings.identity;
        let certificates = ServerCertificates::new(&provider, (cert_chain, key), &settings.named)?;
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = checked_alpn(&settings.alpn)?;
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let (kind, roots) = client_auth_requirements(&settings.client_auth);
        config.ticketer = Arc::new(StatelessTickets::new(
            &settings.ticket_keys,
            settings.clock.clone(),
            &[kind, &roots],
        )?);
        Ok(Self {
            config: Arc::new(config),
            has_client_auth: !matches!(settings.client_auth, ClientAuth::Off),
        })
    }
}

/// The place of a cipher suite in the server's order of preference.
fn order(suite: SupportedCipherSuite) -> (bool, u8) {
    let name = format!("{:?}", suite.suite());
    let cipher = match () {
        () if name.contains("AES_128") => 0,
        () if name.contains("AES_256") => 1,
        () => 2,
    };
    (suite.tls13().is_none(), cipher)
}
