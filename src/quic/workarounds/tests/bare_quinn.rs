//! Bare quinn-proto for tests: two endpoints with quinn-proto's own TLS adapter and no code of this crate in between.
//! Their packet keys record packets, and edit them if a test wants that.

use std::{
    any::Any,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::BytesMut;
use quinn_proto::{
    self as quinn, ConnectionHandle, ConnectionId, DatagramEvent, EcnCodepoint, Side,
    TransportError,
    crypto::{
        self, AeadKey, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey,
        KeyPair, Keys, PacketKey, UnsupportedVersion,
        rustls::{QuicClientConfig, QuicServerConfig},
    },
    transport_parameters::TransportParameters,
};
use rcgen::{CertificateParams, KeyPair as CertificateKey};
use rustls::{
    crypto::aws_lc_rs as provider,
    pki_types::{CertificateDer, PrivateKeyDer},
};

use super::fresh_connection_id;

/// A packet in plain text, without header protection.
#[derive(Debug, Clone)]
pub struct Packet {
    pub number: u64,
    pub header: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Packet {
    pub fn is_long(&self) -> bool {
        self.header[0] & 0x80 != 0
    }
}

type EditHeader = fn(&mut [u8]);
/// A function that edits a payload. Its arguments are the header and the payload.
type Edit = Box<dyn Fn(&[u8], &mut [u8]) + Send>;
type EditOpened = Box<dyn Fn(&[u8], &mut BytesMut) + Send>;

/// Records the packets of one endpoint, and edits them.
#[derive(Default)]
pub struct Spy {
    pub sealed: Mutex<Vec<Packet>>,
    pub opened: Mutex<Vec<Packet>>,
    /// The headers of packets that the endpoint has tried to open.
    pub tried: Mutex<Vec<Vec<u8>>>,
    /// "seal" and "mask" in the order in which they happened.
    pub steps: Mutex<Vec<&'static str>>,
    /// Edits the header before the packet is sealed.
    pub on_header: Mutex<Option<EditHeader>>,
    /// Functions that edit a packet's payload: before it is sealed, and after it was opened.
    pub on_seal: Mutex<Option<Edit>>,
    pub on_open: Mutex<Option<EditOpened>>,
    /// Hides the peer's transport parameters from quinn-proto.
    pub hides_parameters: AtomicBool,
    /// How often the keys of a next phase were requested.
    pub phases: AtomicU64,
    /// How often keys of a later phase were used.
    pub touches_of_later: AtomicU64,
}

impl Spy {
    pub fn last_sealed(&self) -> Packet {
        self.sealed.lock().unwrap().last().unwrap().clone()
    }
}

struct SpiedPacketKey(Box<dyn PacketKey>, Arc<Spy>);

impl PacketKey for SpiedPacketKey {
    fn encrypt(&self, number: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len() - self.0.tag_len();
        let (header, rest) = buf.split_at_mut(header_len);
        let payload = &mut rest[..end - header_len];
        self.1.sealed.lock().unwrap().push(Packet {
            number,
            header: header.to_vec(),
            payload: payload.to_vec(),
        });
        self.1.steps.lock().unwrap().push("seal");
        if let Some(edit) = &*self.1.on_header.lock().unwrap() {
            edit(header);
        }
        if let Some(edit) = &*self.1.on_seal.lock().unwrap() {
            edit(header, payload);
        }
        self.0.encrypt(number, buf, header_len);
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.1.tried.lock().unwrap().push(header.to_vec());
        self.0.decrypt(number, header, payload)?;
        self.1.opened.lock().unwrap().push(Packet {
            number,
            header: header.to_vec(),
            payload: payload.to_vec(),
        });
        if let Some(edit) = &*self.1.on_open.lock().unwrap() {
            edit(header, payload);
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// A packet key of a later phase, which counts its uses.
struct LaterKey(Box<dyn PacketKey>, Arc<Spy>);

impl LaterKey {
    fn touched(&self) -> &dyn PacketKey {
        self.1.touches_of_later.fetch_add(1, Ordering::Relaxed);
        &*self.0
    }
}

impl PacketKey for LaterKey {
    fn encrypt(&self, number: u64, buf: &mut [u8], header_len: usize) {
        self.touched().encrypt(number, buf, header_len);
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.touched().decrypt(number, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.touched().tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.touched().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.touched().integrity_limit()
    }
}

struct SpiedHeaderKey(Box<dyn HeaderKey>, Arc<Spy>);

impl HeaderKey for SpiedHeaderKey {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.0.decrypt(pn_offset, packet);
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.1.steps.lock().unwrap().push("mask");
        self.0.encrypt(pn_offset, packet);
    }

    fn sample_size(&self) -> usize {
        self.0.sample_size()
    }
}

fn spied_packets(keys: KeyPair<Box<dyn PacketKey>>, spy: &Arc<Spy>) -> KeyPair<Box<dyn PacketKey>> {
    KeyPair {
        local: Box::new(SpiedPacketKey(keys.local, spy.clone())),
        remote: Box::new(SpiedPacketKey(keys.remote, spy.clone())),
    }
}

fn spied(keys: Keys, spy: &Arc<Spy>) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(SpiedHeaderKey(keys.header.local, spy.clone())),
            remote: keys.header.remote,
        },
        packet: spied_packets(keys.packet, spy),
    }
}

struct Session(Box<dyn crypto::Session>, Arc<Spy>);

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        spied(self.0.initial_keys(dst_cid, side), &self.1)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.0.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.0.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.0.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.0.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.0.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        match self.1.hides_parameters.load(Ordering::Relaxed) {
            true => Ok(None),
            false => self.0.transport_parameters(),
        }
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let keys = self.0.write_handshake(buf)?;
        Some(spied(keys, &self.1))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.0.next_1rtt_keys()?;
        self.1.phases.fetch_add(1, Ordering::Relaxed);
        Some(spied_packets(
            KeyPair {
                local: Box::new(LaterKey(keys.local, self.1.clone())),
                remote: Box::new(LaterKey(keys.remote, self.1.clone())),
            },
            &self.1,
        ))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.0.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.0.export_keying_material(output, label, context)
    }
}

