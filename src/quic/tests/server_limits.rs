//! A server's limits: floods, restarts, several workers on a port, and tables that shrink after a peak.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use crate::support::{Pair, Who, client_settings, server_settings, with_transport};
use bytes::{Bytes, BytesMut};
use uringcore_limits::token_bucket::Rate;
use uringcore_quic::{
    ClientSetup, CloseKind, ConnectionKey, DatagramMeta, Endpoint, EndpointSettings, Retry,
    ServerSettings, ServerSetup, Worker,
};

const CONNECTION_REFUSED: u64 = 0x02;

fn with_retry(retry: Retry) -> ServerSettings {
    ServerSettings {
        retry,
        ..server_settings()
    }
}

/// First packets of `count` clients that do not exist, each with a spoofed address.
fn spoofed(count: u32) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut attacker = Endpoint::new(EndpointSettings::default(), None);
    let setup = ClientSetup::new(&client_settings()).unwrap();
    let (now, mut buffer) = (Instant::now(), Vec::new());
    let flood = (0..count).map(|number| {
        let server = "10.0.0.2:443".parse().unwrap();
        attacker.connect(now, &setup, server, "localhost").unwrap();
        let transmit = attacker.poll_transmit(now, &mut buffer).unwrap();
        let size = transmit.segment_size.unwrap_or(transmit.size);
        let address = Ipv4Addr::from_bits(0x0b00_0000 + number);
        ((address, 4000).into(), buffer[..size].to_vec())
    });
    flood.collect()
}

/// Delivers first packets to the server, and drops its answers.
fn flood(pair: &mut Pair, packets: &[(SocketAddr, Vec<u8>)]) {
    let mut buffer = Vec::new();
    for (remote, packet) in packets {
        pair.deliver_from(*remote, packet);
        let endpoint = &mut pair.server.endpoint;
        // With `has_strangers` the answers stay queued until the next step, which drops them.
        if !pair.has_strangers {
            while endpoint.poll_transmit(pair.now, &mut buffer).is_some() {}
        }
    }
}

fn ended(pair: &mut Pair, key: ConnectionKey) -> (u64, CloseKind) {
    pair.run_until("the end", |pair| pair.client.closed(key).is_some());
    let (code, _, _, kind) = pair.client.closed(key).unwrap();
    (code, kind)
}

#[test]
fn a_flood_from_spoofed_addresses_does_not_exclude_a_client() {
    let settings = EndpointSettings {
        max_handshakes: 64,
        retry_handshakes: 32,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), with_retry(Retry::Auto), settings);
    flood(&mut pair, &spoofed(1_000));
    let stats = pair.server.endpoint.stats();
    assert_eq!((stats.incoming_retried, stats.incoming_refused), (968, 0));
    assert_eq!(
        (
            pair.server.endpoint.len(),
            pair.server.endpoint.handshakes()
        ),
        (32, 32)
    );
    // A genuine client connects during the flood.
    pair.has_strangers = true;
    let more = spoofed(2_000);
    let mut waves = more.chunks(20);
    let key = pair.connect();
    let conn = pair.client.endpoint.connection(key).unwrap();
    conn.send_stream(0, Bytes::from_static(b"here I am"), true)
        .unwrap();
    while !pair.server.streams.values().any(|received| received.fin) {
        flood(
            &mut pair,
            waves
                .next()
                .expect("the client has connected before the flood has ended"),
        );
        pair.step();
    }
    assert!(pair.client.endpoint.peek(key).unwrap().is_established());
    assert!(pair.server.endpoint.len() <= 64);
    assert_eq!(pair.server.endpoint.stats().incoming_refused, 0);
}

#[test]
fn without_retries_a_flood_is_bounded_by_the_limit_of_handshakes() {
    let settings = EndpointSettings {
        max_handshakes: 64,
        retry_handshakes: 32,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), with_retry(Retry::Never), settings);
    flood(&mut pair, &spoofed(200));
    let stats = pair.server.endpoint.stats();
    assert_eq!(
        (stats.incoming_retried, stats.refused_for_handshakes),
        (0, 136)
    );
    assert_eq!(pair.server.endpoint.len(), 64);
}

#[test]
fn connections_of_one_address_above_its_limit_are_refused() {
    let settings = EndpointSettings {
        max_connections_per_address: Some(3),
        ..EndpointSettings::default()
    };
    for retry in [Retry::Always, Retry::Never, Retry::Auto] {
        let mut pair = Pair::with(client_settings(), with_retry(retry), settings.clone());
        let open: Vec<_> = (0..3).map(|_| pair.establish().0).collect();
        let key = pair.connect();
        let refused = (CONNECTION_REFUSED, CloseKind::PeerTransport);
        assert_eq!(ended(&mut pair, key), refused);
        let stats = pair.server.endpoint.stats();
        assert_eq!((stats.incoming_refused, stats.refused_for_address), (1, 1));
        // A closed connection does not count against the limit, although its state is kept for a while.
        pair.close(Who::Client, open[0], 0, None, b"");
        pair.run_for(2 * pair.link.latency);
        assert_eq!(pair.server.endpoint.len(), 3, "it lingers");
        pair.establish();
    }
}

