//! QUIC versions 1 and 2, the choice between them, and attacks on the choice.

use std::{collections::BTreeSet, time::Duration};

use crate::support::{Link, Pair, Random, Who, client_settings, server_settings};
use bytes::Bytes;
use uringcore_quic::{
    ClientSettings, ClientSetup, CloseKind, ConnectionKey, EndpointSettings, Event, ServerSettings,
    VERSION_1, VERSION_2,
};

const RESERVED: u32 = 0x1a2a_3a4a;

fn client(supported: &[u32], original: Option<u32>) -> ClientSettings {
    ClientSettings {
        supported_versions: supported.to_vec(),
        original_version: original,
        ..client_settings()
    }
}

fn server(supported: &[u32]) -> ServerSettings {
    ServerSettings {
        supported_versions: supported.to_vec(),
        ..server_settings()
    }
}

fn version(pair: &mut Pair, who: Who, key: ConnectionKey) -> u32 {
    pair.peer(who).endpoint.peek(key).unwrap().version()
}

/// The versions in the long headers that one side has sent, in the order of their first appearance.
fn shown(pair: &Pair, by: Who) -> Vec<u32> {
    let mut found = Vec::new();
    for (who, datagram) in &pair.recorded {
        if *who == by && datagram[0] & 0x80 != 0 {
            let version = u32::from_be_bytes(datagram[1..5].try_into().unwrap());
            if !found.contains(&version) {
                found.push(version);
            }
        }
    }
    found
}

/// Connects, transfers data in both directions across key updates, and closes.
fn exchange(pair: &mut Pair, expected: u32) {
    pair.record = true;
    let (client, server) = pair.establish();
    assert_eq!(version(pair, Who::Client, client), expected);
    assert_eq!(version(pair, Who::Server, server), expected);
    let data: Bytes = Random::new(3).bytes(200_000).into();
    for (who, key, other, stream) in [
        (Who::Client, client, server, 0),
        (Who::Server, server, client, 1),
        (Who::Client, client, server, 4),
    ] {
        let conn = pair.peer(who).endpoint.connection(key).unwrap();
        conn.send_stream(stream, data.clone(), true).unwrap();
        pair.run_until("data", |pair| {
            pair.peer(who.other()).finished(other, stream)
        });
        assert!(pair.peer(who.other()).received(other, stream) == data);
        let conn = pair.peer(who).endpoint.connection(key).unwrap();
        conn.request_key_update();
    }
    pair.close(Who::Client, client, 7, None, b"done");
    pair.run_until_idle();
    let closed = pair.server.closed(server).unwrap();
    assert_eq!((closed.0, closed.3), (7, CloseKind::PeerApplication));
}

/// The client's versions, its first version, the server's versions, and the version that they choose.
type Case = (&'static [u32], Option<u32>, &'static [u32], u32);

const BOTH: &[u32] = &[VERSION_1, VERSION_2];
const TURNED: &[u32] = &[VERSION_2, VERSION_1];

/// Cases in which the handshake needs no Version Negotiation packet.
const WITHOUT_NEGOTIATION: [Case; 8] = [
    (BOTH, None, BOTH, VERSION_1),
    (&[VERSION_2], None, BOTH, VERSION_2),
    (&[VERSION_2], None, &[VERSION_2], VERSION_2),
    (&[VERSION_1], None, TURNED, VERSION_1),
    (TURNED, None, BOTH, VERSION_2),
    // In these cases the server switches to another version (compatible negotiation).
    (TURNED, Some(VERSION_1), BOTH, VERSION_2),
    (BOTH, Some(VERSION_2), TURNED, VERSION_1),
    (
        &[RESERVED, VERSION_2, VERSION_1],
        Some(VERSION_1),
        BOTH,
        VERSION_2,
    ),
];

/// Cases in which the client needs a Version Negotiation packet.
const WITH_NEGOTIATION: [Case; 6] = [
    (BOTH, None, &[VERSION_2], VERSION_2),
    (TURNED, None, &[VERSION_1], VERSION_1),
    (&[RESERVED, VERSION_1], None, BOTH, VERSION_1),
    (&[RESERVED, VERSION_2, VERSION_1], None, BOTH, VERSION_2),
    (BOTH, Some(0xface_b00c), &[VERSION_2], VERSION_2),
    (
        BOTH,
        Some(RESERVED),
        &[RESERVED, VERSION_2, VERSION_1],
        VERSION_1,
    ),
];

fn pair(case: &Case) -> Pair {
    Pair::new(client(case.0, case.1), server(case.2))
}

