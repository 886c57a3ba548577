//! Connections end: by a close of either side, by a time-out, or by a reset.

use std::time::Duration;

use crate::support::{Link, Pair, Who, client_settings, server_settings, with_transport};
use bytes::Bytes;
use uringcore_quic::{
    CloseKind, DatagramError, Endpoint, EndpointSettings, Event, ServerSetup, StreamError,
};

#[test]
fn an_application_close_carries_code_and_reason() {
    for who in [Who::Client, Who::Server] {
        let mut pair = Pair::default_pair();
        let (client, server) = pair.establish();
        let (near, far) = match who {
            Who::Client => (client, server),
            Who::Server => (server, client),
        };
        pair.close(who, near, 0x1234_5678, None, "ünterwegs".as_bytes());
        // A second close has no effect.
        pair.close(who, near, 1, None, b"");
        pair.exchange();
        let reason = "ünterwegs".to_owned();
        let ours = pair.peer(who).closed(near).unwrap();
        assert_eq!(ours, (0x1234_5678, None, reason.clone(), CloseKind::Local));
        let conn = pair.peer(who).endpoint.connection(near).unwrap();
        assert!(conn.is_closed() && !conn.is_established());
        assert_eq!(
            conn.send_stream(0, Bytes::new(), true),
            Err(StreamError::Closed)
        );
        pair.run_until_idle();
        let theirs = pair.peer(who.other()).closed(far).unwrap();
        assert_eq!(
            theirs,
            (0x1234_5678, None, reason, CloseKind::PeerApplication)
        );
        assert!(
            pair.client.endpoint.connection(client).is_none(),
            "the key of a removed connection finds nothing"
        );
    }
}

#[test]
fn a_transport_close_carries_the_frame_type() {
    for (code, frame_type) in [
        (0x0a, 0x00),
        (0x07, 0x08),
        (0x1_0000, 0x31),
        (0x03, 0x4_0000),
    ] {
        let mut pair = Pair::default_pair();
        let (client, server) = pair.establish();
        pair.close(Who::Client, client, code, Some(frame_type), b"broken rule");
        pair.run_until_idle();
        let reason = "broken rule".to_owned();
        let expected = (
            code,
            Some(frame_type),
            reason.clone(),
            CloseKind::PeerTransport,
        );
        assert_eq!(pair.server.closed(server).unwrap(), expected);
        let expected = (code, Some(frame_type), reason, CloseKind::Local);
        assert_eq!(pair.client.closed(client).unwrap(), expected);
    }
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let reason = format!("x{}", "é".repeat(1_000));
    pair.close(Who::Client, client, 0, None, reason.as_bytes());
    pair.run_until_idle();
    let (_, _, received, _) = pair.server.closed(server).unwrap();
    assert_eq!(received, format!("x{}", "é".repeat(255)));
}

#[test]
fn simultaneous_closes_end_both_sides_once() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.close(Who::Client, client, 1, None, b"");
    pair.close(Who::Server, server, 2, None, b"");
    pair.run_until_idle();
    assert_eq!(pair.client.closed(client).unwrap().0, 1);
    assert_eq!(pair.server.closed(server).unwrap().0, 2);
}

#[test]
fn a_close_before_the_handshake_hides_the_code() {
    let mut pair = Pair::default_pair();
    let key = pair.connect();
    pair.close(Who::Client, key, 5, None, b"changed my mind");
    pair.run_until_idle();
    assert_eq!(pair.client.closed(key).unwrap().3, CloseKind::Local);

    let mut pair = Pair::default_pair();
    pair.connect();
    pair.run_until("the server getting the close", |pair| {
        !pair.server.events.is_empty()
    });
    let server = pair.server.events[0].0;
    pair.close(Who::Server, server, 5, None, b"no");
    pair.run_until_idle();
    let client = pair.client.events.last().unwrap().0;
    let (code, _, _, kind) = pair.client.closed(client).unwrap();
    assert_eq!(
        (code, kind),
        (0x0c, CloseKind::PeerTransport),
        "RFC 9000 section 10.2.3"
    );
}

