//! The crypto session that the QUIC state machine drives (RFC 9001), over `rustls::quic`.
//!
//! Ours rather than quinn-proto's own adapter, because this is where what quinn-proto lacks gets
//! in: transport parameters pass through as bytes, keys are wrapped, versions are chosen. Not here:
//! the keys themselves (`keys`).

use std::{any::Any, io::Cursor, sync::Arc};

use quinn_proto::{
    ConnectError, ConnectionId, Side, TransportError,
    crypto::{self, ExportKeyingMaterialError, KeyPair, Keys, UnsupportedVersion},
    transport_parameters::TransportParameters,
};
use rustls::{
    HandshakeKind,
    crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
    pki_types::{CertificateDer, ServerName},
    quic::{self, KeyChange, Secrets, Suite, Version},
};

use super::{
    keys,
    reason::transport_error,
    retry,
    tap::{Space, Tap},
};

/// What the QUIC layer wants to know of a session. Handed out as the state machine's
/// `handshake_data`.
pub(crate) struct SessionDetails {
    pub tap: Arc<Tap>,
    /// The application protocol, once the server has chosen it.
    pub alpn: Option<Vec<u8>>,
    /// On a server, the name that the client asked for (RFC 6066 section 3).
    pub server_name: Option<String>,
    pub resumed: bool,
}

/// Makes the sessions of clients.
pub(crate) struct ClientCrypto {
    config: Arc<rustls::ClientConfig>,
}

impl ClientCrypto {
    pub fn new(config: Arc<rustls::ClientConfig>) -> Self {
        Self { config }
    }
}

impl crypto::ClientConfig for ClientCrypto {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let version = known_version(version)?;
        let name = ServerName::try_from(server_name)
            .map_err(|_| ConnectError::InvalidServerName(server_name.into()))?
            .to_owned();
        let connection =
            quic::ClientConnection::new(self.config.clone(), version, name, encode(params))
                // Only a failing random number generator is left to fail here.
                .map_err(|_| ConnectError::EndpointStopping)?;
        Ok(Box::new(Session::new(connection.into(), version)))
    }
}

/// Makes the sessions of servers.
pub(crate) struct ServerCrypto {
    config: Arc<rustls::ServerConfig>,
}

impl ServerCrypto {
    pub fn new(config: Arc<rustls::ServerConfig>) -> Self {
        Self { config }
    }
}

impl crypto::ServerConfig for ServerCrypto {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        let version = known_version(version)?;
        Ok(initial_keys(
            version,
            dst_cid,
            Side::Server,
            &Arc::default(),
        ))
    }

    fn retry_tag(&self, _version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry::tag(orig_dst_cid, &[packet])
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let version = known_version(version).expect("`initial_keys` refused other versions");
        let connection = quic::ServerConnection::new(self.config.clone(), version, encode(params))
            .expect("the configuration was checked when it was built");
        Box::new(Session::new(connection.into(), version))
    }
}

struct Session {
    inner: quic::Connection,
    version: Version,
    tap: Arc<Tap>,
    told_handshake_data: bool,
    next_secrets: Option<Secrets>,
}

impl Session {
    fn new(inner: quic::Connection, version: Version) -> Self {
        Self {
            inner,
            version,
            tap: Arc::default(),
            told_handshake_data: false,
            next_secrets: None,
        }
    }

    fn side(&self) -> Side {
        match self.inner {
            quic::Connection::Client(_) => Side::Client,
            quic::Connection::Server(_) => Side::Server,
        }
    }

    fn server_name(&self) -> Option<&str> {
        match &self.inner {
            quic::Connection::Client(_) => None,
            quic::Connection::Server(server) => server.server_name(),
        }
    }

    /// rustls does not say when the hello of the other side has been read.
    fn has_handshake_data(&self) -> bool {
        self.inner.alpn_protocol().is_some()
            || self.server_name().is_some()
            || !self.inner.is_handshaking()
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        initial_keys(self.version, dst_cid, side, &self.tap)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(SessionDetails {
            tap: self.tap.clone(),
            alpn: self.inner.alpn_protocol().map(Into::into),
            server_name: self.server_name().map(Into::into),
            resumed: self.inner.handshake_kind() == Some(HandshakeKind::Resumed),
        }))
    }

    /// A `Vec<CertificateDer<'static>>`, leaf first.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let certificates = self.inner.peer_certificates()?;
        let owned: Vec<CertificateDer<'static>> = certificates
            .iter()
            .map(|c| c.clone().into_owned())
            .collect();
        Some(Box::new(owned))
    }

    fn early_crypto(&self) -> Option<(Box<dyn crypto::HeaderKey>, Box<dyn crypto::PacketKey>)> {
        self.inner
            .zero_rtt_keys()
            .map(|early| keys::wrap_early(early, &self.tap))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        match &self.inner {
            quic::Connection::Client(client) => Some(client.is_early_data_accepted()),
            quic::Connection::Server(_) => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner
            .read_hs(buf)
            .map_err(|e| transport_error(&e, self.inner.alert()))?;
        let first_time = !self.told_handshake_data && self.has_handshake_data();
        self.told_handshake_data |= first_time;
        Ok(first_time)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        match self.inner.quic_transport_parameters() {
            None => Ok(None),
            Some(bytes) => Ok(Some(TransportParameters::read(
                self.side(),
                &mut Cursor::new(bytes),
            )?)),
        }
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let (keys, space) = match self.inner.write_hs(buf)? {
            KeyChange::Handshake { keys } => (keys, Space::Handshake),
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(next);
                (keys, Space::Data)
            }
        };
        Some(keys::wrap(keys, space, &self.tap))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn crypto::PacketKey>>> {
        let keys = self.next_secrets.as_mut()?.next_packet_keys();
        Some(keys::wrap_update(keys, &self.tap))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        retry::is_valid(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        match self
            .inner
            .export_keying_material(output, label, Some(context))
        {
            Ok(_) => Ok(()),
            Err(_) => Err(ExportKeyingMaterialError),
        }
    }
}

/// RFC 9001 section 5.2: Initial packets are always AES-128-GCM, whatever suites are configured.
fn initial_keys(version: Version, dst_cid: &ConnectionId, side: Side, tap: &Arc<Tap>) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    keys::wrap(
        initial_suite().keys(dst_cid, side, version),
        Space::Initial,
        tap,
    )
}

fn initial_suite() -> Suite {
    TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(|suite| suite.quic_suite())
        .expect("the provider's AES-128-GCM works with QUIC")
}

fn known_version(version: u32) -> Result<Version, UnsupportedVersion> {
    match version {
        1 => Ok(Version::V1),
        _ => Err(UnsupportedVersion),
    }
}

fn encode(params: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    bytes
}
