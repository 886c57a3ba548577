//! DATAGRAM frames in 0-RTT data (RFC 9221 section 3).

use std::time::Duration;

use crate::support::{
    Link, Pair, Peer, Random, Who, client_settings,
    sessions::{early_server, newest_server, outcome, send, ticket},
};
use bytes::Bytes;
use uringcore_quic::{
    ClientSettings, ClientSetup, ConnectionKey, EndpointSettings, Event, Retry, ServerSettings,
    tls::SessionTicket,
};

fn client(ticket: Option<&SessionTicket>) -> ClientSettings {
    let mut settings = client_settings();
    settings.session_ticket = ticket.cloned();
    settings.transport.datagram_recv_bytes = Some(1 << 20);
    settings
}

fn server(datagrams: Option<usize>) -> ServerSettings {
    let mut settings = early_server();
    settings.transport.datagram_recv_bytes = datagrams;
    settings
}

/// The datagrams that have arrived at a connection, each with its `early` flag.
fn arrived(peer: &Peer, key: ConnectionKey) -> Vec<(Bytes, bool)> {
    let datagram = |(of, event): &(ConnectionKey, Event)| match event {
        Event::Datagram { data, early } if *of == key => Some((data.clone(), *early)),
        _ => None,
    };
    peer.events.iter().filter_map(datagram).collect()
}

fn queue_datagram(pair: &mut Pair, who: Who, key: ConnectionKey, data: Bytes) {
    let connection = pair.peer(who).endpoint.connection(key).unwrap();
    connection.send_datagram(data).unwrap();
}

fn numbered(length: usize, count: u64) -> Vec<Bytes> {
    (0..count)
        .map(|number| Random::new(number).bytes(length).into())
        .collect()
}

#[test]
fn early_datagrams_leave_with_the_first_flight_and_are_marked() {
    // The largest datagram waits for the handshake, because a 0-RTT packet may have no room for it.
    for (length, early) in [(0, true), (1, true), (1_122, true), (1_150, false)] {
        let mut pair = Pair::new(client(None), server(Some(1 << 20)));
        let ticket = ticket(&mut pair);
        pair.client_setup = ClientSetup::new(&client(Some(&ticket))).unwrap();
        let before = pair.now;
        let key = pair.connect();
        let said = numbered(length, 3);
        for data in &said {
            queue_datagram(&mut pair, Who::Client, key, data.clone());
        }
        pair.run_until("all of them", |pair| {
            let server = newest_server(pair);
            pair.server.has(server, |event| *event == Event::Accepted)
                && arrived(&pair.server, server).len() == 3
        });
        let server = newest_server(&pair);
        let expected: Vec<_> = said.iter().map(|data| (data.clone(), early)).collect();
        assert_eq!(arrived(&pair.server, server), expected, "{length} bytes");
        let latency = Link::default().latency;
        assert_eq!(pair.now - before == latency, early, "{length} bytes");
        if early {
            // The server's answer does not wait for the client's last flight.
            assert_eq!(outcome(&pair.server, server), None);
            queue_datagram(
                &mut pair,
                Who::Server,
                server,
                Bytes::from_static(b"answer"),
            );
            pair.run_until("the answer", |pair| {
                let answers = arrived(&pair.client, key);
                answers == [(Bytes::from_static(b"answer"), false)]
            });
            assert_eq!(pair.now - before, 2 * latency);
        }
        queue_datagram(&mut pair, Who::Client, key, Bytes::from_static(b"late"));
        pair.run_until("the last one", |pair| {
            arrived(&pair.server, server).len() == 4
        });
        let last = (Bytes::from_static(b"late"), false);
        assert_eq!(arrived(&pair.server, server)[3], last);
        assert_eq!(outcome(&pair.server, server), Some((true, true)));
    }
}

#[test]
fn rejected_datagrams_arrive_once_and_unmarked() {
    for count in [2, 200] {
        let mut pair = Pair::new(client(None), server(Some(1 << 20)));
        let ticket = ticket(&mut pair);
        // This server does not have the session, so it rejects 0-RTT data.
        let settings = EndpointSettings::default();
        let mut pair = Pair::with(client(Some(&ticket)), server(Some(1 << 20)), settings);
        let key = pair.connect();
        let said = numbered(1_000, count);
        for data in &said {
            queue_datagram(&mut pair, Who::Client, key, data.clone());
        }
        send(&mut pair, Who::Client, key, 0, b"beside them", true);
        pair.exchange();
        let sent = pair.client.endpoint.peek(key).unwrap().stats();
        assert!(
            sent.datagram_frames_sent >= 2,
            "some datagrams were sent before the answer"
        );
        pair.run_until("all of them", |pair| {
            let Some((server, _)) = pair.server.events.first() else {
                return false;
            };
            arrived(&pair.server, *server).len() >= said.len() && pair.server.finished(*server, 0)
        });
        let server = newest_server(&pair);
        assert_eq!(outcome(&pair.client, key), Some((false, false)));
        let mut expected: Vec<_> = said.into_iter().map(|data| (data, false)).collect();
        let mut found = arrived(&pair.server, server);
        expected.sort_unstable();
        found.sort_unstable();
        assert!(found == expected, "each of them once");
        let stats = pair.client.endpoint.peek(key).unwrap().stats();
        assert_eq!(stats.datagram_frames_dropped, 0);
    }
}

#[test]
fn early_datagrams_are_sent_again_after_a_retry() {
    let mut settings = server(Some(1 << 20));
    settings.retry = Retry::Always;
    let mut pair = Pair::new(client(None), settings);
    let ticket = ticket(&mut pair);
    pair.client_setup = ClientSetup::new(&client(Some(&ticket))).unwrap();
    let before = pair.now;
    let key = pair.connect();
    let said = numbered(1_000, 3);
    for data in &said {
        queue_datagram(&mut pair, Who::Client, key, data.clone());
    }
    let server = newest_server(&pair);
    pair.run_until("the connection", |pair| newest_server(pair) != server);
    let server = newest_server(&pair);
    pair.run_until("all of them", |pair| {
        arrived(&pair.server, server).len() == 3
    });
    assert_eq!(pair.now - before, 3 * Link::default().latency);
    let expected: Vec<_> = said.into_iter().map(|data| (data, true)).collect();
    assert_eq!(arrived(&pair.server, server), expected, "each of them once");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(arrived(&pair.server, server).len(), 3);
    assert_eq!(outcome(&pair.client, key), Some((true, true)));
}

#[test]
fn datagrams_wait_if_the_ticket_allows_none() {
    let mut pair = Pair::new(client(None), server(None));
    let ticket = ticket(&mut pair);
    pair.client_setup = ClientSetup::new(&client(Some(&ticket))).unwrap();
    let key = pair.connect();
    queue_datagram(&mut pair, Who::Client, key, Bytes::from_static(b"nobody"));
    send(&mut pair, Who::Client, key, 0, b"for the server", true);
    pair.run_until("the handshake", |pair| outcome(&pair.client, key).is_some());
    let server = newest_server(&pair);
    pair.run_until("the data", |pair| pair.server.finished(server, 0));
    assert_eq!(outcome(&pair.client, key), Some((true, true)));
    assert_eq!(arrived(&pair.server, server), []);
    let stats = pair.client.endpoint.peek(key).unwrap().stats();
    let counted = (stats.datagram_frames_sent, stats.datagram_frames_dropped);
    assert_eq!(counted, (0, 1), "the server accepts no datagrams");
}
