//! A client that migrates and probes from other addresses, by packets that no client of this crate sends, beside
//! another client of the same server.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::{
    ClientSettings, ClientSetup, ConnectionKey, DatagramMeta, Endpoint, EndpointSettings, Event,
    ServerSettings, ServerSetup, TransportSettings,
    tls::{Identity, Roots, WallClock},
    workarounds::path_challenge::Probe,
};

#[derive(Debug)]
struct StoppedClock;

impl WallClock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }
}

fn setups() -> (ClientSetup, ServerSetup) {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
    let chain = params.signed_by(&key, &authority).unwrap().pem();
    let identity = Identity::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let transport = TransportSettings {
        datagram_recv_bytes: Some(1 << 16),
        ..TransportSettings::default()
    };
    let client = ClientSettings {
        alpn: vec![b"test".to_vec()],
        transport: transport.clone(),
        roots: Roots::Pem(authority.pem().into_bytes()),
        ..ClientSettings::new(Arc::new(StoppedClock))
    };
    let server = ServerSettings {
        alpn: vec![b"test".to_vec()],
        transport,
        ..ServerSettings::new(identity, Arc::new(StoppedClock))
    };
    (
        ClientSetup::new(&client).unwrap(),
        ServerSetup::new(&server).unwrap(),
    )
}

type Datagrams = Vec<(SocketAddr, Vec<u8>)>;

fn sent(endpoint: &mut Endpoint, now: Instant) -> Datagrams {
    let (mut buf, mut all) = (Vec::new(), Vec::new());
    while let Some(transmit) = endpoint.poll_transmit(now, &mut buf) {
        assert_eq!(transmit.size, buf.len());
        let size = transmit.segment_size.unwrap_or(buf.len());
        all.extend(buf.chunks(size).map(|one| (transmit.remote, one.to_vec())));
    }
    all
}

fn deliver(endpoint: &mut Endpoint, now: Instant, remote: SocketAddr, datagram: &[u8]) {
    let meta = DatagramMeta {
        remote,
        local_ip: None,
        ecn: None,
    };
    endpoint.handle_datagram(now, meta, BytesMut::from(datagram));
}

struct Client {
    endpoint: Endpoint,
    address: SocketAddr,
    key: ConnectionKey,
    /// The stream data that the client has received.
    received: Vec<u8>,
    /// The server's connection ID in the last packet with a short header.
    last_id: Vec<u8>,
}

struct World {
    server: Endpoint,
    server_keys: Vec<ConnectionKey>,
    clients: [Client; 2],
    now: Instant,
}

impl World {
    /// A server and two clients with confirmed handshakes.
    fn new() -> Self {
        let (client, server) = setups();
        let now = Instant::now();
        let addresses = ["10.0.0.1:1000", "10.0.0.9:1000"];
        let clients = addresses.map(|address| {
            let mut endpoint = Endpoint::new(EndpointSettings::default(), None);
            let key = endpoint.connect(now, &client, SERVER.parse().unwrap(), "localhost");
            Client {
                endpoint,
                address: address.parse().unwrap(),
                key: key.unwrap(),
                received: Vec::new(),
                last_id: Vec::new(),
            }
        });
        let mut world = Self {
            server: Endpoint::new(EndpointSettings::default(), Some(server)),
            server_keys: Vec::new(),
            clients,
            now,
        };
        // The clients connect one after the other, so the order of their connections in the server's table is known.
        for client in [0, 1] {
            (0..100).for_each(|_| world.exchange(client));
        }
        assert_eq!(world.server_keys.len(), 2);
        world
    }

    fn exchange(&mut self, client: usize) {
        self.now += Duration::from_millis(20);
        let (now, server) = (self.now, &mut self.server);
        let client = &mut self.clients[client];
        client.endpoint.handle_timeout(now);
        server.handle_timeout(now);
        for (_, datagram) in sent(&mut client.endpoint, now) {
            if datagram[0] & 0x80 == 0 {
                client.last_id = datagram[1..=ID_LENGTH].to_vec();
            }
            deliver(server, now, client.address, &datagram);
        }
        while let Some((key, event)) = server.poll_event() {
            if event == Event::Accepted {
                self.server_keys.push(key);
            }
        }
        for (to, datagram) in sent(server, now) {
            if to == client.address {
                client.gets(now, &datagram);
            }
        }
    }

    /// The datagrams that the server sends now.
    fn server_sends(&mut self) -> Datagrams {
        sent(&mut self.server, self.now)
    }

    fn send(&mut self, client: usize, data: Bytes) {
        let key = self.server_keys[client];
        let connection = self.server.connection(key).unwrap();
        connection.send_stream(1, data, false).unwrap();
    }
}

impl Client {
    fn gets(&mut self, now: Instant, datagram: &[u8]) {
        deliver(&mut self.endpoint, now, SERVER.parse().unwrap(), datagram);
        while let Some((_, event)) = self.endpoint.poll_event() {
            if let Event::StreamData { data, .. } = event {
                self.received.extend(data.to_vec());
            }
        }
    }

    /// A packet with `frames`, for a connection ID that the client does not use any more.
    fn packet(&mut self, now: Instant, frames: &[u8], length: usize) -> Vec<u8> {
        let connection = self.endpoint.connection(self.key).unwrap();
        // The first PINGs may leave together with an ACK, so the call is repeated.
        for _ in 0..10 {
            let probe = Probe {
                destination: self.last_id.clone(),
                payload: frames.to_vec(),
                length,
            };
            if let Some(packet) = connection.forged_packet(now, probe) {
                assert_eq!(packet.len(), length);
                return packet;
            }
        }
        panic!("no PING was sent alone in a packet");
    }
}

