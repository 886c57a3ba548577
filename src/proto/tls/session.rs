//! The crypto session that the QUIC state machine drives (RFC 9001), over `rustls::quic`.
//!
//! Ours rather than quinn-proto's own adapter, because this is where what quinn-proto lacks gets
//! in: transport parameters pass through as bytes, keys are wrapped, versions are chosen. Not here:
//! the keys themselves (`keys`).

use std::{
    any::Any,
    collections::VecDeque,
    io::Cursor,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

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
    CipherSuite, SessionTicket, keys,
    reason::transport_error,
    resumption::TicketInbox,
    retry,
    tap::{Space, Tap},
    tickets::{self, Exporter, NewTicket},
};
use crate::qlog::{ConnectionIds, Recorder};

/// What the QUIC layer wants to know of a session. Handed out as the state machine's
/// `handshake_data`.
pub(crate) struct SessionDetails {
    pub tap: Arc<Tap>,
    /// Session tickets that a client got.
    pub tickets: Arc<TicketInbox>,
    /// The application protocol, once the server has chosen it.
    pub alpn: Option<Vec<u8>>,
    /// On a server, the name that the client asked for (RFC 6066 section 3).
    pub server_name: Option<String>,
    pub resumed: bool,
    /// The cipher suite's number (RFC 8446 section B.4), once negotiated.
    pub cipher_suite: Option<u16>,
    /// The peer's transport parameters as they came, once they have.
    pub peer_parameters: Option<Vec<u8>>,
}

/// Makes the sessions of clients.
pub(crate) struct ClientCrypto {
    config: Arc<rustls::ClientConfig>,
    is_recorded: bool,
}

impl ClientCrypto {
    pub fn new(config: Arc<rustls::ClientConfig>) -> Self {
        Self {
            config,
            is_recorded: false,
        }
    }

    /// Whether the packets of connections are recorded.
    pub fn recorded(self, is_recorded: bool) -> Self {
        Self {
            is_recorded,
            ..self
        }
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
        let encoded = encode(params);
        let recorder = self.is_recorded.then(Arc::default);
        let tap = new_tap(recorder, &encoded);
        let ids = ConnectionIds::from_parameters(&encoded);
        let connection = quic::ClientConnection::new(self.config.clone(), version, name, encoded)
            // Only a failing random number generator is left to fail here.
            .map_err(|_| ConnectError::EndpointStopping)?;
        let mut session = Session::new(connection.into(), version, tap);
        session.ids = Some(ids);
        session.asked_name = server_name.into();
        Ok(Box::new(session))
    }
}

/// Makes the sessions of servers.
pub(crate) struct ServerCrypto {
    config: Arc<rustls::ServerConfig>,
    is_recorded: bool,
    /// Who records the first packets of clients that have no session yet, by the destination of
    /// those packets; the newest [`FIRST_PACKETS_MAX`].
    first_packets: Mutex<VecDeque<(Vec<u8>, Arc<Recorder>)>>,
}

impl ServerCrypto {
    pub fn new(config: Arc<rustls::ServerConfig>) -> Self {
        Self {
            config,
            is_recorded: false,
            first_packets: Mutex::default(),
        }
    }

    /// Whether the packets of connections are recorded.
    pub fn recorded(self, is_recorded: bool) -> Self {
        Self {
            is_recorded,
            ..self
        }
    }

    /// The tap of the keys for a first packet, which comes before its session.
    fn first_tap(&self, dst_cid: &ConnectionId) -> Arc<Tap> {
        if !self.is_recorded {
            return Arc::default();
        }
        let recorder: Arc<Recorder> = Arc::default();
        let mut first = self
            .first_packets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if first.len() == FIRST_PACKETS_MAX {
            first.pop_front();
        }
        first.push_back((dst_cid.to_vec(), recorder.clone()));
        Arc::new(Tap::recorded(recorder))
    }

    /// The recorder of a session's first packet, or a new one.
    fn recorder(&self, ids: &ConnectionIds) -> Option<Arc<Recorder>> {
        if !self.is_recorded {
            return None;
        }
        let mut first = self
            .first_packets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // After a Retry the packet was sent to the address that the Retry named.
        let is_it =
            |id: &Vec<u8>| Some(id) == ids.original.as_ref() || Some(id) == ids.retry.as_ref();
        let at = first.iter().rposition(|(id, _)| is_it(id));
        let found = at.and_then(|at| first.remove(at));
        Some(found.map(|(_, recorder)| recorder).unwrap_or_default())
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
            &self.first_tap(dst_cid),
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
        let encoded = encode(params);
        let ids = ConnectionIds::from_parameters(&encoded);
        let tap = new_tap(self.recorder(&ids), &encoded);
        tap.set_ids(ids);
        let connection = quic::ServerConnection::new(self.config.clone(), version, encoded)
            .expect("the configuration was checked when it was built");
        Box::new(Session::new(connection.into(), version, tap))
    }
}