#[test]
fn idle_connections_end_on_both_sides() {
    let (client, server) = with_transport(|t| t.idle_timeout = Duration::from_secs(3));
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    let begin = pair.now;
    pair.run_until_idle();
    let time = pair.now - begin;
    assert!((3..5).contains(&time.as_secs()), "after {time:?}");
    for closed in [
        pair.client.closed(client).unwrap(),
        pair.server.closed(server).unwrap(),
    ] {
        assert_eq!(
            closed,
            (1, Some(0), "Idle timeout".into(), CloseKind::IdleTimeout)
        );
    }
}

#[test]
fn keep_alive_prevents_the_idle_timeout() {
    let (mut client, server) = with_transport(|t| t.idle_timeout = Duration::from_secs(3));
    client.transport.keep_alive = Some(Duration::from_secs(1));
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(60));
    assert!(pair.client.closed(client).is_none() && pair.server.closed(server).is_none());
}

#[test]
fn a_peer_that_vanishes_in_a_transfer_times_out() {
    let (client, server) = with_transport(|t| t.idle_timeout = Duration::from_secs(5));
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 10 << 20].into(), true).unwrap();
    pair.run_until("some data", |pair| {
        pair.server.received(server, 0).len() > 100_000
    });
    pair.client.is_mute = true;
    pair.run_until("the server noticing", |pair| {
        pair.server.closed(server).is_some()
    });
    assert_eq!(
        pair.server.closed(server).unwrap().3,
        CloseKind::IdleTimeout
    );
    // The server is gone without a close, so the client's connection ends by its own time-out.
    pair.run_until_idle();
    assert_eq!(
        pair.client.closed(client).unwrap().3,
        CloseKind::IdleTimeout
    );
}

#[test]
fn a_restarted_peer_sends_a_stateless_reset() {
    let keys = vec![[7; 32]];
    let settings = EndpointSettings {
        reset_keys: keys,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server_settings(), settings.clone());
    let (client, _) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let setup = ServerSetup::new(&server_settings()).unwrap();
    pair.server.endpoint = Endpoint::new(settings, Some(setup));
    pair.client.endpoint.connection(client).unwrap().ping(1);
    pair.run_until("the reset", |pair| pair.client.closed(client).is_some());
    assert_eq!(
        pair.client.closed(client).unwrap().3,
        CloseKind::StatelessReset
    );
    pair.run_until_idle();
}

#[test]
fn close_all_ends_connections_and_refused_clients_get_an_answer() {
    let mut pair = Pair::default_pair();
    let connections: Vec<_> = (0..10).map(|_| pair.establish()).collect();
    pair.server.endpoint.set_server(None);
    let refused = pair.connect();
    pair.run_for(Duration::from_secs(2));
    assert!(!pair.client.endpoint.peek(refused).unwrap().is_established());
    let now = pair.now;
    pair.server.endpoint.close_all(now, 0x100, b"going away");
    pair.run_until_idle();
    for (client, server) in connections {
        let (code, _, reason, kind) = pair.client.closed(client).unwrap();
        assert_eq!(
            (code, &*reason, kind),
            (0x100, "going away", CloseKind::PeerApplication)
        );
        assert_eq!(pair.server.closed(server).unwrap().3, CloseKind::Local);
    }
}

#[test]
fn no_event_follows_closed() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.pause_behind(client, server, b"a");
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"bc"), true)
        .unwrap();
    pair.run_for(Duration::from_secs(1));
    pair.close(Who::Server, server, 0, None, b"");
    pair.exchange();
    let now = pair.now;
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.resume_stream(0);
    conn.ping(1);
    conn.close(now, 1, None, b"");
    conn.request_key_update();
    conn.change_connection_id();
    assert_eq!(conn.stop_stream(0, 0), Err(StreamError::Closed));
    assert_eq!(conn.reset_stream(0, 0), Err(StreamError::Closed));
    assert_eq!(conn.send_datagram(Bytes::new()), Err(DatagramError::Closed));
    pair.run_until_idle();
    assert_eq!(pair.server.received(server, 0), b"a");
    assert!(
        pair.server.closed(server).is_some(),
        "`Closed` is the last event"
    );
}