/// quinn-proto's TLS adapter, which supports only version 1. It gets version 1 whatever the version of the packets.
struct Client(Arc<QuicClientConfig>, Arc<Spy>);

impl crypto::ClientConfig for Client {
    fn start_session(
        self: Arc<Self>,
        _version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, quinn::ConnectError> {
        let session = self.0.clone().start_session(1, server_name, params)?;
        Ok(Box::new(Session(session, self.1.clone())))
    }
}

struct Server(Arc<QuicServerConfig>, Arc<Spy>);

impl crypto::ServerConfig for Server {
    fn initial_keys(&self, _: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(spied(self.0.initial_keys(1, dst_cid)?, &self.1))
    }

    fn retry_tag(&self, _: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(1, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        _version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let session = self.0.clone().start_session(1, params);
        Box::new(Session(session, self.1.clone()))
    }
}

/// Operations on tokens, and the calls of quinn-proto in which they happen, in order.
pub type Steps = Arc<Mutex<Vec<&'static str>>>;

struct TokenKey(Arc<dyn HandshakeTokenKey>, Steps);

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(TokenAead(
            self.0.aead_from_hkdf(random_bytes),
            self.1.clone(),
        ))
    }
}

struct TokenAead(Box<dyn AeadKey>, Steps);

impl AeadKey for TokenAead {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        self.1.lock().unwrap().push("seal");
        self.0.seal(data, additional_data)
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        self.1.lock().unwrap().push("open");
        self.0.open(data, additional_data)
    }
}

struct TokenLog(Steps);

impl quinn::TokenLog for TokenLog {
    fn check_and_insert(
        &self,
        _: u128,
        _: SystemTime,
        _: Duration,
    ) -> Result<(), quinn::TokenReuseError> {
        self.0.lock().unwrap().push("ask");
        Ok(())
    }
}

/// A self-signed certificate for `names` names, of which the first is "localhost".
fn certificate(names: usize) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = CertificateKey::generate().unwrap();
    let others = (1..names).map(|number| format!("{number:040}.example"));
    let names: Vec<_> = std::iter::once("localhost".into()).chain(others).collect();
    let params = CertificateParams::new(names).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (certificate.der().clone(), key)
}

/// rustls' configurations of a client and a server that trust each other. The client has these cipher suites.
pub fn tls(
    suites: Vec<rustls::SupportedCipherSuite>,
) -> (rustls::ClientConfig, rustls::ServerConfig) {
    tls_with_names(suites, 1)
}