#[test]
fn connections_above_the_accept_rate_are_accepted_later() {
    let settings = EndpointSettings {
        accept_rate: Some(Rate {
            per_second: 2.0,
            burst: 2,
        }),
        ..EndpointSettings::default()
    };
    let (client, server) = with_transport(|t| t.idle_timeout = Duration::from_secs(30));
    for retry in [Retry::Always, Retry::Never, Retry::Auto] {
        let server = ServerSettings {
            retry,
            ..server.clone()
        };
        let mut pair = Pair::with(client.clone(), server, settings.clone());
        let keys: Vec<_> = (0..4).map(|_| pair.connect()).collect();
        pair.run_until("all handshakes", |pair| {
            keys.iter()
                .all(|key| pair.client.endpoint.peek(*key).unwrap().is_established())
        });
        assert!(
            pair.elapsed() >= Duration::from_secs(1),
            "{retry:?}: {:?}",
            pair.elapsed()
        );
        let stats = pair.server.endpoint.stats();
        assert!(stats.ignored_for_rate >= 2, "{retry:?}: {stats:?}");
        assert_eq!(stats.incoming_refused, 0);
    }
}

fn restarted(settings: &EndpointSettings, server: &ServerSettings) -> Endpoint {
    Endpoint::new(settings.clone(), Some(ServerSetup::new(server).unwrap()))
}

#[test]
fn a_restarted_server_with_its_key_resets_old_connections() {
    for (key, is_known) in [([7; 32], true), ([8; 32], false)] {
        let settings = EndpointSettings {
            reset_keys: vec![[7; 32]],
            ..EndpointSettings::default()
        };
        let mut pair = Pair::with(client_settings(), server_settings(), settings.clone());
        let keys: Vec<_> = (0..50).map(|_| pair.establish().0).collect();
        let settings = EndpointSettings {
            reset_keys: vec![key],
            ..settings
        };
        pair.server.endpoint = restarted(&settings, &server_settings());
        let begin = pair.now;
        for key in &keys {
            let conn = pair.client.endpoint.connection(*key).unwrap();
            conn.send_stream(0, Bytes::from_static(b"are you there?"), true)
                .unwrap();
        }
        for key in keys {
            let expected = match is_known {
                true => CloseKind::StatelessReset,
                false => CloseKind::IdleTimeout,
            };
            assert_eq!(ended(&mut pair, key).1, expected);
            let took = pair.now - begin;
            assert_eq!(
                took < Duration::from_millis(100),
                is_known,
                "after {took:?}"
            );
        }
        assert!(pair.server.endpoint.stats().stateless_resets_sent >= 50);
    }
}

#[test]
fn a_connection_is_reset_with_the_key_of_its_time() {
    let (first, second) = ([7; 32], [8; 32]);
    for (restarted_with, changed_to, old_are_reset) in [
        (vec![second, first], None, true),
        (vec![first], Some(second), true),
        (vec![second], None, false),
    ] {
        let settings = |reset_keys| EndpointSettings {
            reset_keys,
            ..EndpointSettings::default()
        };
        let begun = settings(vec![first]);
        let mut pair = Pair::with(client_settings(), server_settings(), begun);
        let old: Vec<_> = (0..20).map(|_| pair.establish().0).collect();
        pair.server.endpoint.set_reset_keys(&[second], b"");
        let new: Vec<_> = (0..20).map(|_| pair.establish().0).collect();
        pair.server.endpoint = restarted(&settings(restarted_with), &server_settings());
        if let Some(key) = changed_to {
            pair.server.endpoint.set_reset_keys(&[key], b"");
        }
        let begin = pair.now;
        for key in old.iter().chain(&new) {
            let conn = pair.client.endpoint.connection(*key).unwrap();
            conn.send_stream(0, Bytes::from_static(b"are you there?"), true)
                .unwrap();
        }
        for (keys, are_reset) in [(new, true), (old, old_are_reset)] {
            for key in keys {
                let expected = match are_reset {
                    true => CloseKind::StatelessReset,
                    false => CloseKind::IdleTimeout,
                };
                assert_eq!(ended(&mut pair, key).1, expected);
                // The client notices a reset after its first packet, because each packet is answered.
                let took = pair.now - begin;
                assert_eq!(
                    took < Duration::from_millis(100),
                    are_reset,
                    "after {took:?}"
                );
            }
        }
    }
}

#[test]
fn connection_ids_of_clients_have_no_mark() {
    let settings = EndpointSettings {
        reset_keys: vec![[7; 32]],
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server_settings(), settings.clone());
    pair.client.endpoint = Endpoint::new(settings, None);
    pair.record = true;
    for _ in 0..10 {
        pair.establish();
    }
    let last_bytes = |from: Who| {
        let of = |(who, datagram): &(Who, Vec<u8>)| {
            (*who == from && datagram[0] & 0x80 == 0).then(|| datagram[8])
        };
        let found = pair.recorded.iter().filter_map(of);
        found.collect::<std::collections::BTreeSet<u8>>()
    };
    assert_eq!(last_bytes(Who::Client).len(), 1, "the server's IDs");
    assert!(last_bytes(Who::Server).len() > 5, "the clients' IDs");
}

