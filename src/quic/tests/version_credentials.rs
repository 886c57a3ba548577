//! Session tickets, address validation tokens and 0-RTT data: each belongs to one QUIC version.

use std::{sync::Arc, time::Duration};

use crate::support::{
    Link, Pair, Random, client_settings,
    sessions::{connect_and_send, early_server, newest_server, outcome, tickets},
};
use bytes::Bytes;
use uringcore_quic::{
    ClientSettings, ClientSetup, Event, Retry, ServerSettings, VERSION_1, VERSION_2,
    tls::{MemorySessions, SessionTicket},
};

const VERSIONS: [u32; 2] = [VERSION_1, VERSION_2];

/// Settings of a client that begins with the version `first` and prefers the first of `supported`.
fn client(supported: &[u32], first: u32) -> ClientSettings {
    ClientSettings {
        supported_versions: supported.to_vec(),
        original_version: Some(first),
        ..client_settings()
    }
}

/// Settings of a client that supports one version.
fn only(version: u32) -> ClientSettings {
    client(&[version], version)
}

/// Settings of a client that begins with `first` and switches to the other version.
fn switching(first: u32) -> ClientSettings {
    client(&[other(first), first], first)
}

fn other(version: u32) -> u32 {
    VERSIONS[usize::from(version == VERSION_1)]
}

/// The ticket and the token that a client with `settings` gets from the pair's server, and the token's version.
fn credentials(pair: &mut Pair, settings: &ClientSettings) -> (SessionTicket, Bytes, u32) {
    pair.client_setup = ClientSetup::new(settings).unwrap();
    let ticket = tickets(pair).remove(0);
    let found = pair.client.events.iter().rev();
    let (token, version) = found
        .filter_map(|(_, event)| match event {
            Event::NewToken { token, version } => Some((token.clone(), *version)),
            _ => None,
        })
        .next()
        .expect("the server sends tokens");
    (ticket, token, version)
}

fn with_ticket(settings: ClientSettings, ticket: &SessionTicket) -> ClientSetup {
    ClientSetup::new(&ClientSettings {
        session_ticket: Some(ticket.clone()),
        ..settings
    })
    .unwrap()
}

#[test]
fn tickets_and_tokens_have_the_negotiated_version() {
    let mut pair = Pair::new(client_settings(), early_server());
    for first in VERSIONS {
        let (ticket, _, version) = credentials(&mut pair, &only(first));
        assert_eq!((ticket.version, version), (Some(first), first));
        let (ticket, _, version) = credentials(&mut pair, &switching(first));
        assert_eq!(
            (ticket.version, version),
            (Some(other(first)), other(first))
        );
    }
}

#[test]
fn a_ticket_is_used_by_connections_that_begin_with_its_version() {
    let mut pair = Pair::new(client_settings(), early_server());
    for (of, first) in VERSIONS
        .map(|of| VERSIONS.map(|first| (of, first)))
        .concat()
    {
        // If the client does not know the version of its ticket, only the server checks it.
        for is_known in [true, false] {
            let (mut ticket, ..) = credentials(&mut pair, &only(of));
            ticket.version = ticket.version.filter(|_| is_known);
            pair.client_setup = with_ticket(only(first), &ticket);
            pair.record = true;
            pair.recorded.clear();
            let key = connect_and_send(&mut pair, b"hello");
            pair.exchange();
            pair.record = false;
            pair.run_until("the data", |pair| {
                outcome(&pair.client, key).is_some() && pair.server.finished(newest_server(pair), 0)
            });
            let is_same = of == first;
            let found = outcome(&pair.client, key);
            assert_eq!(
                found,
                Some((is_same, is_same)),
                "{of:x} {first:x} {is_known}"
            );
            let shows = pair.recorded.iter().any(|(_, datagram)| is_early(datagram));
            assert_eq!(shows, is_same || !is_known, "{of:x} {first:x} {is_known}");
            let server = newest_server(&pair);
            assert_eq!(pair.server.received(server, 0), b"hello");
        }
    }
}

/// True if a datagram has a 0-RTT packet (RFC 9000 section 17.2, RFC 9369 section 3.2).
fn is_early(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while rest.first().is_some_and(|first| first & 0x80 != 0) {
        let version = u32::from_be_bytes(rest[1..5].try_into().unwrap());
        let initial = u8::from(version == VERSION_2);
        let kind = rest[0] >> 4 & 3;
        if kind == initial + 1 {
            return true;
        }
        let source = 6 + usize::from(rest[5]);
        let mut at = source + 1 + usize::from(rest[source]);
        if kind == initial {
            let token = varint(rest, &mut at);
            at += token;
        }
        let length = varint(rest, &mut at);
        rest = rest.get(at + length..).unwrap_or_default();
    }
    false
}

fn varint(bytes: &[u8], at: &mut usize) -> usize {
    let end = *at + (1 << (bytes[*at] >> 6));
    let first = usize::from(bytes[*at] & 0x3f);
    let value = bytes[*at + 1..end].iter();
    *at = end;
    value.fold(first, |value, byte| value << 8 | usize::from(*byte))
}

