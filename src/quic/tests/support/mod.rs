//! Two endpoints, a simulated link between them, and a simulated clock.
//!
//! One seed determines all random numbers, and a failing test prints it.

pub mod sessions;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SignatureAlgorithm,
};
use uringcore_quic::{
    ClientSettings, ClientSetup, CloseKind, ConnectionKey, DatagramMeta, Endpoint,
    EndpointSettings, Event, ServerSettings, ServerSetup, TransportSettings,
    tls::{Identity, Roots, WallClock},
};

pub const ALPN: &[u8] = b"test";

/// A certificate authority, and its certificates for "localhost" and for a client. Created once.
pub struct Authority {
    pub pem: String,
    pub issuer: CertifiedIssuer<'static, KeyPair>,
    pub localhost: Identity,
    pub client: Identity,
}

pub fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| new_authority("the test authority"))
}

/// A certificate authority that nobody trusts.
pub fn stranger() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| new_authority("somebody else"))
}

fn new_authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    Authority {
        pem: issuer.pem(),
        localhost: issue(&issuer, "localhost"),
        client: issue(&issuer, "client"),
        issuer,
    }
}

pub fn issue(issuer: &CertifiedIssuer<'_, KeyPair>, name: &str) -> Identity {
    let (chain, key) = issue_pem(issuer, name);
    Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
}