#[test]
fn the_version_is_chosen_in_the_first_flight() {
    for case in WITHOUT_NEGOTIATION {
        let mut pair = pair(&case);
        exchange(&mut pair, case.3);
        let first = case.1.unwrap_or(case.0[0]);
        let expected: BTreeSet<u32> = [first, case.3].into();
        let client: BTreeSet<u32> = shown(&pair, Who::Client).into_iter().collect();
        assert_eq!(client, expected, "{case:x?}");
        assert_eq!(shown(&pair, Who::Server), [case.3], "{case:x?}");
        let stats = pair.client.endpoint.stats();
        assert_eq!(stats.connections_begun_again, 0);
    }
}

#[test]
fn a_client_restarts_after_a_version_negotiation_packet() {
    for case in WITH_NEGOTIATION {
        for connection_id_length in [0, 8, 20] {
            let settings = EndpointSettings {
                connection_id_length,
                ..EndpointSettings::default()
            };
            let mut pair = Pair::with(client(case.0, case.1), server(case.2), settings);
            exchange(&mut pair, case.3);
            assert_eq!(pair.client.endpoint.stats().connections_begun_again, 1);
            assert_eq!(pair.server.endpoint.stats().versions_negotiated, 1);
            let client = shown(&pair, Who::Client);
            assert_eq!(client[0], case.1.unwrap_or(case.0[0]));
            assert_eq!(client[1..], [case.3]);
            assert_eq!(shown(&pair, Who::Server), [0, case.3]);
        }
    }
}

#[test]
fn first_packets_have_the_type_bits_of_version_2() {
    let mut pair = Pair::new(client(&[VERSION_2], None), server(BOTH));
    pair.record = true;
    pair.establish();
    let initial = |who: Who| {
        let found = pair.recorded.iter().find(|(by, _)| *by == who).unwrap();
        found.1[0] & 0xb0
    };
    // RFC 9369 section 3.2: an Initial packet of version 2 has type 1. The fixed bit may be greased, so it is masked.
    assert_eq!((initial(Who::Client), initial(Who::Server)), (0x90, 0x90));
}

#[test]
fn versions_are_negotiated_despite_loss_retry_and_large_client_hellos() {
    let alpn: Vec<Vec<u8>> = (0..20_u8)
        .map(|n| vec![b'a' + n; 250])
        .chain([crate::support::ALPN.to_vec()])
        .collect();
    for seed in 0..6 {
        for case in WITHOUT_NEGOTIATION.into_iter().chain(WITH_NEGOTIATION) {
            for retry in [false, true] {
                for large in [false, true] {
                    let mut client = client(case.0, case.1);
                    if large {
                        client.alpn = alpn.clone();
                    }
                    // With a quarter of all packets lost, a handshake may take long.
                    client.transport.idle_timeout = Duration::from_secs(300);
                    let mut server = ServerSettings {
                        retry: retry.into(),
                        ..server(case.2)
                    };
                    server.transport.idle_timeout = Duration::from_secs(300);
                    let settings = EndpointSettings {
                        handshake_timeout: Duration::from_secs(300),
                        ..EndpointSettings::default()
                    };
                    let mut pair = Pair::with(client, server, settings).link(Link {
                        loss: 25,
                        reorder: 10,
                        duplicate: 5,
                        ..Link::default()
                    });
                    pair.random = Random::new(1_000 + seed);
                    let (client, server) = pair.establish();
                    assert_eq!(version(&mut pair, Who::Client, client), case.3, "{case:x?}");
                    assert_eq!(version(&mut pair, Who::Server, server), case.3, "{case:x?}");
                    let conn = pair.client.endpoint.connection(client).unwrap();
                    conn.send_stream(0, vec![1; 20_000].into(), true).unwrap();
                    pair.run_until("data", |pair| pair.server.finished(server, 0));
                    let retried = pair.server.endpoint.stats().incoming_retried;
                    assert_eq!(retried > 0, retry);
                }
            }
        }
    }
}

#[test]
fn data_queued_before_a_restart_arrives() {
    let mut pair = Pair::new(client(BOTH, None), server(&[VERSION_2]));
    let key = pair.connect();
    let conn = pair.client.endpoint.connection(key).unwrap();
    conn.send_stream(0, Bytes::from_static(b"early"), true)
        .unwrap();
    conn.ping(9);
    pair.run_until("the ping's answer", |pair| {
        pair.client
            .has(key, |event| *event == Event::PingAcknowledged { uid: 9 })
    });
    let server = pair.server.events[0].0;
    assert_eq!(pair.server.received(server, 0), b"early");
}

#[test]
fn clients_of_several_versions_share_an_endpoint() {
    let mut pair = Pair::new(client(BOTH, None), server(BOTH));
    let mut keys = Vec::new();
    for case in WITHOUT_NEGOTIATION {
        pair.client_setup = ClientSetup::new(&client(case.0, case.1)).unwrap();
        keys.push((pair.connect(), case.3));
    }
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    for (key, expected) in keys {
        pair.run_until("a handshake", |pair| pair.client.has(key, completed));
        assert_eq!(version(&mut pair, Who::Client, key), expected);
    }
}

