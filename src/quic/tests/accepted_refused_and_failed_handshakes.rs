//! A server accepts, refuses and drops connections.

use std::time::Duration;

use crate::support::{Link, Pair, Who, client_settings, server_settings, with_transport};
use bytes::Bytes;
use uringcore_quic::{CloseKind, EndpointSettings, Event, Retry, ServerSettings, ServerSetup};

#[test]
fn a_retry_makes_clients_prove_their_address() {
    let server = ServerSettings {
        retry: Retry::Always,
        ..server_settings()
    };
    let mut pair = Pair::new(client_settings(), server);
    let (client, server) = pair.establish();
    let stats = pair.server.endpoint.stats();
    assert_eq!((stats.incoming_retried, stats.connections_accepted), (1, 1));
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"hello"), true)
        .unwrap();
    pair.run_until("data", |pair| pair.server.finished(server, 0));
}

#[test]
fn a_retry_token_stays_valid_after_new_settings() {
    let settings = ServerSettings {
        retry: Retry::Always,
        ..server_settings()
    };
    let mut pair = Pair::new(client_settings(), settings.clone());
    let client = pair.connect();
    pair.run_until("the Retry", |pair| {
        pair.server.endpoint.stats().incoming_retried == 1
    });
    // New settings, as with a renewed certificate.
    let setup = ServerSetup::new(&settings).unwrap();
    pair.server.endpoint.set_server(Some(setup));
    let now = pair.now;
    pair.run_until("the handshake", |pair| {
        let connection = pair.client.endpoint.peek(client);
        connection.is_some_and(|connection| connection.is_established())
    });
    assert!(pair.now - now < Duration::from_secs(1));
    assert_eq!(pair.server.endpoint.stats().incoming_retried, 1);
}

#[test]
fn a_retry_works_over_a_lossy_link() {
    let server = ServerSettings {
        retry: Retry::Always,
        ..server_settings()
    };
    let handshake_timeout = Duration::from_secs(60);
    let settings = EndpointSettings {
        handshake_timeout,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server, settings);
    // Without corruption: quinn-proto 0.11.19 counts a Retry with a wrong tag as authentic and accepts no other one
    // after it. UDP's checksum excludes such packets.
    pair.link = Link {
        loss: 20,
        reorder: 20,
        duplicate: 20,
        ..Link::default()
    };
    for _ in 0..20 {
        pair.establish();
    }
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let settings = EndpointSettings {
        max_connections: 2,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server_settings(), settings);
    pair.establish();
    let (client, _) = pair.establish();
    let third = pair.connect();
    pair.run_until("the refusal", |pair| pair.client.closed(third).is_some());
    let (code, _, _, kind) = pair.client.closed(third).unwrap();
    assert_eq!(
        (code, kind),
        (0x02, CloseKind::PeerTransport),
        "CONNECTION_REFUSED"
    );
    assert_eq!(pair.server.endpoint.stats().incoming_refused, 1);
    pair.close(Who::Client, client, 0, None, b"");
    pair.run_for(Duration::from_secs(5));
    pair.establish();
}

#[test]
fn a_closing_server_refuses_new_clients_and_keeps_connections() {
    for retry in [false, true] {
        let server = ServerSettings {
            retry: retry.into(),
            ..server_settings()
        };
        let mut pair = Pair::new(client_settings(), server);
        let (client, server) = pair.establish();
        pair.server.endpoint.refuse_incoming();
        let begin = pair.now;
        let late = pair.connect();
        pair.run_until("the refusal", |pair| pair.client.closed(late).is_some());
        let (code, _, _, kind) = pair.client.closed(late).unwrap();
        assert_eq!((code, kind), (0x02, CloseKind::PeerTransport));
        assert!(pair.now - begin < Duration::from_millis(500));
        assert_eq!(pair.server.endpoint.stats().incoming_refused, 1);
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(0, Bytes::from_static(b"hello"), true)
            .unwrap();
        pair.run_until("data", |pair| pair.server.finished(server, 0));
    }
}

#[test]
fn many_handshakes_at_once_get_retries_and_then_refusals() {
    let settings = EndpointSettings {
        max_handshakes: 8,
        retry_handshakes: 4,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server_settings(), settings);
    // The server's packets are lost, so no handshake ends.
    pair.server.is_mute = true;
    for _ in 0..50 {
        pair.connect();
    }
    pair.run_for(Duration::from_secs(1));
    let stats = pair.server.endpoint.stats();
    assert_eq!(
        pair.server.endpoint.len(),
        4,
        "half of the limit needs no proof: {stats:?}"
    );
    assert!(stats.incoming_retried >= 46);
    pair.run_for(Duration::from_secs(15));
    pair.server.is_mute = false;
    pair.run_until("all handshakes", |pair| {
        let keys: Vec<_> = pair.client.endpoint.keys().collect();
        keys.into_iter()
            .all(|key| pair.client.endpoint.peek(key).unwrap().is_established())
    });
}

#[test]
fn handshakes_of_vanished_clients_are_dropped() {
    let mut pair = Pair::default_pair();
    for _ in 0..100 {
        pair.connect();
    }
    pair.exchange();
    pair.client.is_mute = true;
    pair.run_until("the server getting their packets", |pair| {
        pair.server.endpoint.len() == 100
    });
    let begin = pair.now;
    pair.run_until("the server dropping them", |pair| {
        pair.server.endpoint.is_empty()
    });
    assert!(
        pair.now - begin <= Duration::from_secs(11),
        "after {:?}",
        pair.now - begin
    );
    for key in pair
        .server
        .events
        .iter()
        .map(|(key, _)| *key)
        .collect::<Vec<_>>()
    {
        assert_eq!(pair.server.closed(key).unwrap().3, CloseKind::IdleTimeout);
    }
    pair.run_until_idle();
}