#[test]
fn a_token_is_used_by_connections_that_begin_with_its_version() {
    let server = ServerSettings {
        retry: Retry::Always,
        ..early_server()
    };
    let mut pair = Pair::new(client_settings(), server);
    for (of, first) in VERSIONS
        .map(|of| VERSIONS.map(|first| (of, first)))
        .concat()
    {
        for is_known in [true, false] {
            let (_, token, version) = credentials(&mut pair, &only(of));
            pair.client_setup = ClientSetup::new(&ClientSettings {
                token: token.clone(),
                token_version: is_known.then_some(version),
                ..only(first)
            })
            .unwrap();
            let before = pair.server.endpoint.stats().incoming_retried;
            pair.record = true;
            pair.recorded.clear();
            pair.establish();
            pair.record = false;
            let retried = pair.server.endpoint.stats().incoming_retried - before;
            assert_eq!(
                retried,
                u64::from(of != first),
                "{of:x} {first:x} {is_known}"
            );
            let shows = pair.recorded[0]
                .1
                .windows(token.len())
                .any(|window| window == token);
            assert_eq!(
                shows,
                of == first || !is_known,
                "{of:x} {first:x} {is_known}"
            );
        }
    }
}

#[test]
fn early_data_of_each_version_is_accepted() {
    for first in VERSIONS {
        for (settings, ends) in [(only(first), first), (switching(first), other(first))] {
            for seed in 0..6 {
                let mut server = early_server();
                server.retry = (seed % 2 == 1).into();
                let mut pair = Pair::new(client_settings(), server);
                let (ticket, ..) = credentials(&mut pair, &only(first));
                pair.random = Random::new(seed + 1);
                if seed >= 2 {
                    pair.link = Link {
                        loss: 20,
                        reorder: 20,
                        duplicate: 10,
                        ..Link::default()
                    };
                }
                pair.client_setup = with_ticket(settings.clone(), &ticket);
                let data = Random::new(9).bytes(40_000);
                let key = connect_and_send(&mut pair, &data);
                pair.run_until("the data", |pair| {
                    outcome(&pair.client, key).is_some()
                        && pair.server.finished(newest_server(pair), 0)
                });
                let server = newest_server(&pair);
                let case = format!("{first:x} to {ends:x}, seed {seed}");
                assert!(pair.server.received(server, 0) == data, "{case}");
                assert_eq!(pair.client.endpoint.peek(key).unwrap().version(), ends);
                assert_eq!(pair.server.endpoint.peek(server).unwrap().version(), ends);
                assert!(outcome(&pair.client, key).unwrap().0, "resumed: {case}");
                if seed < 2 {
                    let taken = outcome(&pair.client, key);
                    assert_eq!(taken, Some((true, true)), "{case}");
                    let early = pair.server.has(
                        server,
                        |event| matches!(event, Event::StreamData { data, .. } if data.is_early()),
                    );
                    assert!(early, "{case}");
                }
            }
        }
    }
}

#[test]
fn early_data_rejected_by_a_switching_server_arrives_once() {
    for first in VERSIONS {
        let mut pair = Pair::new(client_settings(), early_server());
        let (ticket, ..) = credentials(&mut pair, &only(first));
        // The client connects to another server, which does not have the session.
        let mut pair = Pair::new(client_settings(), early_server());
        pair.client_setup = with_ticket(switching(first), &ticket);
        let data = Random::new(9).bytes(40_000);
        let key = connect_and_send(&mut pair, &data);
        pair.run_until("the data", |pair| {
            outcome(&pair.client, key).is_some() && pair.server.finished(newest_server(pair), 0)
        });
        let server = newest_server(&pair);
        assert_eq!(outcome(&pair.client, key), Some((false, false)));
        assert!(pair.server.received(server, 0) == data);
        assert_eq!(
            pair.client.endpoint.peek(key).unwrap().version(),
            other(first)
        );
    }
}

#[test]
fn early_data_before_a_version_negotiation_packet_arrives_once() {
    for first in VERSIONS {
        let mut server = early_server();
        server.sessions = Some(Arc::new(MemorySessions::new(16)));
        let mut pair = Pair::new(client_settings(), server.clone());
        let (ticket, ..) = credentials(&mut pair, &only(first));
        server.supported_versions = vec![other(first)];
        let mut pair = Pair::new(client_settings(), server);
        pair.client_setup = with_ticket(client(&VERSIONS, first), &ticket);
        let data = Random::new(9).bytes(40_000);
        let key = connect_and_send(&mut pair, &data);
        pair.run_until("the data", |pair| {
            outcome(&pair.client, key).is_some() && pair.server.finished(newest_server(pair), 0)
        });
        pair.run_for(Duration::from_secs(1));
        let server = newest_server(&pair);
        assert_eq!(outcome(&pair.client, key), Some((false, false)));
        assert!(pair.server.received(server, 0) == data);
        assert_eq!(
            pair.client.endpoint.peek(key).unwrap().version(),
            other(first)
        );
    }
}