#[test]
fn no_common_version_ends_the_connection() {
    let mut pair = Pair::new(client(&[VERSION_1], None), server(&[VERSION_2]));
    let key = pair.connect();
    pair.run_until("the end", |pair| pair.client.closed(key).is_some());
    let closed = pair.client.closed(key).unwrap();
    assert_eq!(closed.3, CloseKind::VersionNegotiation);
    assert!(closed.2.contains("version"), "{closed:?}");
    assert!(pair.elapsed() < Duration::from_secs(1), "at once");
    pair.run_until_idle();
}

#[test]
fn settings_without_a_known_version_are_refused() {
    let error = ClientSetup::new(&client(&[RESERVED], None)).unwrap_err();
    assert_eq!(error.field, "supported_versions");
    let error = ClientSetup::new(&client(BOTH, Some(0))).unwrap_err();
    assert_eq!(error.field, "original_version");
    let error = uringcore_quic::ServerSetup::new(&server(&[RESERVED])).unwrap_err();
    assert_eq!(error.field, "supported_versions");
}

/// A forged Version Negotiation packet that answers the client's first packet.
fn forged(first: &[u8], versions: &[u32]) -> Vec<u8> {
    let (destination, rest) = first[6..].split_at(usize::from(first[5]));
    let source = &rest[1..=usize::from(rest[0])];
    let mut packet = vec![0xc0, 0, 0, 0, 0];
    for id in [source, destination] {
        packet.push(id.len() as u8);
        packet.extend(id);
    }
    versions
        .iter()
        .for_each(|version| packet.extend(version.to_be_bytes()));
    packet
}

fn first_flight(pair: &mut Pair) -> (ConnectionKey, Vec<u8>) {
    pair.record = true;
    let key = pair.connect();
    pair.exchange();
    (key, pair.recorded[0].1.clone())
}

#[test]
fn forged_version_negotiation_cannot_downgrade_the_version() {
    // Without the attack, both sides would use version 2.
    let mut pair = Pair::new(client(TURNED, None), server(BOTH));
    let (key, first) = first_flight(&mut pair);
    pair.deliver(Who::Client, &forged(&first, &[VERSION_1]), None);
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.client.has(key, completed));
    assert_eq!(pair.client.endpoint.stats().connections_begun_again, 1);
    assert_eq!(version(&mut pair, Who::Client, key), VERSION_2);
    // If the server supports no other version, the connection succeeds.
    let mut pair = Pair::new(client(TURNED, None), server(&[VERSION_1]));
    let (key, first) = first_flight(&mut pair);
    pair.deliver(Who::Client, &forged(&first, &[VERSION_1]), None);
    pair.run_until("the handshake", |pair| pair.client.has(key, completed));
    assert_eq!(version(&mut pair, Who::Client, key), VERSION_1);
}

#[test]
fn invalid_version_negotiation_packets_are_ignored() {
    let begun_again = |pair: &Pair| pair.client.endpoint.stats().connections_begun_again;
    let mut pair = Pair::new(client(BOTH, None), server(BOTH));
    let (key, first) = first_flight(&mut pair);
    // The packet offers the version that the client uses.
    pair.deliver(Who::Client, &forged(&first, BOTH), None);
    // The packet has other connection IDs.
    for at in [8, 18] {
        let mut other = forged(&first, &[VERSION_2]);
        other[at] ^= 1;
        pair.deliver(Who::Client, &other, None);
    }
    // The packet is truncated or empty.
    let whole = forged(&first, &[VERSION_2]);
    for length in 0..whole.len() {
        pair.deliver(Who::Client, &whole[..length], None);
    }
    // The forged packet is delivered to the server.
    pair.deliver(Who::Server, &whole, None);
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.client.has(key, completed));
    assert_eq!(version(&mut pair, Who::Client, key), VERSION_1);
    // The packet arrives when the handshake is complete.
    pair.deliver(Who::Client, &whole, None);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.client.closed(key).is_none());
    assert_eq!(begun_again(&pair), 0);
}

#[test]
fn version_negotiation_after_another_packet_is_ignored() {
    for retry in [false, true] {
        let server = ServerSettings {
            retry: retry.into(),
            ..server(BOTH)
        };
        let mut pair = Pair::new(client(BOTH, None), server);
        let (key, first) = first_flight(&mut pair);
        let forged = forged(&first, &[VERSION_2]);
        // The server's answer arrives before the forged packet. The client sends nothing meanwhile.
        pair.run_until("an answer", |pair| pair.server.sent > 0);
        pair.client.is_mute = true;
        pair.run_for(Duration::from_millis(25));
        pair.deliver(Who::Client, &forged, None);
        pair.exchange();
        pair.client.is_mute = false;
        let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
        pair.run_until("the handshake", |pair| pair.client.has(key, completed));
        assert_eq!(version(&mut pair, Who::Client, key), VERSION_1);
        assert_eq!(pair.client.endpoint.stats().connections_begun_again, 0);
    }
}