#[test]
fn an_unreachable_port_fails_the_handshake_at_once() {
    const ECONNREFUSED: i32 = 111;
    let mut pair = Pair::default_pair();
    let (established, _) = pair.establish();
    pair.server.is_mute = true;
    let key = pair.connect();
    pair.exchange();
    let (now, addr) = (pair.now, pair.server.addr);
    let elsewhere = "10.0.0.3:443".parse().unwrap();
    pair.client
        .endpoint
        .handle_unreachable(now, elsewhere, ECONNREFUSED);
    pair.exchange();
    assert!(pair.client.closed(key).is_none());
    pair.client
        .endpoint
        .handle_unreachable(now, addr, ECONNREFUSED);
    pair.exchange();
    let (_, _, reason, kind) = pair.client.closed(key).unwrap();
    assert_eq!(
        kind,
        CloseKind::Unreachable {
            errno: ECONNREFUSED
        }
    );
    assert!(
        reason.contains("10.0.0.2:443") && reason.contains("refused"),
        "{reason}"
    );
    assert!(pair.client.endpoint.peek(key).is_none(), "no state is left");
    assert!(
        pair.client
            .endpoint
            .peek(established)
            .unwrap()
            .is_established()
    );
}

#[test]
fn a_silent_server_ends_the_handshake_after_the_idle_timeout() {
    for (idle, expected) in [(2, 2..4), (0, 30..31)] {
        let (client, server) = with_transport(|t| t.idle_timeout = Duration::from_secs(idle));
        let mut pair = Pair::new(client, server);
        pair.server.is_mute = true;
        let key = pair.connect();
        pair.run_until("giving up", |pair| pair.client.closed(key).is_some());
        assert!(
            expected.contains(&pair.elapsed().as_secs()),
            "{:?}",
            pair.elapsed()
        );
        assert_eq!(pair.client.closed(key).unwrap().3, CloseKind::IdleTimeout);
    }
}

#[test]
fn a_thousand_connections_leave_no_state() {
    let mut pair = Pair::default_pair();
    for round in 0..20 {
        let mut open = Vec::new();
        for _ in 0..50 {
            open.push(pair.connect());
        }
        for &client in &open {
            let conn = pair.client.endpoint.connection(client).unwrap();
            conn.send_stream(0, Bytes::from_static(b"ping"), true)
                .unwrap();
        }
        pair.run_until("all 50 having arrived", |pair| {
            pair.server
                .streams
                .values()
                .filter(|received| received.fin)
                .count()
                == 50
        });
        pair.server.streams.clear();
        assert_eq!(pair.client.endpoint.len(), 50);
        assert_eq!(pair.server.endpoint.len(), 50);
        for client in open {
            pair.close(Who::Client, client, round, None, b"");
        }
        pair.run_until_idle();
    }
    for peer in [&pair.client, &pair.server] {
        let closed = peer
            .events
            .iter()
            .filter(|(_, e)| matches!(e, Event::Closed { .. }))
            .count();
        assert_eq!(closed, 1_000);
    }
    let stats = pair.server.endpoint.stats();
    assert_eq!(
        (stats.connections_accepted, stats.connections_closed),
        (1_000, 1_000)
    );
}

#[test]
fn events_of_one_connection_are_consecutive() {
    let mut pair = Pair::default_pair();
    let keys: Vec<_> = (0..5).map(|_| pair.establish().0).collect();
    pair.server.events.clear();
    for _ in 0..3 {
        for &key in &keys {
            let conn = pair.client.endpoint.connection(key).unwrap();
            let id = conn.next_stream_id(true);
            conn.send_stream(id, Bytes::from_static(b"x"), true)
                .unwrap();
        }
    }
    pair.run_until("15 events", |pair| pair.server.events.len() == 15);
    let mut order: Vec<_> = pair.server.events.iter().map(|(key, _)| *key).collect();
    order.dedup();
    assert_eq!(
        order.len(),
        5,
        "the events of a connection are not interleaved with others"
    );
}

#[test]
fn completed_handshakes_are_not_counted_as_in_progress() {
    let settings = EndpointSettings {
        max_handshakes: 4,
        retry_handshakes: 2,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server_settings(), settings);
    for _ in 0..20 {
        pair.establish();
    }
    let stats = pair.server.endpoint.stats();
    assert_eq!((stats.incoming_retried, stats.incoming_ignored), (0, 0));
}

#[test]
fn a_handshake_completed_in_the_same_iteration_ignores_an_icmp_error() {
    let mut pair = Pair::default_pair();
    let key = pair.connect();
    pair.exchange();
    pair.record = true;
    pair.server.is_mute = true;
    pair.run_until("the server's flight", |pair| !pair.recorded.is_empty());
    for (_, datagram) in std::mem::take(&mut pair.recorded) {
        pair.deliver(Who::Client, &datagram, None);
    }
    let (now, addr) = (pair.now, pair.server.addr);
    pair.client.endpoint.handle_unreachable(now, addr, 111);
    pair.server.is_mute = false;
    pair.run_for(Duration::from_secs(1));
    assert!(pair.client.closed(key).is_none());
    assert!(pair.client.endpoint.peek(key).unwrap().is_established());
}
