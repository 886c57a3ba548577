//! A server that raises the limit on all streams' data in the datagram that completes its client's handshake.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use quinn_proto::VarInt;

use crate::{
    ClientSettings, ClientSetup, ConnectionKey, DatagramMeta, Endpoint, EndpointSettings, Event,
    ServerSettings, ServerSetup,
    tls::{Identity, MemorySessions, SessionStore, SessionTicket, WallClock},
};

#[derive(Debug)]
struct StoppedClock;

impl WallClock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }
}

struct World {
    client: Endpoint,
    server: Endpoint,
    key: ConnectionKey,
    ticket: Option<SessionTicket>,
    early_data_accepted: Option<bool>,
    received: usize,
    now: Instant,
}

impl World {
    fn new(
        identity: &Identity,
        sessions: &Arc<dyn SessionStore>,
        max_data: u64,
        ticket: Option<SessionTicket>,
    ) -> Self {
        let client = ClientSettings {
            alpn: vec![b"test".to_vec()],
            verify: false,
            session_ticket: ticket,
            ..ClientSettings::new(Arc::new(StoppedClock))
        };
        let mut server = ServerSettings {
            alpn: vec![b"test".to_vec()],
            early_data: true,
            sessions: Some(sessions.clone()),
            ..ServerSettings::new(identity.clone(), Arc::new(StoppedClock))
        };
        server.transport.max_data = max_data;
        let client = ClientSetup::new(&client).unwrap();
        let server = ServerSetup::new(&server).unwrap();
        let now = Instant::now();
        let mut endpoint = Endpoint::new(EndpointSettings::default(), None);
        let address = SERVER.parse().unwrap();
        let key = endpoint
            .connect(now, &client, address, "localhost")
            .unwrap();
        Self {
            client: endpoint,
            server: Endpoint::new(EndpointSettings::default(), Some(server)),
            key,
            ticket: None,
            early_data_accepted: None,
            received: 0,
            now,
        }
    }

    /// Delivers all datagrams of the client to the server. Returns true if there were any.
    fn deliver_to_server(&mut self) -> bool {
        let is_sent = carry(&mut self.client, &mut self.server, CLIENT, self.now);
        while let Some((_, event)) = self.server.poll_event() {
            if let Event::StreamData { data, .. } = event {
                self.received += data.len();
            }
        }
        is_sent
    }

    fn deliver_to_client(&mut self) -> bool {
        let is_sent = carry(&mut self.server, &mut self.client, SERVER, self.now);
        while let Some((_, event)) = self.client.poll_event() {
            match event {
                Event::SessionTicket(ticket) => self.ticket = Some(*ticket),
                Event::HandshakeCompleted {
                    early_data_accepted,
                    ..
                } => {
                    self.early_data_accepted = Some(early_data_accepted);
                }
                _ => {}
            }
        }
        is_sent
    }

    fn run(&mut self) {
        for _ in 0..1_000 {
            if !(self.deliver_to_server() | self.deliver_to_client()) {
                self.now += Duration::from_millis(100);
                self.client.handle_timeout(self.now);
                self.server.handle_timeout(self.now);
            }
        }
    }
}

fn carry(from: &mut Endpoint, to: &mut Endpoint, address: &str, now: Instant) -> bool {
    let meta = DatagramMeta {
        remote: address.parse().unwrap(),
        local_ip: None,
        ecn: None,
    };
    let (mut buf, mut is_sent) = (Vec::new(), false);
    while let Some(transmit) = from.poll_transmit(now, &mut buf) {
        is_sent = true;
        let size = transmit.segment_size.unwrap_or(buf.len());
        for datagram in buf.chunks(size) {
            to.handle_datagram(now, meta, BytesMut::from(datagram));
        }
    }
    is_sent
}

#[test]
fn max_data_in_the_last_handshake_datagram_counts_after_rejected_0rtt_data() {
    let certified = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    let (chain, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let sessions: Arc<dyn SessionStore> = Arc::new(MemorySessions::new(10));
    let mut before = World::new(&identity, &sessions, 1 << 20, None);
    before.run();
    assert!(before.ticket.is_some());

    let mut world = World::new(&identity, &sessions, SMALL, before.ticket);
    let connection = world.client.connection(world.key).unwrap();
    let data = Bytes::from(vec![1; LENGTH]);
    connection.send_stream(0, data, true).unwrap();
    world.deliver_to_server();
    // RFC 9001 section 5.7: a server may send 1-RTT packets before the handshake is complete.
    let (_, entry) = world.server.connections.iter_mut().next().unwrap();
    let window = VarInt::from_u32(1 << 19);
    entry.connection.quinn().set_receive_window(window);
    world.deliver_to_client();
    assert_eq!(world.early_data_accepted, Some(false));
    world.run();
    assert_eq!(world.received, LENGTH);
}

const CLIENT: &str = "10.0.0.1:1000";
const SERVER: &str = "10.0.0.2:443";
/// The server's initial limit. It is smaller than the data, so that the client must wait for MAX_DATA.
const SMALL: u64 = 1;
const LENGTH: usize = 100_000;
