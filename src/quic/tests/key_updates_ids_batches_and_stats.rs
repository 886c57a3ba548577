//! Key updates, connection IDs, batches of datagrams, ECN, MTU discovery and statistics of a connection.

use std::time::Duration;

use crate::support::{
    Link, Pair, Peer, Random, Who, client_settings, server_settings, with_transport,
};
use bytes::Bytes;
use uringcore_quic::{
    AckFrequency, Congestion, ConnectionKey, ConnectionStats, EndpointSettings, Event,
    TransportSettings,
};

#[test]
fn enabling_batches_late_reports_an_earlier_batch() {
    let mut pair = Pair::default_pair();
    let reported = |peer: &Peer, key: ConnectionKey| {
        let is_batch = |(of, event): &&(_, Event)| *of == key && *event == Event::BatchHandled;
        peer.events.iter().filter(is_batch).count()
    };
    let client = pair.connect();
    pair.run_until("the server has the connection", |pair| {
        !pair.server.events.is_empty()
    });
    // The client has not received a datagram yet.
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.report_batches();
    pair.client.take_events();
    assert_eq!(reported(&pair.client, client), 0);
    // The first report also contains the datagram that began the connection. Each batch is reported only once.
    let (server, _) = pair.server.events[0];
    for _ in 0..2 {
        let conn = pair.server.endpoint.connection(server).unwrap();
        conn.report_batches();
        pair.server.take_events();
        assert_eq!(reported(&pair.server, server), 1);
    }
    pair.run_for(Duration::from_secs(1));
    assert!(reported(&pair.client, client) > 0 && reported(&pair.server, server) > 1);
}

#[test]
fn keys_can_be_updated_during_a_transfer() {
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

/// A side that has followed a key update and has sent nothing since must not update its keys again, because the peer
/// could not open its packets.
#[test]
fn a_key_update_waits_until_the_peer_has_the_last_keys() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    pair.client
        .endpoint
        .connection(client)
        .unwrap()
        .request_key_update();
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(1, Bytes::from_static(b"a"), false)
        .unwrap();
    // The new keys are first used for an ACK, which is not acknowledged.
    pair.run_for(Duration::from_secs(3));
    let updates = |pair: &mut Pair| {
        let server = pair.server.endpoint.peek(server).unwrap().stats();
        let client = pair.client.endpoint.peek(client).unwrap().stats();
        (client.key_updates, server.key_updates)
    };
    assert_eq!(updates(&mut pair), (1, 1));
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.request_key_update();
    pair.run_for(Duration::from_secs(3));
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(1, Bytes::from_static(b"b"), true).unwrap();
    pair.run_until("all", |pair| pair.client.finished(client, 1));
    assert_eq!(pair.client.received(client, 1), b"ab");
    assert_eq!(updates(&mut pair), (2, 2));
}

#[test]
fn a_client_can_change_its_connection_id() {
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
        assert_eq!(
            ids(&pair).len(),
            n,
            "each change takes another connection ID"
        );
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
fn batches_are_large_unless_gso_is_disabled() {
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
fn batches_of_large_datagrams_stay_below_the_limit_of_udp() {
    // With 64 datagrams of 16,000 bytes a batch would exceed 65,507 bytes. The link asserts that limit.
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
fn statistics_count_packets_and_bytes() {
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
    // quinn-proto does not count a server's first datagram.
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
    assert!(
        ours.path_mtu >= 1_400,
        "the MTU was found by probing: {ours:?}"
    );
    assert!(ours.congestion_window > 14_000);
    let stats = pair.client.endpoint.stats();
    assert_eq!(stats.bytes_sent, ours.bytes_sent);
    assert_eq!(stats.connections_opened, 1);
}

#[test]
fn a_pause_in_transmitting_loses_no_data() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 100_000].into(), true).unwrap();
    // The socket is full: one batch was sent, then time passes and events are handled.
    let mut buf = Vec::new();
    let now = pair.now;
    assert!(pair.client.endpoint.poll_transmit(now, &mut buf).is_some());
    pair.now += Duration::from_millis(500);
    pair.run_until("data", |pair| pair.server.finished(server, 0));
}