#[test]
fn a_worker_accepts_another_workers_retry_token_with_the_same_key() {
    for (secret, is_shared) in [(vec![1; 64], true), (vec![2; 64], false)] {
        let server = |secret| ServerSettings {
            token_keys: vec![secret],
            ..with_retry(Retry::Always)
        };
        let mut pair = Pair::new(client_settings(), server(vec![1; 64]));
        let key = pair.connect();
        pair.run_until("the Retry", |pair| {
            pair.server.endpoint.stats().incoming_retried == 1
        });
        pair.server.endpoint = restarted(&EndpointSettings::default(), &server(secret));
        if is_shared {
            pair.run_until("the handshake", |pair| {
                pair.client.endpoint.peek(key).unwrap().is_established()
            });
            assert_eq!(pair.server.endpoint.stats().incoming_retried, 0);
        } else {
            // A client follows only one Retry (RFC 9000 section 17.2.5.2).
            assert_ne!(ended(&mut pair, key).1, CloseKind::Local);
            assert!(pair.server.endpoint.stats().incoming_retried > 0);
        }
    }
}

#[test]
fn a_workers_connection_ids_identify_it() {
    let settings = EndpointSettings {
        worker: Some(Worker { index: 5, count: 7 }),
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), with_retry(Retry::Always), settings);
    pair.record = true;
    let mut ids = 0;
    for _ in 0..20 {
        let (key, _) = pair.establish();
        let conn = pair.client.endpoint.connection(key).unwrap();
        conn.send_stream(0, Bytes::from_static(b"to you"), true)
            .unwrap();
        pair.run_for(Duration::from_secs(1));
    }
    // The client's packets with IDs that the server has issued: those with short headers, and Handshake packets.
    for (from, datagram) in &pair.recorded {
        let id = match datagram[0] & 0x80 {
            0 => Some(datagram[1]),
            _ if datagram[0] & 0x30 == 0x20 => Some(datagram[6]),
            _ => None,
        };
        if let (Who::Client, Some(id)) = (from, id) {
            assert_eq!(id % 7, 5);
            ids += 1;
        }
    }
    assert!(ids >= 40, "{ids} packets to look at");
}

#[test]
fn the_tables_shrink_after_a_peak() {
    let mut pair = Pair::default_pair();
    for _ in 0..2 {
        for (peak, left) in [(1_000, 2), (600, 0)] {
            let keys: Vec<_> = (0..peak).map(|_| pair.connect()).collect();
            pair.run_until("all handshakes", |pair| {
                keys.iter()
                    .all(|key| pair.client.endpoint.peek(*key).unwrap().is_established())
            });
            assert!(pair.server.endpoint.capacity() >= peak);
            for key in &keys[left..] {
                pair.close(Who::Client, *key, 0, None, b"");
            }
            pair.run_until("the others being dropped", |pair| {
                (pair.client.endpoint.len(), pair.server.endpoint.len()) == (left, left)
            });
            let capacities = [
                pair.client.endpoint.capacity(),
                pair.server.endpoint.capacity(),
            ];
            assert!(
                capacities.iter().all(|capacity| *capacity <= 128),
                "{capacities:?}"
            );
            // The remaining connections work, and so do new ones.
            pair.establish();
            for key in &keys[..left] {
                let conn = pair.client.endpoint.connection(*key).unwrap();
                conn.send_stream(0, Bytes::from_static(b"hello"), true)
                    .unwrap();
            }
            let keys: Vec<_> = pair.client.endpoint.keys().collect();
            pair.run_for(Duration::from_secs(1));
            for key in keys {
                assert!(pair.client.endpoint.peek(key).unwrap().is_established());
                pair.close(Who::Client, key, 0, None, b"");
            }
            pair.run_until_idle();
        }
    }
}

#[test]
fn a_client_sends_resets_only_for_short_headers() {
    let mut endpoint = Endpoint::new(EndpointSettings::default(), None);
    let (address, mut first) = spoofed(1).remove(0);
    let (now, mut buffer) = (Instant::now(), Vec::new());
    let meta = DatagramMeta {
        remote: address,
        local_ip: None,
        ecn: None,
    };
    endpoint.handle_datagram(now, meta, BytesMut::from(&first[..]));
    assert!(endpoint.poll_transmit(now, &mut buffer).is_none());
    assert_eq!(endpoint.stats().stateless_resets_sent, 0);
    assert_eq!(endpoint.stats().responses_dropped, 1);
    first[0] = 0x41;
    endpoint.handle_datagram(now, meta, BytesMut::from(&first[..]));
    assert!(endpoint.poll_transmit(now, &mut buffer).is_some());
    assert_eq!(endpoint.stats().stateless_resets_sent, 1);
}
