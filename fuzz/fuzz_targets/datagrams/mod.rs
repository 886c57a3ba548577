//! A server, a client with several addresses, and a network between them whose attacker follows the
//! fuzzer's input. Time is simulated. `ledger` counts the bytes sent to each address.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use uringcore_quic::{
    ClientSettings, ClientSetup, ConnectionKey, DatagramMeta, Endpoint, EndpointSettings, Event,
    Retry, ServerSettings, ServerSetup, TransportSettings,
};

use ledger::Ledger;
use support::{client_settings, server_settings};

pub mod ledger;

#[path = "../../../src/quic/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

/// A datagram in flight, or one that the attacker has stored.
#[derive(Clone)]
pub struct Flight {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub data: Vec<u8>,
    /// The step of its sending.
    pub step: u64,
}

pub struct Network {
    pub client: Endpoint,
    pub server: Endpoint,
    pub clients: Vec<ConnectionKey>,
    pub servers: Vec<ConnectionKey>,
    pub flights: VecDeque<Flight>,
    /// Datagrams that have left the network, delivered or not.
    pub past: VecDeque<Flight>,
    pub now: Instant,
    pub step: u64,
    ledger: Ledger,
    settings: ClientSettings,
}

impl Network {
    pub fn new(options: u8) -> Self {
        let (mut client, mut server) = (client_settings(), server_settings());
        for transport in [&mut client.transport, &mut server.transport] {
            *transport = transport_settings(options);
        }
        server.retry =
            [Retry::Never, Retry::Always, Retry::Auto, Retry::Never][usize::from(options & 3)];
        server.early_data = true;
        if options & 0x10 != 0 {
            server.supported_versions.truncate(1);
        }
        Self {
            client: Endpoint::new(endpoint_settings(1), None),
            server: server_endpoint(&server, options),
            clients: Vec::new(),
            servers: Vec::new(),
            flights: VecDeque::new(),
            past: VecDeque::new(),
            now: Instant::now(),
            step: 0,
            ledger: Ledger::default(),
            settings: client,
        }
    }

    /// The client begins another connection, with the newest ticket and token that it has received.
    pub fn connect(&mut self) {
        if self.clients.len() == CONNECTIONS_MAX {
            return;
        }
        let setup = ClientSetup::new(&self.settings).expect("the settings are good");
        let key = self
            .client
            .connect(self.now, &setup, SERVER, "localhost")
            .expect("there is room");
        self.clients.push(key);
        self.exchange();
    }

    /// Takes events and datagrams out of both endpoints until there are none.
    pub fn exchange(&mut self) {
        while self.take_events() | self.transmit() {}
        while self.flights.len() > FLIGHTS_MAX {
            self.lose(0);
        }
    }

    /// A datagram leaves the network without being delivered.
    pub fn lose(&mut self, index: usize) -> Option<Flight> {
        let flight = self.flights.remove(index)?;
        self.past.push_back(flight.clone());
        if self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
        Some(flight)
    }

    /// Delivers a datagram to its destination, if an endpoint has that address.
    pub fn deliver(&mut self, flight: &Flight) {
        if flight.to == SERVER {
            self.deliver_to_server(flight);
        } else if let Some(socket) = CLIENTS.iter().position(|own| *own == flight.to) {
            self.deliver_to_client(flight, socket as u32);
        }
    }

    /// The attacker delivers a datagram to the client that was sent to another address.
    pub fn forward(&mut self, flight: &Flight) {
        if flight.from == SERVER {
            self.deliver_to_client(flight, 0);
        }
    }

    fn deliver_to_server(&mut self, flight: &Flight) {
        self.ledger.received(flight);
        let meta = DatagramMeta {
            remote: flight.from,
            local_ip: Some(SERVER.ip()),
            ecn: None,
        };
        let data = BytesMut::from(&flight.data[..]);
        self.server.handle_datagram(self.now, meta, data);
        self.exchange();
    }

    fn deliver_to_client(&mut self, flight: &Flight, socket: u32) {
        self.ledger.reached(flight.to, self.step);
        let meta = DatagramMeta {
            remote: flight.from,
            local_ip: None,
            ecn: None,
        };
        let data = BytesMut::from(&flight.data[..]);
        self.client.handle_datagram_at(self.now, socket, meta, data);
        // Packets that the client sends from here on may depend on this datagram.
        self.step += 1;
        self.exchange();
    }