struct Session {
    inner: quic::Connection,
    version: Version,
    tap: Arc<Tap>,
    /// A client's, until it has chosen where its first packet goes.
    ids: Option<ConnectionIds>,
    /// On a client, the name that it connected to.
    asked_name: String,
    told_handshake_data: bool,
    next_secrets: Option<Secrets>,
    exporter: Exporter,
    tickets: Arc<TicketInbox>,
}

impl Session {
    fn new(inner: quic::Connection, version: Version, tap: Arc<Tap>) -> Self {
        Self {
            inner,
            version,
            tap,
            ids: None,
            asked_name: String::new(),
            told_handshake_data: false,
            next_secrets: None,
            exporter: Exporter::default(),
            tickets: Arc::default(),
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

    /// Reads what follows a client's handshake: tickets, and nothing else (RFC 9001 section 6).
    fn read_tickets(&mut self, buf: &[u8]) -> Result<(), rustls::Error> {
        let Self {
            exporter, inner, ..
        } = self;
        let (result, tickets) = exporter.read(buf, || inner.read_hs(buf));
        result?;
        let now = SystemTime::now();
        for ticket in tickets {
            if let Some(ticket) = self.completed(ticket, now) {
                self.tickets.push(ticket);
            }
        }
        Ok(())
    }

    fn completed(&self, ticket: NewTicket, issued: SystemTime) -> Option<SessionTicket> {
        let suite = self.inner.negotiated_cipher_suite()?.suite();
        let certificates = self.inner.peer_certificates().unwrap_or_default();
        Some(SessionTicket {
            server_name: self.asked_name.clone(),
            cipher_suite: CipherSuite::of(suite)?,
            ticket: ticket.ticket,
            secret: ticket.secret,
            age_add: ticket.age_add,
            issued,
            lifetime: ticket.lifetime,
            early_data: ticket.early_data,
            transport_params: self.inner.quic_transport_parameters()?.to_vec(),
            peer_certificates: known(certificates).map(|c| c.to_vec()).collect(),
        })
    }
}

/// The certificates but for what stands for none in an imported session.
fn known<'a>(
    certificates: &'a [CertificateDer<'a>],
) -> impl Iterator<Item = &'a CertificateDer<'a>> {
    certificates.iter().filter(|c| !tickets::is_unknown(c))
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        if let Some(ids) = &self.ids {
            // The first call counts: after a Retry there is another.
            self.tap.set_ids(ConnectionIds {
                original: Some(dst_cid.to_vec()),
                ..ids.clone()
            });
        }
        initial_keys(self.version, dst_cid, side, &self.tap)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(SessionDetails {
            tap: self.tap.clone(),
            alpn: self.inner.alpn_protocol().map(Into::into),
            server_name: self.server_name().map(Into::into),
            tickets: self.tickets.clone(),
            resumed: self.inner.handshake_kind() == Some(HandshakeKind::Resumed),
            cipher_suite: self
                .inner
                .negotiated_cipher_suite()
                .map(|suite| suite.suite().into()),
            peer_parameters: self.inner.quic_transport_parameters().map(Into::into),
        }))
    }

    /// A `Vec<CertificateDer<'static>>`, leaf first.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let certificates = self.inner.peer_certificates()?;
        let owned: Vec<CertificateDer<'static>> = known(certificates)
            .map(|c| c.clone().into_owned())
            .collect();
        match owned.is_empty() {
            true => None,
            false => Some(Box::new(owned)),
        }
    }

    fn early_crypto(&self) -> Option<(Box<dyn crypto::HeaderKey>, Box<dyn crypto::PacketKey>)> {
        // The state machine needs the limits that the ticket's server gave, and ends itself without.
        if self.side().is_client() && !matches!(self.transport_parameters(), Ok(Some(_))) {
            return None;
        }
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
        let is_after_handshake = self.side().is_client() && !self.inner.is_handshaking();
        let result = match is_after_handshake {
            true => self.read_tickets(buf),
            false => self.inner.read_hs(buf),
        };
        result.map_err(|e| transport_error(&e, self.inner.alert()))?;
        let first_time = !self.told_handshake_data && self.has_handshake_data();
        self.told_handshake_data |= first_time;
        Ok(first_time)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        match self.inner.quic_transport_parameters() {
            None => Ok(None),
            Some(bytes) => {
                if let Some(recorder) = self.tap.recorder() {
                    recorder.remote_parameters(bytes);
                }
                Ok(Some(TransportParameters::read(
                    self.side(),
                    &mut Cursor::new(bytes),
                )?))
            }
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
        let is_valid = retry::is_valid(orig_dst_cid, header, payload);
        if is_valid && let Some(recorder) = self.tap.recorder() {
            recorder.retry(header, payload.len());
        }
        is_valid
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

fn new_tap(recorder: Option<Arc<Recorder>>, parameters: &[u8]) -> Arc<Tap> {
    Arc::new(match recorder {
        Some(recorder) => {
            recorder.local_parameters(parameters);
            Tap::recorded(recorder)
        }
        None => Tap::default(),
    })
}

fn encode(params: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    bytes
}

/// First packets that are opened before it is clear whether they begin a connection.
const FIRST_PACKETS_MAX: usize = 16;