#[test]
fn packets_for_one_client_never_get_into_another_clients_datagrams() {
    let mut world = World::new();
    let now = world.now;
    world.send(0, vec![1; 500_000].into());
    // The test does not deliver these datagrams, nor later ones of the server.
    world.server_sends();
    let [attacker, _] = &mut world.clients;
    assert!(
        attacker
            .endpoint
            .use_fresh_connection_id(attacker.key.index())
    );
    for number in 0..8 {
        let from = SocketAddr::from(([192, 0, 2, number], 1_000));
        let packet = world.clients[0].packet(now, &[PING], 40);
        deliver(&mut world.server, now, from, &packet);
        let to_there = world.server_sends();
        let bytes: usize = to_there
            .iter()
            .filter(|(to, _)| *to == from)
            .map(|(_, one)| one.len())
            .sum();
        assert!((1..=120).contains(&bytes), "{number}: {bytes}");
    }
    let from = SocketAddr::from(([192, 0, 2, 100], 1_000));
    let packet = world.clients[0].packet(now, &[PING], 401);
    deliver(&mut world.server, now, from, &packet);
    assert!(
        world
            .server_sends()
            .iter()
            .any(|(to, one)| *to == from && one.len() >= 1_200)
    );
    let asker = SocketAddr::from(([192, 0, 2, 200], 1_000));
    let challenge = [&[PATH_CHALLENGE][..], &[7; 8]].concat();
    let packet = world.clients[0].packet(now, &challenge, 60);
    deliver(&mut world.server, now, asker, &packet);
    let data: Vec<u8> = (0..3_000).map(|byte| byte as u8).collect();
    world.send(1, data.clone().into());
    let datagrams = world.server_sends();
    let victim = world.clients[1].address;
    let lengths = |wanted| {
        let its = datagrams.iter().filter(move |(to, _)| *to == wanted);
        its.map(|(_, datagram)| datagram.len()).collect::<Vec<_>>()
    };
    for (_, datagram) in datagrams.iter().filter(|(to, _)| *to == victim) {
        world.clients[1].gets(now, datagram);
    }
    let is_whole = world.clients[1].received == data;
    assert!(is_whole, "{:?}", lengths(victim));
    assert_eq!(lengths(asker).len(), 1, "the response");
    assert!(lengths(asker)[0] <= 180);
}

#[test]
fn commands_are_reported_until_their_data_are_sent() {
    let mut world = World::new();
    let key = world.server_keys[0];
    world.server_sends();
    assert!(!world.server.is_commanded(key));
    world.send(0, Bytes::from_static(b"one"));
    assert!(!world.server.is_commanded(world.server_keys[1]));
    assert!(world.server.is_commanded(key));
    world.server_sends();
    assert!(!world.server.is_commanded(key));
    // More than the congestion window allows: a later call of `transmit()` can send the rest.
    world.send(0, Bytes::from(vec![7; 1 << 20]));
    world.server_sends();
    assert!(world.server.is_commanded(key));
}

/// The last batch of a connection, as the server reports it, brings all that was written.
fn all_arrives(
    segments: usize,
    write: impl FnOnce(&mut crate::Connection),
    expected: (usize, usize),
) {
    let mut world = World::new();
    world.server.set_gso(segments);
    let (now, key) = (world.now, world.server_keys[0]);
    world.server_sends();
    write(world.server.connection(key).unwrap());
    let mut buf = Vec::new();
    let mut datagrams = 0;
    while let Some(transmit) = world.server.poll_transmit_of(key, now, &mut buf) {
        let has_more = world.server.may_send_more(key, &transmit);
        let size = transmit.segment_size.unwrap_or(transmit.size);
        for datagram in buf.chunks(size) {
            let client = &mut world.clients[0];
            deliver(&mut client.endpoint, now, SERVER.parse().unwrap(), datagram);
            while let Some((_, event)) = client.endpoint.poll_event() {
                match event {
                    Event::StreamData { data, .. } => client.received.extend(data.to_vec()),
                    Event::Datagram { .. } => datagrams += 1,
                    _ => {}
                }
            }
        }
        if !has_more {
            break;
        }
    }
    assert_eq!((world.clients[0].received.len(), datagrams), expected);
}

#[test]
fn nothing_is_left_behind_the_batch_that_is_reported_as_the_last() {
    for segments in [1, 64] {
        for length in [
            1, 100, 1_100, 1_120, 1_140, 1_160, 1_180, 1_200, 2_400, 5_000,
        ] {
            let data = Bytes::from(vec![7; length]);
            all_arrives(
                segments,
                |connection| connection.send_stream(1, data, false).unwrap(),
                (length, 0),
            );
        }
    }
    // The packet with the first frame has space left, but not enough for the second frame.
    let frames = |sizes: &'static [usize]| {
        move |connection: &mut crate::Connection| {
            for size in sizes {
                connection.send_datagram(vec![7; *size].into()).unwrap();
            }
        }
    };
    all_arrives(64, frames(&[300]), (0, 1));
    all_arrives(64, frames(&[600, 1_000, 600, 1_000]), (0, 4));
}

const SERVER: &str = "10.0.0.2:443";
const ID_LENGTH: usize = 8;
const PING: u8 = 0x01;
const PATH_CHALLENGE: u8 = 0x1a;