fn tls_with_names(
    suites: Vec<rustls::SupportedCipherSuite>,
    names: usize,
) -> (rustls::ClientConfig, rustls::ServerConfig) {
    let (certificate, key) = certificate(names);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut of_client = provider::default_provider();
    of_client.cipher_suites = suites;
    let client = rustls::ClientConfig::builder_with_provider(Arc::new(of_client))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let of_server = Arc::new(provider::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(of_server)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    (client, server)
}

/// The connection IDs that an endpoint has generated, in order.
#[derive(Default)]
pub struct Ids {
    pub made: Mutex<Vec<ConnectionId>>,
    /// If true, each connection ID is generated twice.
    pub repeats: AtomicBool,
}

struct SpiedIds(Arc<Ids>);

impl quinn::ConnectionIdGenerator for SpiedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut made = self.0.made.lock().unwrap();
        let last = made.last().copied().filter(|last| {
            let times = made.iter().filter(|id| *id == last).count();
            self.0.repeats.load(Ordering::Relaxed) && times < 2
        });
        let id = last.unwrap_or_else(|| quinn::RandomConnectionIdGenerator::new(8).generate_cid());
        made.push(id);
        id
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// An endpoint of quinn-proto with at most one connection.
pub struct End {
    pub endpoint: quinn::Endpoint,
    connection: Option<(ConnectionHandle, quinn::Connection)>,
    pub spy: Arc<Spy>,
    pub events: Vec<quinn::Event>,
    /// True to answer each client without a token with a Retry.
    pub retries: bool,
    /// The ECN codepoint with which the endpoint's datagrams arrive.
    pub mark: Option<EcnCodepoint>,
    responses: Vec<Vec<u8>>,
    pub tokens: Steps,
    pub ids: Arc<Ids>,
    /// If this is `Some`, new connections are stored in the list instead of being accepted.
    pub pending_accepts: Option<Vec<quinn::Incoming>>,
}

impl End {
    pub fn connection(&mut self) -> &mut quinn::Connection {
        &mut self.connection.as_mut().unwrap().1
    }

    pub fn handle(&self) -> ConnectionHandle {
        self.connection.as_ref().unwrap().0
    }

    pub fn take_fresh_id(&mut self) -> bool {
        let (handle, connection) = self.connection.as_mut().unwrap();
        fresh_connection_id::take(&mut self.endpoint, *handle, connection)
    }

    /// The datagrams that the endpoint sends now.
    pub fn transmit(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut datagrams = std::mem::take(&mut self.responses);
        self.pump();
        while let Some((_, connection)) = &mut self.connection {
            let mut buf = Vec::new();
            self.tokens.lock().unwrap().push("transmit");
            if connection.poll_transmit(now, 1, &mut buf).is_none() {
                break;
            }
            datagrams.push(buf);
            self.pump();
        }
        datagrams
    }

    pub fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let (data, mut buf) = (BytesMut::from(datagram), Vec::new());
        self.tokens.lock().unwrap().push("handle");
        let event = self
            .endpoint
            .handle(now, from, None, self.mark, data, &mut buf);
        self.tokens.lock().unwrap().push("handled");
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.connection().handle_event(event),
            Some(DatagramEvent::NewConnection(incoming))
                if self.retries && incoming.may_retry() =>
            {
                let transmit = self.endpoint.retry(incoming, &mut buf).unwrap();
                assert_eq!(transmit.size, buf.len());
                self.responses.push(buf);
            }
            Some(DatagramEvent::NewConnection(incoming)) if self.pending_accepts.is_some() => {
                self.pending_accepts.as_mut().unwrap().push(incoming);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut buf, None);
                self.connection = Some(accepted.unwrap());
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
        self.pump();
    }

    fn pump(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        self.events.extend(std::iter::from_fn(|| connection.poll()));
    }
}

pub struct BareQuinn {
    pub now: Instant,
    pub client: End,
    pub server: End,
    config: quinn::ClientConfig,
    server_tls: rustls::ServerConfig,
    transport: Arc<quinn::TransportConfig>,
}

const CLIENT: &str = "192.0.2.1:50000";
const SERVER: &str = "192.0.2.2:443";

impl BareQuinn {
    /// Makes a client that has not sent anything yet, and its server. Both use the QUIC version `version`.
    pub fn begin(version: u32, transport: quinn::TransportConfig) -> Self {
        Self::begin_with_names(version, transport, 1)
    }