/// Issues a certificate with a key of this kind.
pub fn issue_with(
    issuer: &CertifiedIssuer<'_, KeyPair>,
    name: &str,
    kind: &'static SignatureAlgorithm,
) -> Identity {
    let key = KeyPair::generate_for(kind).unwrap();
    let params = CertificateParams::new(vec![name.into()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

/// Issues a certificate for `names` names, of which the first is "localhost". Each name has about forty bytes.
pub fn issue_long(names: usize) -> Identity {
    let key = KeyPair::generate().unwrap();
    let others = (1..names).map(|number| format!("{number:030}.example"));
    let names: Vec<_> = std::iter::once("localhost".into()).chain(others).collect();
    let params = CertificateParams::new(names).unwrap();
    let certificate = params.signed_by(&key, &authority().issuer).unwrap();
    Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

/// Issues a certificate. Returns it and its key in PEM.
pub fn issue_pem(issuer: &CertifiedIssuer<'_, KeyPair>, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.into()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// A wall clock that stands still, so that tests do not depend on the machine's clock.
#[derive(Debug)]
pub struct StoppedClock;

impl WallClock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }
}

pub fn clock() -> Arc<dyn WallClock> {
    Arc::new(StoppedClock)
}

pub fn client_settings() -> ClientSettings {
    ClientSettings {
        alpn: vec![ALPN.to_vec()],
        roots: Roots::Pem(authority().pem.clone().into_bytes()),
        ..ClientSettings::new(clock())
    }
}

pub fn server_settings() -> ServerSettings {
    ServerSettings {
        alpn: vec![ALPN.to_vec()],
        ..ServerSettings::new(authority().localhost.clone(), clock())
    }
}

pub fn with_transport(change: impl Fn(&mut TransportSettings)) -> (ClientSettings, ServerSettings) {
    let (mut client, mut server) = (client_settings(), server_settings());
    change(&mut client.transport);
    change(&mut server.transport);
    (client, server)
}

/// The faults that the simulated link adds to datagrams.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub latency: Duration,
    /// Probabilities in percent.
    pub loss: u32,
    pub reorder: u32,
    pub duplicate: u32,
    pub corrupt: u32,
    /// The probability of a congestion mark on a datagram with ECN (RFC 3168), in percent.
    pub mark: u32,
    /// The largest UDP payload that passes.
    pub mtu: usize,
    /// True if the link clears the ECN bits of datagrams.
    pub bleaches: bool,
    /// The capacity of one direction in bytes a second. `None`: no limit.
    pub rate: Option<u32>,
    /// How many bytes may wait in one direction. Further datagrams are lost.
    pub queue: u32,
}

impl Default for Link {
    fn default() -> Self {
        let latency = Duration::from_millis(5);
        Self {
            latency,
            loss: 0,
            reorder: 0,
            duplicate: 0,
            corrupt: 0,
            mark: 0,
            mtu: 65_507,
            bleaches: false,
            rate: None,
            queue: 100_000,
        }
    }
}

/// The random number generator SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn percent(&mut self, chance: u32) -> bool {
        self.next() % 100 < u64::from(chance)
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Client,
    Server,
}

use Who::{Client, Server};

impl Who {
    pub fn other(self) -> Self {
        match self {
            Client => Server,
            Server => Client,
        }
    }
}

/// One endpoint on the link, and the events that it has produced.
pub struct Peer {
    pub endpoint: Endpoint,
    pub addr: SocketAddr,
    /// The addresses of further sockets, which have the numbers from 1 on.
    pub more_addrs: Vec<SocketAddr>,
    pub events: Vec<(ConnectionKey, Event)>,
    /// The data received on each stream, its FIN, and the number of events and pieces.
    pub streams: BTreeMap<(ConnectionKey, u64), Received>,
    /// The number of datagrams that this side has sent.
    pub sent: usize,
    /// While this is true, all packets of this side are lost.
    pub is_mute: bool,
    /// The time until which the sending of earlier packets of this side occupies the link.
    pub link_busy_until: Option<Instant>,
}

#[derive(Default)]
pub struct Received {
    pub data: Vec<u8>,
    pub fin: bool,
    pub events: usize,
    pub pieces: usize,
}

/// Error code, frame type, reason and kind of a `Closed` event.
pub type Closed = (u64, Option<u64>, String, CloseKind);

impl Peer {
    fn new(endpoint: Endpoint, addr: &str) -> Self {
        Self {
            endpoint,
            addr: addr.parse().unwrap(),
            more_addrs: Vec::new(),
            events: Vec::new(),
            streams: BTreeMap::new(),
            sent: 0,
            is_mute: false,
            link_busy_until: None,
        }
    }

    fn addr_of(&self, socket: u32) -> SocketAddr {
        match socket {
            0 => self.addr,
            number => self.more_addrs[number as usize - 1],
        }
    }

    fn socket_of(&self, addr: SocketAddr) -> Option<u32> {
        let all = std::iter::once(&self.addr).chain(&self.more_addrs);
        all.zip(0..)
            .find(|(found, _)| **found == addr)
            .map(|(_, number)| number)
    }

    pub fn take_events(&mut self) -> bool {
        let before = self.events.len();
        while let Some((key, event)) = self.endpoint.poll_event() {
            if let Event::StreamData {
                stream_id,
                data,
                fin,
            } = &event
            {
                let received = self.streams.entry((key, *stream_id)).or_default();
                assert!(!received.fin, "data after the FIN");
                let mut copy = vec![0; data.len()];
                data.copy_into(&mut copy);
                received.data.extend_from_slice(&copy);
                received.fin = *fin;
                received.events += 1;
                received.pieces += data.pieces().len();
            }
            self.events.push((key, event));
        }
        self.events.len() > before
    }

    pub fn has(&self, key: ConnectionKey, matches: impl Fn(&Event) -> bool) -> bool {
        self.events
            .iter()
            .any(|(found, event)| *found == key && matches(event))
    }

    /// The `Closed` event of a connection. Checks that it is the only one and the last event.
    pub fn closed(&self, key: ConnectionKey) -> Option<Closed> {
        let events: Vec<_> = self
            .events
            .iter()
            .filter(|(found, _)| *found == key)
            .collect();
        let at = events
            .iter()
            .position(|(_, event)| matches!(event, Event::Closed { .. }))?;
        assert_eq!(
            at + 1,
            events.len(),
            "Closed is emitted once, as the last event: {events:?}"
        );
        match &events[at].1 {
            Event::Closed {
                error_code,
                frame_type,
                reason,
                kind,
            } => Some((*error_code, *frame_type, reason.clone(), *kind)),
            _ => unreachable!(),
        }
    }

    pub fn received(&self, key: ConnectionKey, stream_id: u64) -> &[u8] {
        self.streams
            .get(&(key, stream_id))
            .map_or(&[], |received| &received.data)
    }

    pub fn finished(&self, key: ConnectionKey, stream_id: u64) -> bool {
        self.streams
            .get(&(key, stream_id))
            .is_some_and(|received| received.fin)
    }
}

struct Payload {
    data: Vec<u8>,
    ecn: Option<u8>,
    from: SocketAddr,
    to: SocketAddr,
}

pub struct Pair {
    pub client: Peer,
    pub server: Peer,
    pub client_setup: ClientSetup,
    pub now: Instant,
    pub begin: Instant,
    pub link: Link,
    pub random: Random,
    flights: BinaryHeap<Reverse<(Instant, u64, Who)>>,
    payloads: BTreeMap<u64, Payload>,
    /// The source address of all the client's packets at the server. `None`: the client's own address.
    pub nat: Option<SocketAddr>,
    /// Addresses to which all packets are lost.
    pub dead: Vec<SocketAddr>,
    /// The sizes of all datagrams that were sent to each address.
    pub sent_to: BTreeMap<SocketAddr, Vec<usize>>,
    /// The number of bytes that have arrived at the server from each address.
    pub received_from: BTreeMap<SocketAddr, usize>,
    /// The addresses that connections of the server have validated.
    pub validated: BTreeSet<SocketAddr>,
    flight_count: u64,
    /// Datagrams that were recorded, for tests that mutate or replay them.
    pub recorded: Vec<(Who, Vec<u8>)>,
    pub record: bool,
    /// True to drop datagrams to all addresses but the peer's, because a test sends packets from others.
    pub has_strangers: bool,
    seed: u64,
}

impl Pair {
    pub fn new(client: ClientSettings, server: ServerSettings) -> Self {
        Self::with(client, server, EndpointSettings::default())
    }

    pub fn with(
        client: ClientSettings,
        server: ServerSettings,
        server_endpoint: EndpointSettings,
    ) -> Self {
        let seed = std::env::var("SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(SEED);
        // A program can set its logger only once, so the first test sets it for all.
        if log::set_logger(&QUINN_WARNINGS).is_ok() {
            log::set_max_level(log::LevelFilter::Warn);
        }
        let mut random = Random::new(seed);
        let mut rng_seed = || {
            let mut bytes = [0; 32];
            bytes
                .iter_mut()
                .for_each(|byte| *byte = random.next() as u8);
            Some(bytes)
        };
        let client_endpoint = EndpointSettings {
            rng_seed: rng_seed(),
            ..EndpointSettings::default()
        };
        let server_endpoint = EndpointSettings {
            rng_seed: rng_seed(),
            ..server_endpoint
        };
        let server_setup = ServerSetup::new(&server).unwrap();
        let begin = Instant::now();
        Self {
            client: Peer::new(Endpoint::new(client_endpoint, None), "10.0.0.1:50000"),
            server: Peer::new(
                Endpoint::new(server_endpoint, Some(server_setup)),
                "10.0.0.2:443",
            ),
            client_setup: ClientSetup::new(&client).unwrap(),
            now: begin,
            begin,
            link: Link::default(),
            random,
            flights: BinaryHeap::new(),
            payloads: BTreeMap::new(),
            nat: None,
            dead: Vec::new(),
            sent_to: BTreeMap::new(),
            received_from: BTreeMap::new(),
            validated: BTreeSet::new(),
            flight_count: 0,
            recorded: Vec::new(),
            record: false,
            has_strangers: false,
            seed,
        }
    }

    pub fn default_pair() -> Self {
        Self::new(client_settings(), server_settings())
    }

    pub fn link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }

    pub fn peer(&mut self, who: Who) -> &mut Peer {
        match who {
            Client => &mut self.client,
            Server => &mut self.server,
        }
    }

    pub fn connect(&mut self) -> ConnectionKey {
        self.connect_to("localhost")
    }

    pub fn connect_to(&mut self, name: &str) -> ConnectionKey {
        let setup = self.client_setup.clone();
        self.client
            .endpoint
            .connect(self.now, &setup, self.server.addr, name)
            .unwrap()
    }

    /// Connects, and completes the handshake on both sides.
    pub fn establish(&mut self) -> (ConnectionKey, ConnectionKey) {
        let before = self.server.events.len();
        let key = self.connect();
        let is_completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
        self.run_until("the handshake", |pair| {
            pair.client.has(key, is_completed)
                && pair.server.events[before..]
                    .iter()
                    .any(|(_, event)| is_completed(event))
        });
        let accepted = self.server.events[before..]
            .iter()
            .find(|(_, event)| *event == Event::Accepted)
            .expect("the server accepted");
        (key, accepted.0)
    }

    pub fn close(
        &mut self,
        who: Who,
        key: ConnectionKey,
        error_code: u64,
        frame_type: Option<u64>,
        reason: &[u8],
    ) {
        let now = self.now;
        let conn = self.peer(who).endpoint.connection(key).unwrap();
        conn.close(now, error_code, frame_type, reason);
    }

    /// Runs one loop iteration: delivers datagrams that are due, fires timers, then takes events and datagrams. Returns
    /// false if nothing is pending any more.
    pub fn step(&mut self) -> bool {
        self.exchange();
        let timeouts = [
            self.client.endpoint.next_timeout(),
            self.server.endpoint.next_timeout(),
        ];
        let flight = self.flights.peek().map(|Reverse((at, _, _))| *at);
        let Some(next) = timeouts.into_iter().flatten().chain(flight).min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.arrive();
        for who in [Client, Server] {
            let now = self.now;
            let endpoint = &mut self.peer(who).endpoint;
            if endpoint.next_timeout().is_some_and(|at| at <= now) {
                endpoint.handle_timeout(now);
            }
        }
        self.exchange();
        true
    }

    /// Exchanges datagrams and takes events, without delay, until both sides have no more to send.
    pub fn exchange(&mut self) {
        for who in [Client, Server] {
            loop {
                let sent = self.transmit(who);
                if !self.peer(who).take_events() && !sent {
                    break;
                }
            }
        }
    }

    fn transmit(&mut self, who: Who) -> bool {
        let (now, mut buf, mut sent) = (self.now, Vec::new(), false);
        while let Some(transmit) = self.peer(who).endpoint.poll_transmit(now, &mut buf) {
            assert_eq!(transmit.size, buf.len());
            assert!(buf.len() <= 65_507, "a batch of {} bytes", buf.len());
            if self.has_strangers && transmit.remote != self.peer(who.other()).addr {
                continue;
            }
            let from = self.peer(who).addr_of(transmit.socket);
            let is_from_there = |ip| ip == from.ip();
            assert!(transmit.src_ip.is_none_or(is_from_there), "{transmit:?}");
            sent = true;
            let size = transmit.segment_size.unwrap_or(buf.len());
            for datagram in buf.chunks(size) {
                self.peer(who).sent += 1;
                self.send_over_link(who, from, transmit.remote, datagram.to_vec(), transmit.ecn);
            }
            if who == Server {
                self.check_amplification(transmit.remote);
            }
        }
        sent
    }

    /// RFC 9000 section 8.1: asserts that an unproved address gets at most three times the bytes that came from it.
    fn check_amplification(&mut self, to: SocketAddr) {
        let endpoint = &self.server.endpoint;
        let connections = endpoint.keys().filter_map(|key| endpoint.peek(key));
        self.validated
            .extend(connections.filter_map(|connection| connection.validated_addr()));
        if self.validated.contains(&to) {
            return;
        }
        let sent: usize = self.sent_to[&to].iter().sum();
        let received = self.received_from.get(&to).copied().unwrap_or_default();
        assert!(
            sent <= 3 * received,
            "{to} sent {received} bytes, got {sent} (SEED={})",
            self.seed
        );
    }

    /// Sends a datagram over the link.
    fn send_over_link(
        &mut self,
        from: Who,
        source: SocketAddr,
        to: SocketAddr,
        mut datagram: Vec<u8>,
        ecn: Option<u8>,
    ) {
        if self.record {
            self.recorded.push((from, datagram.clone()));
        }
        self.sent_to.entry(to).or_default().push(datagram.len());
        let link = self.link;
        let is_dead = self.dead.contains(&source) || self.dead.contains(&to);
        if is_dead || self.peer(from).is_mute || self.random.percent(link.loss) {
            return;
        }
        if datagram.len() > link.mtu {
            return;
        }
        let ecn = match ecn {
            _ if link.bleaches => None,
            Some(ECT_0) if self.random.percent(link.mark) => Some(CE),
            other => other,
        };
        if self.random.percent(link.corrupt) {
            let at = self.random.below(datagram.len());
            datagram[at] ^= 1 << self.random.below(8);
        }
        let copies = if self.random.percent(link.duplicate) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let Some(entered) = self.time_through_link(from, datagram.len()) else {
                continue;
            };
            let mut at = entered + link.latency;
            if self.random.percent(link.reorder) {
                at += link.latency * (1 + self.random.below(4) as u32);
            }
            self.flights
                .push(Reverse((at, self.flight_count, from.other())));
            let payload = Payload {
                data: datagram.clone(),
                ecn,
                from: source,
                to,
            };
            self.payloads.insert(self.flight_count, payload);
            self.flight_count += 1;
        }
    }

    /// The time at which the last bit of a datagram enters the link, after the datagrams before it. `None` if the
    /// link's queue is full.
    fn time_through_link(&mut self, from: Who, length: usize) -> Option<Instant> {
        let (now, link) = (self.now, self.link);
        let busy_until = &mut self.peer(from).link_busy_until;
        let Some(rate) = link.rate else {
            return Some(now);
        };
        let time = |bytes: usize| Duration::from_secs_f64(bytes as f64 / f64::from(rate));
        let begin = busy_until.map_or(now, |at| at.max(now));
        if begin - now > time(link.queue as usize) {
            return None;
        }
        *busy_until = Some(begin + time(length));
        *busy_until
    }

    /// Delivers all datagrams whose time of arrival has come.
    pub fn arrive(&mut self) {
        while let Some(Reverse((at, number, to))) = self.flights.peek().copied() {
            if at > self.now {
                break;
            }
            self.flights.pop();
            let payload = self.payloads.remove(&number).unwrap();
            self.arrive_at(to, &payload);
        }
    }

    fn arrive_at(&mut self, to: Who, payload: &Payload) {
        let (mut from, mut addr) = (payload.from, payload.to);
        if let Some(nat) = self.nat {
            match to {
                Server => from = nat,
                // Datagrams to a former mapping of the NAT are dropped.
                Client if addr == nat => addr = self.client.addr,
                Client => return,
            }
        }
        let now = self.now;
        if to == Server {
            *self.received_from.entry(from).or_default() += payload.data.len();
        }
        let peer = self.peer(to);
        let Some(socket) = peer.socket_of(addr) else {
            return;
        };
        let meta = DatagramMeta {
            remote: from,
            local_ip: (to == Server).then(|| addr.ip()),
            ecn: payload.ecn,
        };
        let data = BytesMut::from(&payload.data[..]);
        peer.endpoint.handle_datagram_at(now, socket, meta, data);
    }

    /// Delivers a datagram to `to` as if the other side had sent it.
    pub fn deliver(&mut self, to: Who, datagram: &[u8], ecn: Option<u8>) {
        let meta = DatagramMeta {
            remote: self.peer(to.other()).addr,
            local_ip: None,
            ecn,
        };
        if to == Server {
            *self.received_from.entry(meta.remote).or_default() += datagram.len();
        }
        let now = self.now;
        self.peer(to)
            .endpoint
            .handle_datagram(now, meta, BytesMut::from(datagram));
    }

    /// Delivers a datagram to the server as if it had come from `remote`.
    pub fn deliver_from(&mut self, remote: SocketAddr, datagram: &[u8]) {
        *self.received_from.entry(remote).or_default() += datagram.len();
        let meta = DatagramMeta {
            remote,
            local_ip: None,
            ecn: None,
        };
        let now = self.now;
        let datagram = BytesMut::from(datagram);
        self.server.endpoint.handle_datagram(now, meta, datagram);
    }

    /// Runs until `done`, for at most ten simulated minutes.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&mut Self) -> bool) {
        let limit = self.now + Duration::from_secs(600);
        loop {
            self.exchange();
            if done(self) {
                return;
            }
            if !self.step() || self.now > limit {
                let events = |peer: &Peer| {
                    let tail = peer.events.len().saturating_sub(5);
                    format!("{:?}", &peer.events[tail..])
                };
                panic!(
                    "{what} did not happen (SEED={}). Client: {}. Server: {}",
                    self.seed,
                    events(&self.client),
                    events(&self.server)
                );
            }
        }
    }

    /// Lets simulated time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.exchange();
            let timeouts = [
                self.client.endpoint.next_timeout(),
                self.server.endpoint.next_timeout(),
            ];
            let flight = self.flights.peek().map(|Reverse((at, _, _))| *at);
            match timeouts.into_iter().flatten().chain(flight).min() {
                Some(next) if next <= end => {
                    self.step();
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// The client sends `data` on stream 0. When the server has read it, the server pauses the stream.
    pub fn pause_behind(
        &mut self,
        client: ConnectionKey,
        server: ConnectionKey,
        data: &'static [u8],
    ) {
        let conn = self.client.endpoint.connection(client).unwrap();
        conn.send_stream(0, Bytes::from_static(data), false)
            .unwrap();
        self.run_until("the stream", |pair| pair.server.received(server, 0) == data);
        let conn = self.server.endpoint.connection(server).unwrap();
        conn.pause_stream(0);
    }

    /// Runs until both sides have dropped all state.
    pub fn run_until_idle(&mut self) {
        self.run_until("both endpoints being idle", |pair| {
            pair.client.endpoint.is_idle() && pair.server.endpoint.is_idle()
        });
        assert_eq!(
            (self.client.endpoint.len(), self.server.endpoint.len()),
            (0, 0)
        );
        let timeouts = [
            self.client.endpoint.next_timeout(),
            self.server.endpoint.next_timeout(),
        ];
        assert_eq!(timeouts, [None, None], "no timer outlives its connection");
        assert_eq!(
            QUINN_WARNINGS.count.load(Ordering::Relaxed),
            0,
            "quinn-proto has logged a warning"
        );
    }

    pub fn elapsed(&self) -> Duration {
        self.now - self.begin
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("link {:?}, SEED={}", self.link, self.seed);
        }
    }
}

/// Counts quinn-proto's warnings about wrong use: an `Incoming` that was dropped, or a connection that was drained
/// twice. Nothing else shows such leaks.
struct QuinnWarnings {
    count: AtomicUsize,
}

static QUINN_WARNINGS: QuinnWarnings = QuinnWarnings {
    count: AtomicUsize::new(0),
};

impl log::Log for QuinnWarnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        let message = record.args().to_string();
        if message.contains("Incoming dropped") || message.contains("unknown connection drained") {
            eprintln!("{message}");
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// A TLS key log that collects lines.
#[derive(Debug, Default)]
pub struct KeyLines(pub std::sync::Mutex<Vec<String>>);

impl rustls::KeyLog for KeyLines {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{label} {}", secret.len()));
    }
}

pub fn key_lines() -> Arc<KeyLines> {
    Arc::default()
}

const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;
const SEED: u64 = 0x5eed;