/// Sends 4 MiB over a link of 20 Mbit/s with a latency of 20 ms. Returns both sides' statistics, and the time that it
/// took.
fn transferred(
    link: Link,
    change: impl Fn(&mut TransportSettings),
) -> (ConnectionStats, ConnectionStats, Duration) {
    let (client, server) = with_transport(|t| {
        t.max_data = 16 << 20;
        t.max_stream_data = 16 << 20;
        change(t);
    });
    let mut pair = Pair::new(client, server).link(Link {
        latency: Duration::from_millis(10),
        rate: Some(2_500_000),
        ..link
    });
    let (client, server) = pair.establish();
    let begin = pair.now;
    let data: Bytes = Random::new(7).bytes(4 << 20).into();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, data.clone(), true).unwrap();
    pair.run_until("all", |pair| pair.server.finished(server, 0));
    assert!(pair.server.received(server, 0) == data);
    let stats = |peer: &crate::support::Peer, key| peer.endpoint.peek(key).unwrap().stats();
    (
        stats(&pair.client, client),
        stats(&pair.server, server),
        pair.now - begin,
    )
}

#[test]
fn keys_are_updated_after_a_number_of_packets() {
    for loss in [0, 3] {
        let link = Link {
            loss,
            ..Link::default()
        };
        let (client, server, _) = transferred(link, |t| t.key_update_packets = Some(500));
        // The client sends about 3,000 packets. The server, which only acknowledges, adds a few updates of its own.
        assert!((4..12).contains(&client.key_updates), "{client:?}");
        assert!(
            server.key_updates.abs_diff(client.key_updates) <= 1,
            "{server:?}"
        );
        let (client, _, _) = transferred(link, |_| {});
        // quinn-proto begins one key update early in each connection, so that peers without support for it are found.
        assert!(client.key_updates <= 1, "{client:?}");
        // Keys are updated as often as possible. An update waits for the end of the last one, and none breaks the
        // connection.
        let (client, _, _) = transferred(link, |t| t.key_update_packets = Some(1));
        assert!(client.key_updates > 4, "{client:?}");
    }
}

#[test]
fn ecn_marks_slow_the_sender_down() {
    let link = Link {
        queue: 10_000_000,
        ..Link::default()
    };
    let marked = Link { mark: 2, ..link };
    let (client, server, _) = transferred(marked, |_| {});
    assert!(
        client.ect0_is_most_of_what_was_sent() && server.ecn.ce_received > 20,
        "{server:?}"
    );
    assert!(
        client.congestion_events > 3 && client.packets_lost == 0,
        "{client:?}"
    );
    let received = server.ecn.ect0_received + server.ecn.ce_received;
    assert!(
        received + 3 >= client.ecn.ect0_sent,
        "{client:?} {server:?}"
    );
    let (unmarked, _, _) = transferred(link, |_| {});
    assert!(unmarked.congestion_events == 0, "{unmarked:?}");
    assert!(unmarked.congestion_window > client.congestion_window * 2);
    // If the path clears the ECN bits, the sender stops setting them (RFC 9000 section 13.4.2).
    let (bleached, server, _) = transferred(
        Link {
            bleaches: true,
            ..link
        },
        |_| {},
    );
    assert!(
        bleached.ecn.ect0_sent < bleached.datagrams_sent / 10,
        "{bleached:?}"
    );
    assert_eq!(server.ecn.ect0_received, 0);
}

trait EcnUse {
    fn ect0_is_most_of_what_was_sent(&self) -> bool;
}

impl EcnUse for ConnectionStats {
    fn ect0_is_most_of_what_was_sent(&self) -> bool {
        self.ecn.ect0_sent > self.datagrams_sent * 9 / 10
    }
}