    /// Delivers the datagrams in flight, oldest first, and those sent in response.
    pub fn carry(&mut self) {
        for _ in 0..CARRIED_MAX {
            let Some(flight) = self.lose(0) else { return };
            self.deliver(&flight);
        }
    }

    /// Lets time pass. Nothing is delivered meanwhile.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..TIMEOUTS_MAX {
            let timeouts = [self.client.next_timeout(), self.server.next_timeout()];
            let next = timeouts.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            self.exchange();
        }
        self.now = self.now.max(end);
    }

    fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some((_, event)) = self.client.poll_event() {
            any = true;
            match event {
                Event::SessionTicket(ticket) => self.settings.session_ticket = Some(*ticket),
                Event::NewToken { token, version } => {
                    self.settings.token = token;
                    self.settings.token_version = Some(version);
                }
                _ => {}
            }
        }
        while let Some((key, event)) = self.server.poll_event() {
            any = true;
            if event == Event::Accepted {
                self.servers.push(key);
            }
        }
        any
    }

    fn transmit(&mut self) -> bool {
        let (mut any, mut buf) = (false, Vec::new());
        while let Some(transmit) = self.client.poll_transmit(self.now, &mut buf) {
            any = true;
            let from = CLIENTS[transmit.socket as usize];
            self.send(from, transmit.remote, transmit.segment_size, &buf);
        }
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut buf) {
            any = true;
            self.ledger.sent(transmit.remote, buf.len());
            self.send(SERVER, transmit.remote, transmit.segment_size, &buf);
        }
        any
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, segment: Option<usize>, batch: &[u8]) {
        assert!(!batch.is_empty(), "an empty datagram");
        for data in batch.chunks(segment.unwrap_or(batch.len())) {
            self.flights.push_back(Flight {
                from,
                to,
                data: data.to_vec(),
                step: self.step,
            });
        }
    }

    /// Both hosts close, and eventually no state is left.
    pub fn end(&mut self) {
        self.client.close_all(self.now, 0, b"");
        self.server.close_all(self.now, 0, b"");
        self.exchange();
        for _ in 0..100 {
            self.pass(Duration::from_secs(60));
        }
        for endpoint in [&self.client, &self.server] {
            assert!(endpoint.is_idle() && endpoint.is_empty());
            assert_eq!(endpoint.next_timeout(), None);
        }
    }
}

fn transport_settings(options: u8) -> TransportSettings {
    TransportSettings {
        idle_timeout: Duration::from_secs(20),
        mtu_discovery: options & 4 != 0,
        packet_log: options & 8 != 0,
        max_streams_bidi: 8,
        max_streams_uni: 8,
        ..TransportSettings::default()
    }
}

fn server_endpoint(settings: &ServerSettings, options: u8) -> Endpoint {
    let setup = ServerSetup::new(settings).expect("the settings are good");
    let mut endpoint = Endpoint::new(endpoint_settings(2), Some(setup));
    if options & 0x20 != 0 {
        endpoint.set_gso(1);
    }
    endpoint
}

fn endpoint_settings(seed: u8) -> EndpointSettings {
    EndpointSettings {
        max_connections: 2 * CONNECTIONS_MAX,
        retry_handshakes: 2,
        rng_seed: Some([seed; 32]),
        ..EndpointSettings::default()
    }
}

const fn v4(ip: [u8; 4], port: u16) -> SocketAddr {
    let ip = std::net::Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]);
    SocketAddr::V4(std::net::SocketAddrV4::new(ip, port))
}

pub const SERVER: SocketAddr = v4([10, 0, 0, 2], 443);
/// The client's sockets.
pub const CLIENTS: [SocketAddr; 3] = [
    v4([10, 0, 0, 1], 50_000),
    v4([10, 0, 0, 1], 50_001),
    v4([10, 0, 1, 1], 50_000),
];
/// Spoofed source addresses: of other hosts, and of the client's host with another port.
pub const STRANGERS: [SocketAddr; 3] = [
    v4([192, 0, 2, 7], 53),
    v4([198, 51, 100, 9], 443),
    v4([10, 0, 0, 1], 50_002),
];

const CONNECTIONS_MAX: usize = 4;
const FLIGHTS_MAX: usize = 128;
const PAST_MAX: usize = 48;
const CARRIED_MAX: usize = 200;
const TIMEOUTS_MAX: usize = 200;