#[test]
fn a_forged_retry_does_not_block_the_genuine_one() {
    for supported in [&[VERSION_1][..], &[VERSION_2]] {
        let server = ServerSettings {
            retry: true.into(),
            ..server(BOTH)
        };
        let mut pair = Pair::new(client(supported, None), server);
        pair.record = true;
        let key = pair.connect();
        pair.run_until("the Retry", |pair| pair.server.sent > 0);
        let (_, retry) = pair.recorded.last().unwrap().clone();
        for at in [0, 3, retry.len() - 20, retry.len() - 1] {
            let mut forged = retry.clone();
            forged[at] ^= 1;
            pair.deliver(Who::Client, &forged, None);
        }
        let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
        pair.run_until("the handshake", |pair| pair.client.has(key, completed));
    }
}

#[test]
fn only_large_first_packets_of_unknown_versions_are_answered() {
    let mut pair = Pair::default_pair();
    let mut packet = vec![0xc0];
    packet.extend(RESERVED.to_be_bytes());
    // Connection IDs of an unknown version may be long (RFC 8999).
    packet.push(30);
    packet.extend([1; 30]);
    packet.push(40);
    packet.extend([2; 40]);
    packet.resize(1_199, 0);
    pair.deliver(Who::Server, &packet, None);
    pair.exchange();
    assert_eq!(pair.server.sent, 0);
    packet.push(0);
    pair.record = true;
    pair.deliver(Who::Server, &packet, None);
    pair.exchange();
    let (_, answer) = &pair.recorded[0];
    assert_eq!(answer[1..5], [0; 4]);
    assert_eq!((answer[5], &answer[6..46]), (40, &[2; 40][..]));
    assert_eq!((answer[46], &answer[47..77]), (30, &[1; 30][..]));
    let versions: Vec<u32> = answer[77..]
        .chunks(4)
        .map(|four| u32::from_be_bytes(four.try_into().unwrap()))
        .collect();
    assert_eq!(versions[0] & 0x0f0f_0f0f, 0x0a0a_0a0a, "greased");
    assert_eq!(versions[1..], *BOTH);
    // A server that accepts no more connections sends no answer, and neither does a client.
    pair.server.endpoint.refuse_incoming();
    pair.deliver(Who::Server, &packet, None);
    pair.deliver(Who::Client, &packet, None);
    pair.exchange();
    assert_eq!((pair.server.sent, pair.client.sent), (1, 0));
}

#[test]
fn the_fixed_bit_is_greased_and_accepted_greased() {
    let mut pair = Pair::new(client(TURNED, Some(VERSION_1)), server(BOTH));
    pair.record = true;
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 100_000].into(), true).unwrap();
    pair.run_until("data", |pair| pair.server.finished(server, 0));
    for who in [Who::Client, Who::Server] {
        let bits: BTreeSet<u8> = pair
            .recorded
            .iter()
            .filter(|(by, data)| *by == who && data[0] & 0x80 == 0)
            .map(|(_, data)| data[0] & 0x40)
            .collect();
        assert_eq!(
            bits,
            [0, 0x40].into(),
            "RFC 9287: the fixed bit is random once both sides support it"
        );
    }
}

#[test]
fn mutated_datagrams_of_all_versions_leave_no_state() {
    let mut recorded = Vec::new();
    for case in WITHOUT_NEGOTIATION.iter().chain(&WITH_NEGOTIATION) {
        let mut pair = pair(case);
        exchange(&mut pair, case.3);
        recorded.extend(
            pair.recorded
                .drain(..)
                .filter(|(_, data)| data[0] & 0x80 != 0),
        );
    }
    let mut random = Random::new(5);
    let mut pair = Pair::new(client(TURNED, Some(VERSION_1)), server(BOTH));
    pair.connect();
    for n in 0..60_000 {
        let (_, datagram) = &recorded[random.below(recorded.len())];
        let mut datagram = datagram.clone();
        for _ in 0..random.below(4) {
            let at = random.below(datagram.len().min(60));
            datagram[at] ^= 1 << random.below(8);
        }
        if random.percent(10) {
            let at = random.below(datagram.len());
            datagram.truncate(at);
        }
        let to = [Who::Client, Who::Server][random.below(2)];
        pair.deliver(to, &datagram, None);
        if n % 50 == 0 {
            pair.step();
            pair.connect();
        }
    }
    pair.run_for(Duration::from_secs(400));
    pair.run_until_idle();
}
