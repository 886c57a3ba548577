//! QUIC on the engine without Python: real sockets on loopback, both backends.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::{BACKENDS, engine, iterate};
use bytes::Bytes;
use rcgen::{CertificateParams, KeyPair};
use uringcore_engine::{Engine, EngineEvent, Key, QuicSocket, SocketFd, SystemClock};
use uringcore_io::Backend;
use uringcore_quic::tls::{Identity, Roots};
use uringcore_quic::{
    self as quic, ClientSettings, ClientSetup, CloseKind, ConnectionKey, Endpoint,
    EndpointSettings, ServerSettings, ServerSetup,
};

const ALPN: &[u8] = b"test";

/// A self-signed certificate for localhost, and its key, both as PEM. The client trusts this certificate.
fn certificate() -> &'static (String, String) {
    static CERTIFICATE: OnceLock<(String, String)> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new(vec!["localhost".into()]).expect("params");
        let certificate = params.self_signed(&key).expect("certificate");
        (certificate.pem(), key.serialize_pem())
    })
}

fn server_setup() -> ServerSetup {
    let (pem, key) = certificate();
    let identity = Identity::from_pem(pem.as_bytes(), key.as_bytes()).expect("identity");
    let settings = ServerSettings {
        alpn: vec![ALPN.to_vec()],
        ..ServerSettings::new(identity, SystemClock::shared())
    };
    ServerSetup::new(&settings).expect("server setup")
}

fn client_setup() -> ClientSetup {
    ClientSetup::new(&ClientSettings {
        alpn: vec![ALPN.to_vec()],
        roots: Roots::Pem(certificate().0.clone().into_bytes()),
        ..ClientSettings::new(SystemClock::shared())
    })
    .expect("client setup")
}

/// An engine with QUIC sockets, and the events of their connections so far.
struct Host {
    engine: Engine,
    events: HashMap<(Key, ConnectionKey), Vec<quic::Event>>,
    ended: Vec<Key>,
}

impl Host {
    fn new(backend: Backend) -> Self {
        Self {
            engine: engine(backend),
            events: HashMap::new(),
            ended: Vec::new(),
        }
    }

    fn open(&mut self, socket: UdpSocket, server: Option<ServerSetup>) -> Key {
        let endpoint = Endpoint::new(EndpointSettings::default(), server);
        self.engine
            .open_quic(|_, token| QuicSocket::new(SocketFd::Owned(socket.into()), endpoint, token))
            .expect("endpoint")
    }

    fn connect(&mut self, endpoint: Key, remote: SocketAddr) -> ConnectionKey {
        self.engine
            .quic(endpoint)
            .expect("open")
            .protocol()
            .connect(Instant::now(), &client_setup(), remote, "localhost")
            .expect("connect")
    }

    fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(
                Instant::now() < end,
                "nothing happened for twenty seconds: {:?}",
                self.engine.stats()
            );
            let now = Instant::now();
            let timer = self.engine.next_deadline();
            let wait = timer.map_or(Duration::from_millis(50), |at| {
                at.saturating_duration_since(now)
                    .min(Duration::from_millis(50))
            });
            let (events, ended) = (&mut self.events, &mut self.ended);
            iterate(&mut self.engine, wait, |engine, event| match event {
                EngineEvent::QuicReady { socket: endpoint } => {
                    let open = engine.quic(endpoint).expect("a ready endpoint is open");
                    while let Some((connection, event)) = open.poll_event() {
                        events
                            .entry((endpoint, connection))
                            .or_default()
                            .push(event);
                    }
                }
                EngineEvent::QuicClosed { socket: endpoint } => ended.push(endpoint),
                _ => {}
            });
        }
    }

    fn closed(&self, endpoint: Key) -> Option<CloseKind> {
        let of_endpoint = self.events.iter().filter(|((key, _), _)| *key == endpoint);
        of_endpoint
            .flat_map(|(_, events)| events)
            .find_map(|event| match event {
                quic::Event::Closed { kind, .. } => Some(*kind),
                _ => None,
            })
    }

    fn accepted(&self, endpoint: Key) -> Option<ConnectionKey> {
        let mut keys = self.events.keys();
        keys.find(|(key, _)| *key == endpoint).map(|(_, key)| *key)
    }

    fn received(&self, endpoint: Key, connection: ConnectionKey) -> (Vec<u8>, bool) {
        let mut all = (Vec::new(), false);
        for event in self
            .events
            .get(&(endpoint, connection))
            .into_iter()
            .flatten()
        {
            if let quic::Event::StreamData { data, fin, .. } = event {
                all.0.extend(data.to_vec());
                all.1 |= *fin;
            }
        }
        all
    }
}

fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket.set_nonblocking(true).expect("nonblocking");
    let addr = socket.local_addr().expect("address");
    (socket, addr)
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 % 251) as u8).collect()
}

/// Connects, sends `size` bytes to the server and back, and closes both sides. Returns how many sends of the client
/// the kernel refused.
fn exchange(host: &mut Host, client_socket: UdpSocket, size: usize) -> u64 {
    let (server_socket, server_addr) = socket();
    let server = host.open(server_socket, Some(server_setup()));
    let client = host.open(client_socket, None);
    let connection = host.connect(client, server_addr);
    let sent = pattern(size);
    let send = |host: &mut Host, endpoint: Key, key: ConnectionKey| {
        let protocol = host.engine.quic(endpoint).expect("open").protocol();
        let connection = protocol.connection(key).expect("alive");
        connection
            .send_stream(0, Bytes::from(pattern(size)), true)
            .expect("send");
    };
    send(host, client, connection);
    host.run_until(|host| {
        host.accepted(server)
            .is_some_and(|key| host.received(server, key).1)
    });
    let accepted = host.accepted(server).expect("accepted");
    assert_eq!(host.received(server, accepted).0, sent);
    send(host, server, accepted);
    host.run_until(|host| host.received(client, connection).1);
    assert_eq!(host.received(client, connection).0, sent);
    assert_eq!(host.engine.stats().quic_endpoints, 2);

    let endpoint = host.engine.quic(client).expect("open");
    let refused = endpoint.stats().send_errors;
    endpoint.close(Instant::now(), 7, b"done");
    host.run_until(|host| host.ended.contains(&client) && host.closed(server).is_some());
    assert_eq!(host.closed(client), Some(CloseKind::Local));
    assert_eq!(host.closed(server), Some(CloseKind::PeerApplication));
    host.engine
        .quic(server)
        .expect("open")
        .close(Instant::now(), 0, b"");
    host.run_until(|host| host.ended.contains(&server));
    let stats = host.engine.stats();
    assert_eq!((stats.quic_endpoints, stats.quic_connections), (0, 0));
    assert_eq!(stats.driver.buffers_out, 0);
    refused
}

#[test]
fn echoed_bytes_arrive_and_leave_no_state() {
    for backend in BACKENDS {
        let mut host = Host::new(backend);
        let before = host.engine.stats().driver.in_flight;
        assert_eq!(exchange(&mut host, socket().0, 2 << 20), 0);
        host.run_until(|host| host.engine.stats().driver.in_flight == before);
    }
}

