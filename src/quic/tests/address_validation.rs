//! Address validation by a server, and the bytes that it sends to addresses that are not validated (RFC 9000 sections
//! 8 and 9.3). In every test of this program the simulated link asserts, for each datagram of a server, that an
//! unproved address gets at most three times the bytes that came from it.

use std::{net::SocketAddr, time::Duration};

use crate::support::{
    ALPN, Link, Pair, Random, Who, client_settings, clock, issue_long, server_settings,
    with_transport,
};
use bytes::Bytes;
use uringcore_quic::{ConnectionKey, EndpointSettings, Event, ServerSettings};

fn pattern(seed: u64, length: usize) -> Bytes {
    Random::new(seed).bytes(length).into()
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// An address that no endpoint of the simulated network has.
const FORGED: &str = "203.0.113.5:5000";
const CLIENT: &str = "10.0.0.1:50000";

/// A client and a server with a confirmed handshake and nothing left to send.
fn idle_pair() -> (Pair, ConnectionKey, ConnectionKey) {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(2));
    (pair, client, server)
}

fn validated(pair: &Pair, server: ConnectionKey) -> Option<SocketAddr> {
    pair.server.endpoint.peek(server).unwrap().validated_addr()
}

/// Gives the client's next datagrams the source address `source`. Packets to it are lost.
fn forge(pair: &mut Pair, source: SocketAddr) {
    pair.nat = Some(source);
    pair.dead = vec![source];
}

fn forge_no_more(pair: &mut Pair) {
    pair.nat = None;
    pair.dead.clear();
}

fn bytes_to(pair: &Pair, to: SocketAddr) -> usize {
    pair.sent_to.get(&to).map_or(0, |sizes| sizes.iter().sum())
}

#[test]
fn the_handshake_validates_the_first_address() {
    let mut pair = Pair::default_pair();
    let key = pair.connect();
    pair.run_until("the server's first flight", |pair| pair.server.sent > 0);
    let server = pair.server.events[0].0;
    assert_eq!(validated(&pair, server), None);
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.server.has(server, completed));
    assert_eq!(validated(&pair, server), Some(addr(CLIENT)));
    let client = pair.client.endpoint.peek(key).unwrap();
    assert_eq!(client.validated_addr(), Some(pair.server.addr));
    let reported = |event: &Event| matches!(event, Event::AddressValidated { .. });
    assert!(
        !pair.server.has(server, reported),
        "the handshake has validated the address"
    );
}

#[test]
fn a_packet_from_a_forged_address_does_not_move_the_client() {
    let (mut pair, client, server) = idle_pair();
    forge(&mut pair, addr(FORGED));
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"GET"), true)
        .unwrap();
    pair.run_until("the request", |pair| pair.server.finished(server, 0));
    let peer = pair.server.endpoint.peek(server).unwrap();
    assert_eq!(
        peer.remote_addr(),
        addr(FORGED),
        "packets go to the new address"
    );
    assert_eq!(peer.validated_addr(), Some(addr(CLIENT)));
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(0, pattern(1, 100_000), true).unwrap();
    pair.run_for(Duration::from_millis(5));
    forge_no_more(&mut pair);
    pair.run_until("the answer", |pair| pair.client.finished(client, 0));
    assert_eq!(pair.client.received(client, 0), pattern(1, 100_000));
    assert_eq!(validated(&pair, server), Some(addr(CLIENT)));
    let reported = |event: &Event| matches!(event, Event::AddressValidated { .. });
    assert!(!pair.server.has(server, reported));
}

#[test]
fn a_forged_address_gets_at_most_three_times_its_bytes() {
    let (mut pair, client, server) = idle_pair();
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(1, pattern(2, 1_000_000), true).unwrap();
    forge(&mut pair, addr(FORGED));
    pair.client.endpoint.connection(client).unwrap().ping(1);
    pair.run_until("the packet", |pair| {
        pair.received_from.contains_key(&addr(FORGED))
    });
    pair.client.is_mute = true;
    let received = pair.received_from[&addr(FORGED)];
    assert!(received < 60, "{received}");
    pair.run_for(Duration::from_secs(3));
    let sent = bytes_to(&pair, addr(FORGED));
    assert!((1..=3 * received).contains(&sent), "{sent}");
    // RFC 9000 section 9.3.3: the server probes the client's previous address.
    assert!(bytes_to(&pair, addr(CLIENT)) >= 1_200);
}

#[test]
fn a_nat_rebinding_is_followed_within_a_few_round_trips() {
    for source in ["10.0.0.1:6000", "192.0.2.7:6000"] {
        let (mut pair, client, server) = idle_pair();
        let data = pattern(3, 4 << 20);
        let conn = pair.server.endpoint.connection(server).unwrap();
        conn.send_stream(1, data.clone(), true).unwrap();
        pair.run_until("half of it", |pair| {
            pair.client.received(client, 1).len() > 2 << 20
        });
        // The client only sends acknowledgements, which are the smallest packets.
        pair.nat = Some(addr(source));
        let round_trip = 2 * pair.link.latency;
        let (before, begin) = (pair.client.received(client, 1).len(), pair.now);
        pair.run_until("the move", |pair| pair.validated.contains(&addr(source)));
        assert!(pair.now - begin <= 3 * round_trip, "{:?}", pair.now - begin);
        pair.run_until("more", |pair| {
            pair.client.received(client, 1).len() > before + 200_000
        });
        assert!(
            pair.now - begin <= 12 * round_trip,
            "{:?}",
            pair.now - begin
        );
        pair.run_until("all", |pair| pair.client.finished(client, 1));
        assert!(pair.client.received(client, 1) == data);
        let reported = Event::AddressValidated {
            address: addr(source),
        };
        assert!(pair.server.has(server, |event| *event == reported));
        assert_eq!(validated(&pair, server), Some(addr(source)));
    }
}

