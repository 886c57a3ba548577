//! Keys, connection IDs, batches and statistics.

mod support;

use std::time::Duration;

use bytes::Bytes;
use support::{Link, Pair, Random, Who, client_settings, server_settings, with_transport};
use uringcore_proto::quic::EndpointSettings;

#[test]
fn keys_can_be_changed_in_the_middle_of_a_transfer() {
    let mut pair = Pair::default_pair();
    pair.link = Link {
        loss: 2,
        reorder: 5,
        ..Link::default()
    };
    let (client, server) = pair.establish();
    let data: Bytes = Random::new(1).bytes(3 << 20).into();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, data.clone(), true).unwrap();
    for part in 1..6 {
        pair.run_until("a part", |p| {
            p.server.received(server, 0).len() > part * 500_000
        });
        match part % 2 {
            0 => pair
                .client
                .endpoint
                .connection(client)
                .unwrap()
                .request_key_update(),
            _ => pair
                .server
                .endpoint
                .connection(server)
                .unwrap()
                .request_key_update(),
        }
    }
    pair.run_until("all", |pair| pair.server.finished(server, 0));
    assert!(pair.server.received(server, 0) == data);
}

#[test]
fn connection_id_can_be_changed_by_a_client() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    pair.record = true;
    let ids = |pair: &Pair| -> std::collections::BTreeSet<Vec<u8>> {
        let short = |(who, data): &&(Who, Vec<u8>)| *who == Who::Client && data[0] & 0x80 == 0;
        pair.recorded
            .iter()
            .filter(short)
            .map(|(_, data)| data[1..9].to_vec())
            .collect()
    };
    for n in 1..4 {
        pair.client
            .endpoint
            .connection(client)
            .unwrap()
            .change_connection_id();
        pair.run_for(Duration::from_secs(1));
        assert_eq!(ids(&pair).len(), n, "each time another one");
    }
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"x"), true).unwrap();
    pair.run_until("data", |pair| pair.server.finished(server, 0));
    pair.server
        .endpoint
        .connection(server)
        .unwrap()
        .change_connection_id();
}

#[test]
fn connection_ids_of_every_length_work() {
    for connection_id_length in [0, 1, 4, 8, 20] {
        let settings = EndpointSettings {
            connection_id_length,
            ..EndpointSettings::default()
        };
        let mut pair = Pair::with(client_settings(), server_settings(), settings);
        let (client, server) = pair.establish();
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(0, vec![1; 100_000].into(), true).unwrap();
        pair.run_until("data", |pair| pair.server.finished(server, 0));
    }
}

#[test]
fn batches_can_be_switched_off_and_are_large_otherwise() {
    for (max_segments, ratio) in [(1, 1.0..1.01), (64, 4.0..64.0), (1_000, 4.0..64.0)] {
        let (client, server) = with_transport(|t| {
            t.max_stream_data = 16 << 20;
            t.max_data = 16 << 20;
        });
        let mut pair = Pair::new(client, server);
        pair.client.endpoint.set_gso(max_segments);
        let (client, server) = pair.establish();
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(0, vec![1; 8 << 20].into(), true).unwrap();
        pair.run_until("data", |pair| pair.server.finished(server, 0));
        let stats = pair.client.endpoint.stats();
        let found = stats.datagrams_sent as f64 / stats.transmits as f64;
        assert!(
            ratio.contains(&found),
            "{found} datagrams a batch with {max_segments}"
        );
    }
}

#[test]
fn large_datagrams_keep_batches_below_the_limit_of_udp() {
    // 16,000 x 64 would be far above 65,507: the link asserts on it.
    let (mut client, mut server) = with_transport(|t| {
        t.max_datagram_size = 9_000;
        t.mtu_discovery = false;
        t.max_stream_data = 16 << 20;
        t.max_data = 16 << 20;
    });
    client.transport.max_datagram_size = 9_000;
    server.transport.max_datagram_size = 9_000;
    let settings = EndpointSettings {
        max_udp_payload_size: 9_000,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client, server, settings);
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 4 << 20].into(), true).unwrap();
    pair.run_until("data", |pair| pair.server.finished(server, 0));
    assert_eq!(
        pair.client.endpoint.peek(client).unwrap().stats().path_mtu,
        9_000
    );
}

#[test]
fn statistics_count() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 1_000_000].into(), true)
        .unwrap();
    pair.run_until("data", |pair| pair.server.finished(server, 0));
    pair.run_for(Duration::from_secs(1));
    let ours = pair.client.endpoint.peek(client).unwrap().stats();
    let theirs = pair.server.endpoint.peek(server).unwrap().stats();
    assert!(
        ours.bytes_sent > 1_000_000 && ours.bytes_sent < 1_200_000,
        "{ours:?}"
    );
    // quinn-proto does not count the very first datagram on a server.
    let first = 1_200;
    assert_eq!(ours.bytes_sent, theirs.bytes_received + first);
    assert_eq!(ours.datagrams_sent, theirs.datagrams_received + 1);
    assert!(
        ours.stream_frames_sent > 600 && ours.packets_lost == 0,
        "{ours:?}"
    );
    let rtt = Duration::from_millis(9)..Duration::from_millis(40);
    assert!(
        rtt.contains(&ours.rtt) && rtt.contains(&ours.min_rtt),
        "{ours:?}"
    );
    assert!(ours.path_mtu >= 1_400, "found by probing: {ours:?}");
    assert!(ours.congestion_window > 14_000);
    let stats = pair.client.endpoint.stats();
    assert_eq!(stats.bytes_sent, ours.bytes_sent);
    assert_eq!(stats.connections_opened, 1);
}

#[test]
fn a_host_that_does_not_transmit_for_a_while_loses_nothing() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 100_000].into(), true).unwrap();
    // The socket is full: one batch goes, then events and time pass.
    let mut buf = Vec::new();
    let now = pair.now;
    assert!(pair.client.endpoint.poll_transmit(now, &mut buf).is_some());
    pair.now += Duration::from_millis(500);
    pair.run_until("data", |pair| pair.server.finished(server, 0));
}
