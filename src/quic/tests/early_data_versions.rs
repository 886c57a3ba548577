//! 0-RTT data on a connection that continues with another QUIC version (RFC 9368): after a Version Negotiation
//! packet, and by compatible negotiation.

use std::sync::Arc;

use crate::support::{
    Link, Pair, Random, Who, client_settings,
    sessions::{early_server, newest_server, outcome, send, ticket},
};
use bytes::Bytes;
use uringcore_quic::{
    ClientSettings, ConnectionKey, EndpointSettings, Event, ServerSettings, VERSION_1, VERSION_2,
    tls::{MemorySessions, SessionStore, SessionTicket},
};

/// Settings of a client that begins with the version `first` and prefers `second`.
fn client(first: u32, second: u32, ticket: Option<&SessionTicket>) -> ClientSettings {
    let mut settings = client_settings();
    settings.supported_versions = vec![second, first];
    settings.original_version = Some(first);
    settings.session_ticket = ticket.cloned();
    settings.transport.datagram_recv_bytes = Some(1 << 20);
    settings
}

fn server(supported: &[u32], sessions: &Arc<dyn SessionStore>) -> ServerSettings {
    let mut settings = early_server();
    settings.supported_versions = supported.to_vec();
    settings.sessions = Some(sessions.clone());
    settings.transport.datagram_recv_bytes = Some(1 << 20);
    settings
}

/// A client with a ticket of version `first`, and a server that supports `supported`.
fn pair(first: u32, second: u32, supported: &[u32], link: Link) -> Pair {
    let sessions: Arc<dyn SessionStore> = Arc::new(MemorySessions::new(100));
    let mut before = Pair::new(client(first, second, None), server(&[first], &sessions));
    let ticket = ticket(&mut before);
    assert_eq!(ticket.version, Some(first));
    let settings = EndpointSettings::default();
    Pair::with(
        client(first, second, Some(&ticket)),
        server(supported, &sessions),
        settings,
    )
    .link(link)
}

/// Sends data on streams of each kind and datagrams at once, and more after the first flight.
fn connect_and_send_all(pair: &mut Pair, long: &[u8]) -> ConnectionKey {
    let key = pair.connect();
    send(pair, Who::Client, key, 0, long, true);
    send(pair, Who::Client, key, 4, b"one", false);
    send(pair, Who::Client, key, 8, b"never mind", false);
    send(pair, Who::Client, key, 2, b"uni", true);
    let connection = pair.client.endpoint.connection(key).unwrap();
    for number in 0..DATAGRAMS {
        connection
            .send_datagram(Bytes::from(vec![number; 500]))
            .unwrap();
    }
    pair.exchange();
    assert!(
        pair.client.sent > 1,
        "0-RTT data leaves with the first flight"
    );
    send(pair, Who::Client, key, 4, b" two", true);
    let connection = pair.client.endpoint.connection(key).unwrap();
    connection.reset_stream(8, 77).unwrap();
    key
}

fn datagrams(pair: &Pair, server: ConnectionKey) -> Vec<Bytes> {
    let datagram = |(of, event): &(ConnectionKey, Event)| match event {
        Event::Datagram { data, .. } if *of == server => Some(data.clone()),
        _ => None,
    };
    pair.server.events.iter().filter_map(datagram).collect()
}

fn is_early(event: &Event) -> bool {
    match event {
        Event::StreamData { data, .. } => data.is_early(),
        Event::Datagram { early, .. } => *early,
        _ => false,
    }
}

/// Checks that the data of [`connect_and_send_all`] has arrived exactly once.
fn arrives(pair: &mut Pair, long: &[u8], datagrams_are_reliable: bool) -> ConnectionKey {
    pair.run_until("everything", |pair| {
        let Some((key, _)) = pair.server.events.first() else {
            return false;
        };
        let key = *key;
        let is_reset = |event: &Event| {
            matches!(
                event,
                Event::StreamReset {
                    stream_id: 8,
                    error_code: 77
                }
            )
        };
        [0, 2, 4]
            .into_iter()
            .all(|id| pair.server.finished(key, id))
            && pair.server.has(key, is_reset)
    });
    let server = newest_server(pair);
    assert!(
        pair.server.received(server, 0) == long,
        "the data is unchanged"
    );
    assert_eq!(pair.server.received(server, 4), b"one two");
    assert_eq!(pair.server.received(server, 2), b"uni");
    let mut found = datagrams(pair, server);
    found.sort_unstable();
    let sent: Vec<_> = (0..DATAGRAMS)
        .map(|number| Bytes::from(vec![number; 500]))
        .collect();
    if datagrams_are_reliable {
        assert_eq!(found, sent, "each datagram arrives once");
    }
    found.dedup();
    assert_eq!(
        found.len(),
        datagrams(pair, server).len(),
        "no datagram arrives twice"
    );
    server
}

#[test]
fn early_data_is_sent_again_after_a_version_negotiation_packet() {
    let long = Random::new(7).bytes(100_000);
    for (first, second) in [(VERSION_1, VERSION_2), (VERSION_2, VERSION_1)] {
        for loss in [0, 20] {
            let mut pair = pair(
                first,
                second,
                &[second],
                Link {
                    loss,
                    ..Link::default()
                },
            );
            let key = connect_and_send_all(&mut pair, &long);
            let server = arrives(&mut pair, &long, loss == 0);
            assert_eq!(outcome(&pair.client, key), Some((false, false)));
            assert_eq!(pair.client.endpoint.stats().connections_begun_again, 1);
            let connection = pair.client.endpoint.peek(key).unwrap();
            assert_eq!(connection.version(), second);
            assert_eq!(connection.stats().send_queue_bytes, 0);
            assert!(!pair.server.has(server, is_early));
        }
    }
}

#[test]
fn early_data_arrives_when_the_server_chooses_a_compatible_version() {
    let long = Random::new(7).bytes(100_000);
    for (first, second) in [(VERSION_1, VERSION_2), (VERSION_2, VERSION_1)] {
        for loss in [0, 20] {
            for reorder in [0, 40] {
                let link = Link {
                    loss,
                    reorder,
                    ..Link::default()
                };
                let mut pair = pair(first, second, &[second, first], link);
                let key = connect_and_send_all(&mut pair, &long);
                let server = arrives(&mut pair, &long, loss == 0);
                let connection = pair.client.endpoint.peek(key).unwrap();
                assert_eq!(connection.version(), second);
                // RFC 9369 section 4.1: the server still reads 0-RTT packets of the first version.
                assert_eq!(outcome(&pair.client, key), Some((true, true)));
                assert!(pair.server.has(server, is_early));
                assert_eq!(connection.stats().send_queue_bytes, 0);
                assert_eq!(pair.client.endpoint.stats().connections_begun_again, 0);
            }
        }
    }
}

const DATAGRAMS: u8 = 5;