#[test]
fn a_challenge_that_is_lost_is_repeated() {
    let (mut pair, client, server) = idle_pair();
    let there = addr("192.0.2.7:6000");
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(1, pattern(4, 8_000), false).unwrap();
    pair.run_until("the first part", |pair| {
        pair.client.received(client, 1).len() == 8_000
    });
    // The client acknowledges the challenge from its new address, and has nothing left to send.
    pair.nat = Some(there);
    pair.dead = vec![there];
    pair.run_until("the challenge", |pair| pair.sent_to.contains_key(&there));
    pair.run_for(pair.link.latency * 2);
    pair.dead.clear();
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(1, pattern(5, 8_000), true).unwrap();
    pair.run_until("the rest", |pair| pair.client.finished(client, 1));
    assert_eq!(pair.client.received(client, 1)[8_000..], pattern(5, 8_000));
    assert_eq!(validated(&pair, server), Some(there));
}

#[test]
fn a_forged_first_flight_gets_at_most_three_times_its_bytes() {
    for (copies, names) in [(1, 1), (1, 100), (3, 1), (3, 100)] {
        let mut pair = Pair::new(client_settings(), server_with_names(names));
        let key = pair.connect();
        let _ = key;
        pair.client.is_mute = true;
        pair.record = true;
        pair.exchange();
        let flight: Vec<_> = pair.recorded.drain(..).collect();
        for (_, datagram) in flight.iter().cycle().take(flight.len() * copies) {
            pair.deliver_from(addr(FORGED), datagram);
            pair.run_for(Duration::from_millis(300));
        }
        pair.run_for(Duration::from_secs(30));
        let (sent, received) = (
            bytes_to(&pair, addr(FORGED)),
            pair.received_from[&addr(FORGED)],
        );
        assert!(sent > 0 && sent <= 3 * received, "{sent} of {received}");
    }
}

fn server_with_names(names: usize) -> ServerSettings {
    ServerSettings {
        alpn: vec![ALPN.to_vec()],
        ..ServerSettings::new(issue_long(names), clock())
    }
}

#[test]
fn a_usual_certificate_chain_fits_in_the_first_flight() {
    let mut pair = Pair::new(client_settings(), server_with_names(50));
    let begin = pair.now;
    let (_, server) = pair.establish();
    // The server sends to the new address, to the old one, and to the new one again.
    assert!(pair.now - begin <= 3 * pair.link.latency);
    let flight: usize = pair.sent_to[&addr(CLIENT)].iter().sum();
    assert!(flight > 3_000, "{flight}");
    assert!(validated(&pair, server).is_some());
}

/// A server whose first flight exceeds the limit of its client. Three times 1,200 bytes are no multiple of its
/// datagrams' 1,300 bytes, so the third datagram waits.
fn with_a_datagram_that_waits() -> (Pair, ConnectionKey, ConnectionKey) {
    let mut server = server_with_names(200);
    server.transport.max_datagram_size = 1_300;
    let mut pair = Pair::new(client_settings(), server);
    let client = pair.connect();
    pair.run_until("the first flight", |pair| pair.server.sent > 0);
    let server = pair.server.events[0].0;
    assert_eq!(pair.sent_to[&addr(CLIENT)], [1_300; 2]);
    assert_eq!(validated(&pair, server), None);
    (pair, client, server)
}

/// RFC 9000 section 10.2.2: a draining connection sends nothing.
#[test]
fn a_datagram_that_waits_does_not_leave_while_the_connection_is_draining() {
    let (mut pair, client, server) = with_a_datagram_that_waits();
    // By its CONNECTION_CLOSE the client would raise the amplification limit by three times the bytes of that packet.
    pair.close(Who::Client, client, 0, None, b"");
    let sent = pair.server.sent;
    pair.run_until("the close", |pair| pair.server.closed(server).is_some());
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.server.sent, sent);
}

/// RFC 9000 section 10.2.1: a closed connection sends nothing but CONNECTION_CLOSE.
#[test]
fn a_datagram_that_waits_does_not_leave_after_the_connection_was_closed() {
    let (mut pair, client, server) = with_a_datagram_that_waits();
    let sent = pair.server.sent;
    pair.close(Who::Server, server, 7, None, b"enough");
    pair.run_until("the close", |pair| pair.client.closed(client).is_some());
    pair.run_for(Duration::from_secs(10));
    let sizes = &pair.sent_to[&addr(CLIENT)][sent..];
    assert!(
        !sizes.is_empty() && sizes.iter().all(|size| *size < 600),
        "{sizes:?}"
    );
}