    /// Makes both endpoints as [`begin`](Self::begin) does, with a server certificate for `names` names.
    pub fn begin_with_names(
        version: u32,
        mut transport: quinn::TransportConfig,
        names: usize,
    ) -> Self {
        let now = Instant::now();
        let suites = provider::default_provider().cipher_suites;
        let (mut client_tls, mut server_tls) = tls_with_names(suites, names);
        client_tls.enable_early_data = true;
        server_tls.max_early_data_size = u32::MAX;
        // MTU discovery would send packets that the test has not caused.
        transport.mtu_discovery_config(None);
        let transport = Arc::new(transport);
        let end = |is_server: bool| {
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[7; 32]);
            let mut config = quinn::EndpointConfig::new(Arc::new(key));
            config.supported_versions(vec![1, version, OTHER_VERSION]);
            config.max_udp_payload_size(u16::MAX - 8).unwrap();
            let (spy, tokens, ids) = (
                Arc::<Spy>::default(),
                Steps::default(),
                Arc::<Ids>::default(),
            );
            let made = ids.clone();
            config.cid_generator(move || Box::new(SpiedIds(made.clone())));
            let server =
                is_server.then(|| Arc::new(server_config(&server_tls, &transport, &spy, &tokens)));
            End {
                endpoint: quinn::Endpoint::new(Arc::new(config), server, true, None),
                connection: None,
                spy,
                events: Vec::new(),
                retries: false,
                mark: None,
                responses: Vec::new(),
                tokens,
                ids,
                pending_accepts: None,
            }
        };
        let (client, server) = (end(false), end(true));
        let crypto = Arc::new(QuicClientConfig::try_from(client_tls).unwrap());
        let crypto = Arc::new(Client(crypto, client.spy.clone()));
        let mut config = quinn::ClientConfig::new(crypto);
        config.version(version).transport_config(transport.clone());
        let mut bare = Self {
            now,
            client,
            server,
            config,
            server_tls,
            transport,
        };
        bare.dial();
        bare
    }

    /// A client that has a ticket and 0-RTT keys, and has not sent anything yet.
    pub fn resuming(transport: quinn::TransportConfig) -> Self {
        let mut bare = Self::connected(transport);
        bare.dial();
        assert!(bare.client.connection().has_0rtt());
        bare
    }

    /// Drops all TLS sessions of the server.
    pub fn forget_sessions(&mut self) {
        self.server_tls.session_storage = rustls::server::ServerSessionMemoryCache::new(256);
        let End { spy, tokens, .. } = &self.server;
        let config = server_config(&self.server_tls, &self.transport, spy, tokens);
        self.server
            .endpoint
            .set_server_config(Some(Arc::new(config)));
    }

    /// Replaces the client's connection by a new one.
    pub fn dial(&mut self) {
        let (config, remote) = (self.config.clone(), SERVER.parse().unwrap());
        let dialed = self
            .client
            .endpoint
            .connect(self.now, config, remote, "localhost");
        self.client.connection = Some(dialed.unwrap());
    }

    /// A client and a server after the handshake, with nothing left to send.
    pub fn connected(transport: quinn::TransportConfig) -> Self {
        let mut bare = Self::begin(1, transport);
        bare.complete();
        bare
    }

    /// Runs the handshake until nothing is left to send.
    pub fn complete(&mut self) {
        for _ in 0..8 {
            self.exchange();
            // Acknowledgements are delayed by up to 25 ms.
            self.sleep(Duration::from_millis(30));
        }
        self.exchange();
        assert!(!self.client.connection().is_handshaking());
    }

    /// Exchanges datagrams until neither endpoint has any.
    pub fn exchange(&mut self) {
        loop {
            let sent = self.client.transmit(self.now);
            sent.iter().for_each(|datagram| self.server_gets(datagram));
            let answer = self.server.transmit(self.now);
            answer
                .iter()
                .for_each(|datagram| self.client_gets(datagram));
            if sent.is_empty() && answer.is_empty() {
                return;
            }
        }
    }

    pub fn server_gets(&mut self, datagram: &[u8]) {
        let from = CLIENT.parse().unwrap();
        self.server.receive(self.now, from, datagram);
    }

    pub fn client_gets(&mut self, datagram: &[u8]) {
        let from = SERVER.parse().unwrap();
        self.client.receive(self.now, from, datagram);
    }

    /// Advances the clock and fires the timers that are due.
    pub fn sleep(&mut self, time: Duration) {
        self.now += time;
        for end in [&mut self.client, &mut self.server] {
            let Some((_, connection)) = &mut end.connection else {
                continue;
            };
            while connection.poll_timeout().is_some_and(|at| at <= self.now) {
                connection.handle_timeout(self.now);
            }
            end.pump();
        }
    }
}

fn server_config(
    tls: &rustls::ServerConfig,
    transport: &Arc<quinn::TransportConfig>,
    spy: &Arc<Spy>,
    tokens: &Steps,
) -> quinn::ServerConfig {
    let crypto = Arc::new(QuicServerConfig::try_from(tls.clone()).unwrap());
    let crypto = Arc::new(Server(crypto, spy.clone()));
    let token_key = aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]);
    let token_key = TokenKey(Arc::new(token_key.extract(&[7; 64])), tokens.clone());
    let mut validation = quinn::ValidationTokenConfig::default();
    validation.log(Arc::new(TokenLog(tokens.clone()))).sent(1);
    let mut config = quinn::ServerConfig::new(crypto, Arc::new(token_key));
    config
        .transport_config(transport.clone())
        .validation_token_config(validation);
    config
}

/// A QUIC version other than 1 that both test endpoints support.
pub const OTHER_VERSION: u32 = 0x6b33_43cf;