/// A socket without UDP checksums refuses GSO with EINVAL. Some network devices refuse it with EIO.
#[test]
fn a_kernel_that_refuses_gso_gets_single_datagrams() {
    for backend in BACKENDS {
        let (client, _) = socket();
        let on: libc::c_int = 1;
        // SAFETY: the descriptor is open, and the option's value is a live c_int of the given size.
        let set = unsafe {
            libc::setsockopt(
                client.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        let refused = exchange(&mut Host::new(backend), client, 300_000);
        assert!(
            refused > 0,
            "the kernel has to refuse, or nothing was tested"
        );
    }
}

#[test]
fn a_dead_port_ends_the_handshake_at_once() {
    for backend in BACKENDS {
        let mut host = Host::new(backend);
        let (dead, dead_addr) = socket();
        drop(dead);
        let client = host.open(socket().0, None);
        let started = Instant::now();
        host.connect(client, dead_addr);
        host.run_until(|host| host.closed(client).is_some());
        assert!(started.elapsed() < Duration::from_secs(2));
        let errno = libc::ECONNREFUSED;
        assert_eq!(host.closed(client), Some(CloseKind::Unreachable { errno }));
    }
}

/// An error that stays in a socket's error queue would wake an epoll loop again and again.
#[test]
fn several_dead_ports_leave_no_error_in_the_error_queue() {
    for (backend, count) in BACKENDS
        .into_iter()
        .flat_map(|one| (1..12).map(move |n| (one, n)))
    {
        let mut host = Host::new(backend);
        let ours = socket().0;
        let watched = ours.try_clone().expect("duplicate");
        let client = host.open(ours, None);
        let dead: Vec<_> = (0..count).map(|_| socket()).collect();
        let addresses: Vec<_> = dead.into_iter().map(|(_, address)| address).collect();
        for address in addresses {
            host.connect(client, address);
        }
        // 100 ms are enough for the first packets, and too short for a retransmission, which comes after a second.
        let end = Instant::now() + Duration::from_millis(100);
        host.run_until(|_| Instant::now() > end);
        let mut look = libc::pollfd {
            fd: watched.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: the pointer is to one structure, which outlives the call.
        let found = unsafe { libc::poll(&raw mut look, 1, 0) };
        assert_eq!((found, look.revents), (0, 0), "{backend:?} {count}");
        let is_closed = |event: &quic::Event| matches!(event, quic::Event::Closed { .. });
        let reported = host.events.values();
        let closed = reported
            .filter(|events| events.iter().any(is_closed))
            .count();
        assert_eq!(closed, count, "{backend:?}");
    }
}

/// One socket has connections to a dead port and to a live server. The error of the first does not affect the second.
#[test]
fn a_dead_port_does_not_affect_other_connections() {
    for backend in BACKENDS {
        let mut host = Host::new(backend);
        let (dead, dead_addr) = socket();
        drop(dead);
        let (server_socket, server_addr) = socket();
        let server = host.open(server_socket, Some(server_setup()));
        let client = host.open(socket().0, None);
        let doomed = host.connect(client, dead_addr);
        let living = host.connect(client, server_addr);
        let is = |host: &Host, key: ConnectionKey, wanted: fn(&quic::Event) -> bool| {
            let events = host.events.get(&(client, key)).into_iter().flatten();
            events.into_iter().any(wanted)
        };
        host.run_until(|host| {
            is(host, doomed, |event| {
                matches!(event, quic::Event::Closed { .. })
            }) && is(host, living, |event| {
                matches!(event, quic::Event::HandshakeCompleted { .. })
            })
        });
        assert!(host.accepted(server).is_some());
    }
}

#[test]
fn random_datagrams_of_any_size_do_no_harm() {
    for backend in BACKENDS {
        let mut host = Host::new(backend);
        let (server_socket, server_addr) = socket();
        let server = host.open(server_socket, Some(server_setup()));
        let (noise, _) = socket();
        for size in [0, 1, 20, 1199, 1200, 1500, 9000, 65_000] {
            noise
                .send_to(&vec![0xc3; size], server_addr)
                .expect("loopback takes it");
        }
        host.run_until(|host| {
            host.engine
                .quic(server)
                .is_some_and(|endpoint| endpoint.stats().datagrams_received >= 7)
        });
        let noisy = host.engine.quic(server).expect("open");
        noisy.close(Instant::now(), 0, b"");
        host.run_until(|host| host.ended.contains(&server));
        exchange(&mut host, socket().0, 50_000);
    }
}

#[test]
fn an_endpoint_closed_before_its_first_iteration_ends() {
    for backend in BACKENDS {
        let mut host = Host::new(backend);
        let client = host.open(socket().0, None);
        let (_mute, mute_addr) = socket();
        host.connect(client, mute_addr);
        host.engine
            .quic(client)
            .expect("open")
            .close(Instant::now(), 0, b"");
        host.run_until(|host| host.ended.contains(&client));
        assert_eq!(host.closed(client), Some(CloseKind::Local));
    }
}