#[test]
fn migrations_are_limited() {
    let (mut pair, client, _) = idle_pair();
    for number in 0..100 {
        forge(
            &mut pair,
            SocketAddr::from(([203, 0, 113, 9], 1_000 + number)),
        );
        pair.client
            .endpoint
            .connection(client)
            .unwrap()
            .ping(number.into());
        pair.run_for(Duration::from_millis(6));
    }
    let is_forged = |to: &&SocketAddr| to.ip() == addr("203.0.113.9:1").ip();
    let moves = pair.sent_to.keys().filter(is_forged).count();
    assert!((5..=12).contains(&moves), "{moves}");
    let dropped = pair.server.endpoint.stats().moves_dropped as usize;
    assert_eq!(dropped, 100 - moves);
    forge_no_more(&mut pair);
    pair.run_for(Duration::from_secs(2));
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"on"), true)
        .unwrap();
    pair.run_for(Duration::from_secs(2));
    assert!(pair.server.streams.values().any(|stream| stream.fin));
}

/// A client migrates at random to addresses with and without connectivity. The link loses and duplicates packets, and
/// attackers replay packets from any address.
fn random_moves(seed: u64) {
    let link = Link {
        loss: 3,
        duplicate: 5,
        reorder: 5,
        ..Link::default()
    };
    let mut random = Random::new(seed);
    let idle_timeout = Duration::from_secs(600);
    let (client, server) = with_transport(|transport| transport.idle_timeout = idle_timeout);
    let mut pair = Pair::new(client, server).link(link);
    pair.random = Random::new(seed + 1);
    let (client, server) = pair.establish();
    let addresses: Vec<_> = (1..7)
        .map(|port| SocketAddr::from(([192, 0, 2, 1], port)))
        .collect();
    let data = pattern(seed, 600_000);
    for (peer, key, id) in [(Who::Client, client, 0), (Who::Server, server, 1)] {
        let conn = pair.peer(peer).endpoint.connection(key).unwrap();
        conn.send_stream(id, data.clone(), true).unwrap();
    }
    pair.record = true;
    for _ in 0..120 {
        match random.below(4) {
            0 => pair.nat = Some(addresses[random.below(addresses.len())]),
            1 => pair.dead = vec![addresses[random.below(addresses.len())]],
            2 => pair.nat = None,
            _ => {
                let sent = |(who, _): &&(Who, Vec<u8>)| *who == Who::Client;
                let all: Vec<_> = pair.recorded.iter().filter(sent).cloned().collect();
                if let Some((_, datagram)) = all.get(random.below(all.len().max(1))) {
                    let from = SocketAddr::from(([203, 0, 113, 1], 1 + random.below(9) as u16));
                    pair.deliver_from(from, datagram);
                }
                pair.recorded.clear();
            }
        }
        if random.percent(30) {
            pair.client.endpoint.connection(client).unwrap().ping(9);
        }
        pair.run_for(Duration::from_millis(random.below(60) as u64));
    }
    pair.nat = None;
    pair.dead.clear();
    pair.run_until("all", |pair| {
        pair.server.finished(server, 0) && pair.client.finished(client, 1)
    });
    assert!(pair.server.received(server, 0) == data && pair.client.received(client, 1) == data);
    assert!(pair.validated.contains(&addr(CLIENT)));
}

#[test]
fn random_migrations_never_exceed_the_amplification_limit() {
    (0..40).for_each(random_moves);
}

#[test]
fn a_connection_is_counted_at_its_clients_proved_address() {
    let settings = EndpointSettings {
        max_connections_per_address: Some(1),
        ..EndpointSettings::default()
    };
    let is_refused = |pair: &mut Pair| {
        let key = pair.connect();
        let established = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
        pair.run_until("an answer", |pair| {
            pair.client.closed(key).is_some() || pair.client.has(key, established)
        });
        pair.client.closed(key).is_some()
    };
    let begin = || {
        let mut pair = Pair::with(client_settings(), server_settings(), settings.clone());
        let (client, server) = pair.establish();
        pair.run_for(Duration::from_secs(2));
        (pair, client, server)
    };
    let (mut pair, client, _) = begin();
    forge(&mut pair, addr(FORGED));
    pair.client.endpoint.connection(client).unwrap().ping(1);
    pair.run_until("the packet", |pair| {
        pair.sent_to.contains_key(&addr(FORGED))
    });
    forge_no_more(&mut pair);
    assert!(
        is_refused(&mut pair),
        "the connection is still counted at the old address"
    );

    let (mut pair, client, server) = begin();
    let there = addr("192.0.2.7:7000");
    pair.nat = Some(there);
    pair.client.endpoint.connection(client).unwrap().ping(1);
    pair.run_until("the proof", |pair| validated(pair, server) == Some(there));
    pair.run_for(Duration::from_secs(2));
    assert!(
        is_refused(&mut pair),
        "the connection is counted at the new address"
    );
    pair.nat = None;
    assert!(!is_refused(&mut pair), "and not here");
}