#[test]
fn a_pause_after_the_peers_close_loses_no_data() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let conn = pair.client.endpoint.connection(client).unwrap();
    for id in [0, 4, 8] {
        conn.send_stream(id, Bytes::from_static(b"data"), true)
            .unwrap();
    }
    // Data and the close arrive in one batch, and the application pauses all streams at the first event.
    let (mut buf, now) = (Vec::new(), pair.now);
    let mut flight = Vec::new();
    while pair.client.endpoint.poll_transmit(now, &mut buf).is_some() {
        flight.push(buf.clone());
    }
    pair.close(Who::Client, client, 0, None, b"");
    while pair.client.endpoint.poll_transmit(now, &mut buf).is_some() {
        flight.push(buf.clone());
    }
    for datagram in flight {
        pair.deliver(Who::Server, &datagram, None);
    }
    let mut heard = Vec::new();
    while let Some((key, event)) = pair.server.endpoint.poll_event() {
        for id in [0, 4, 8] {
            pair.server
                .endpoint
                .connection(key)
                .unwrap()
                .pause_stream(id);
        }
        heard.push(event);
    }
    let streams = heard
        .iter()
        .filter(|e| matches!(e, Event::StreamData { fin: true, .. }))
        .count();
    assert_eq!(streams, 3, "{heard:?}");
    assert!(
        matches!(heard.last(), Some(Event::Closed { .. })) && heard.len() == 4,
        "{heard:?}"
    );
    let _ = server;
}

#[test]
fn data_unread_at_a_local_close_is_dropped() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"too late"), true)
        .unwrap();
    let (now, mut buf) = (pair.now, Vec::new());
    let mut flight = Vec::new();
    while pair.client.endpoint.poll_transmit(now, &mut buf).is_some() {
        flight.push(buf.clone());
    }
    for datagram in flight {
        pair.deliver(Who::Server, &datagram, None);
    }
    // `poll_transmit` has handled the datagrams, so the event is queued already.
    while pair.server.endpoint.poll_transmit(now, &mut buf).is_some() {}
    pair.close(Who::Server, server, 0, None, b"");
    pair.exchange();
    assert!(pair.server.received(server, 0).is_empty());
    assert!(pair.server.closed(server).is_some());
}

#[test]
fn a_close_does_not_wait_for_a_full_congestion_window() {
    for closing in [Who::Client, Who::Server] {
        let (client, server) = with_transport(|t| {
            t.max_data = 64 << 20;
            t.max_stream_data = 64 << 20;
        });
        let mut pair = Pair::new(client, server).link(Link {
            latency: Duration::from_millis(20),
            rate: Some(1_250_000),
            ..Link::default()
        });
        let (client, server) = pair.establish();
        let (key, other) = match closing {
            Who::Client => (client, server),
            Who::Server => (server, client),
        };
        let conn = pair.peer(closing).endpoint.connection(key).unwrap();
        let id = conn.next_stream_id(true);
        conn.send_stream(id, vec![1; 32 << 20].into(), true)
            .unwrap();
        pair.run_for(Duration::from_secs(2));
        pair.close(closing, key, 7, None, b"enough");
        let begin = pair.now;
        let closed = |event: &Event| matches!(event, Event::Closed { error_code: 7, .. });
        pair.run_until("the close", |pair| {
            pair.peer(closing.other()).has(other, closed)
        });
        // A full queue of the link would take 80 ms, and the path takes 20 ms.
        assert!(
            pair.now - begin < Duration::from_millis(150),
            "{:?}",
            pair.now - begin
        );
        pair.run_until_idle();
    }
}