#[test]
fn mtu_discovery_finds_a_larger_and_a_smaller_mtu() {
    let (stats, _, _) = transferred(Link::default(), |_| {});
    assert!(
        stats.path_mtu > 1_440 && stats.mtu_probes_sent > 0,
        "{stats:?}"
    );
    let narrow = Link {
        mtu: 1_350,
        ..Link::default()
    };
    let (stats, _, _) = transferred(narrow, |_| {});
    assert!((1_300..=1_350).contains(&stats.path_mtu), "{stats:?}");
    assert!(stats.mtu_probes_lost > 0);
    let (stats, _, _) = transferred(Link::default(), |t| t.mtu_discovery = false);
    assert_eq!((stats.path_mtu, stats.mtu_probes_sent), (1_200, 0));
}

#[test]
fn every_congestion_controller_fills_the_link_and_reports_values() {
    for congestion in [Congestion::Cubic, Congestion::NewReno, Congestion::Bbr] {
        let (stats, _, took) = transferred(Link::default(), |t| t.congestion = congestion);
        // The transfer needs at least 1.7 seconds.
        assert!(took < Duration::from_secs(4), "{congestion:?}: {took:?}");
        let rtt = Duration::from_millis(20)..Duration::from_millis(90);
        for found in [stats.latest_rtt, stats.min_rtt, stats.rtt] {
            assert!(rtt.contains(&found), "{congestion:?}: {stats:?}");
        }
        assert!(stats.rtt_variance < stats.rtt, "{stats:?}");
        assert!(
            stats.bytes_in_flight <= stats.congestion_window + 3_000,
            "{stats:?}"
        );
        assert!(
            stats.cipher_suite == Some(0x1301) && stats.version == 1,
            "{stats:?}"
        );
        assert_eq!(
            stats.ssthresh.is_none(),
            congestion == Congestion::Bbr,
            "{stats:?}"
        );
    }
}

#[test]
fn bytes_in_flight_return_to_zero() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let in_flight = |pair: &Pair| {
        pair.client
            .endpoint
            .peek(client)
            .unwrap()
            .stats()
            .bytes_in_flight
    };
    assert_eq!(in_flight(&pair), 0);
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 10_000].into(), true).unwrap();
    assert_eq!(conn.stats().streams_open, 1);
    pair.exchange();
    assert!(
        (10_000..12_000).contains(&in_flight(&pair)),
        "{}",
        in_flight(&pair)
    );
    pair.run_until("all", |pair| pair.server.finished(server, 0));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(in_flight(&pair), 0);
}

#[test]
fn the_peer_acknowledges_at_the_requested_frequency() {
    let acks = |frequency| {
        let (_, server, _) = transferred(Link::default(), |t| t.ack_frequency = frequency);
        server.datagrams_sent
    };
    let asked = |packets| {
        acks(Some(AckFrequency {
            packets,
            max_delay: Some(Duration::from_millis(25)),
            reordering: 3,
        }))
    };
    let (often, rarely, unasked) = (asked(0), asked(20), acks(None));
    assert!(
        rarely * 3 < unasked && unasked < often,
        "{often} {unasked} {rarely}"
    );
}

#[test]
fn the_initial_rtt_determines_the_first_retransmission() {
    let repeated = |milliseconds| {
        let (mut client, server) =
            with_transport(|t| t.initial_rtt = Duration::from_millis(milliseconds));
        client.transport.idle_timeout = Duration::from_secs(60);
        let mut pair = Pair::new(client, server);
        pair.client.is_mute = true;
        pair.connect();
        pair.exchange();
        let first = pair.client.sent;
        pair.run_until("the second one", |pair| pair.client.sent > first);
        pair.elapsed()
    };
    // RFC 9002 section 6.2.2: the first probe time-out is three times the initial round-trip time.
    for milliseconds in [20, 100, 500] {
        let found = repeated(milliseconds);
        let wanted = Duration::from_millis(milliseconds * 3);
        assert!(
            found >= wanted && found < wanted + Duration::from_millis(20),
            "{found:?}"
        );
    }
}
