//! Invalid datagrams: random bytes, and mutated copies of real datagrams.
//!
//! Nothing panics, no state is left behind, and a connection survives as long as genuine datagrams reach it.

use std::time::Duration;

use crate::support::{Link, Pair, Random, Who, client_settings, server_settings, with_transport};
use bytes::Bytes;
use uringcore_quic::{CloseKind, Event, ServerSettings};

#[test]
fn random_datagrams_leave_no_state() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let mut random = Random::new(1);
    for n in 0..100_000 {
        let length = random.below(1_500);
        let mut datagram = random.bytes(length);
        if let Some(first) = datagram.first_mut().filter(|_| n % 4 == 0) {
            // The first bytes are those of a long header of version 1, to pass the first checks.
            *first |= 0xc0;
            datagram
                .iter_mut()
                .skip(1)
                .zip([0, 0, 0, 1, 8])
                .for_each(|(byte, v)| *byte = v);
        }
        let to = if random.percent(80) {
            Who::Server
        } else {
            Who::Client
        };
        pair.deliver(to, &datagram, Some(n as u8 & 3));
        if n % 100 == 0 {
            pair.exchange();
            pair.now += Duration::from_millis(1);
        }
    }
    assert_eq!(pair.server.endpoint.len(), 1, "no connection was begun");
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"still here"), true)
        .unwrap();
    pair.run_until("data", |pair| pair.server.finished(server, 0));
}

/// Records the datagrams of a session that uses many features.
fn record(retry: bool) -> Vec<(Who, Vec<u8>)> {
    let (client, server) = with_transport(|t| t.datagram_recv_bytes = Some(100_000));
    let mut pair = Pair::new(
        client,
        ServerSettings {
            retry: retry.into(),
            ..server
        },
    );
    pair.record = true;
    let (client, server) = pair.establish();
    for n in 0..5 {
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(n * 4, vec![n as u8; 20_000].into(), true)
            .unwrap();
        conn.send_datagram(vec![1; 500].into()).unwrap();
        conn.ping(n);
        pair.run_until("a stream", |pair| pair.server.finished(server, n * 4));
    }
    let now = pair.now;
    pair.client
        .endpoint
        .connection(client)
        .unwrap()
        .close(now, 1, None, b"bye");
    pair.run_until_idle();
    std::mem::take(&mut pair.recorded)
}

fn mutate(random: &mut Random, datagram: &[u8]) -> Vec<u8> {
    let mut result = datagram.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(result.len().max(1));
        match random.below(6) {
            // Mutations are mostly in headers, on which most decisions depend.
            0 | 1 => {
                let at = random.below(result.len().clamp(1, 40));
                result
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte = random.next() as u8);
            }
            2 => result
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1),
            3 => result.truncate(at),
            4 => result.splice(at..at, random.bytes(3)).for_each(drop),
            _ => result.extend_from_within(at..),
        }
    }
    result.truncate(65_527);
    result
}

#[test]
fn mutated_datagrams_of_other_connections_leave_no_state() {
    let recorded = [record(false), record(true)].concat();
    assert!(recorded.len() > 100);
    let mut pair = Pair::default_pair();
    let mut random = Random::new(2);
    let mut delivered = 0;
    let mut most = 0;
    // Each handshake takes long: a tenth of the datagrams that the other test sends, or more until enough have begun.
    let wanted = crate::mutated_datagrams::wanted() / 10;
    while delivered < wanted
        || delivered < 100_000 && pair.server.endpoint.stats().connections_accepted <= 50
    {
        for (_, datagram) in &recorded {
            let datagram = match random.percent(90) {
                true => mutate(&mut random, datagram),
                // Some datagrams are delivered unchanged, and often in order, so that handshakes begin.
                false => datagram.clone(),
            };
            let to = if random.percent(80) {
                Who::Server
            } else {
                Who::Client
            };
            pair.deliver(to, &datagram, None);
            delivered += 1;
            if random.percent(5) {
                pair.exchange();
                pair.run_for(Duration::from_millis(random.below(200) as u64));
            }
            most = most.max(pair.server.endpoint.len());
        }
    }
    let stats = pair.server.endpoint.stats();
    assert!(
        stats.connections_accepted > 50,
        "some datagrams began a handshake: {stats:?}"
    );
    assert!(most < 5_000, "{most} at a time");
    pair.run_until_idle();
    let count = |wanted: fn(&Event) -> bool| {
        pair.server
            .events
            .iter()
            .filter(|(_, event)| wanted(event))
            .count() as u64
    };
    assert_eq!(
        count(|event| matches!(event, Event::Accepted)),
        stats.connections_accepted
    );
    assert_eq!(
        count(|event| matches!(event, Event::Closed { .. })),
        stats.connections_accepted
    );
}

#[test]
fn mutated_datagrams_do_not_harm_their_connection() {
    let (client, server) = with_transport(|t| t.datagram_recv_bytes = Some(100_000));
    let mut pair = Pair::new(client, server);
    pair.link = Link {
        loss: 1,
        reorder: 5,
        ..Link::default()
    };
    let (client, server) = pair.establish();
    pair.record = true;
    let mut random = Random::new(3);
    let data: Bytes = random.bytes(3 << 20).into();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, data.clone(), true).unwrap();
    let mut delivered = 0;
    while !pair.server.finished(server, 0) {
        assert!(pair.step(), "the transfer stalled");
        for (from, datagram) in std::mem::take(&mut pair.recorded) {
            for _ in 0..20 {
                let mutated = mutate(&mut random, &datagram);
                if mutated != datagram {
                    pair.deliver(from.other(), &mutated, None);
                    delivered += 1;
                }
            }
        }
    }
    assert!(delivered > 40_000, "{delivered}");
    assert!(pair.server.received(server, 0) == data);
    let now = pair.now;
    pair.client
        .endpoint
        .connection(client)
        .unwrap()
        .close(now, 0, None, b"");
    pair.run_until_idle();
    assert_eq!(
        pair.server.closed(server).unwrap().3,
        CloseKind::PeerApplication
    );
}

#[test]
fn packets_of_unknown_versions_are_answered_unless_tiny() {
    let mut pair = Pair::new(client_settings(), server_settings());
    let mut datagram = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
    pair.deliver(Who::Server, &datagram, None);
    let (now, mut buf) = (pair.now, Vec::new());
    assert_eq!(pair.server.endpoint.poll_transmit(now, &mut buf), None);
    datagram.resize(1_200, 0);
    for _ in 0..1_000 {
        pair.deliver(Who::Server, &datagram, None);
    }
    let mut answers = 0;
    while let Some(transmit) = pair.server.endpoint.poll_transmit(now, &mut buf) {
        assert_eq!((transmit.remote, buf[0] & 0x80), (pair.client.addr, 0x80));
        assert_eq!(buf[1..5], [0; 4], "Version Negotiation");
        assert!(buf.windows(4).any(|version| version == [0, 0, 0, 1]));
        answers += 1;
    }
    let dropped = pair.server.endpoint.stats().responses_dropped;
    assert_eq!(answers + dropped, 1_000);
    assert!(answers <= 256, "a bounded queue: {answers}");
}

#[test]
fn a_server_of_another_version_ends_the_handshake() {
    let mut pair = Pair::default_pair();
    pair.server.is_mute = true;
    pair.record = true;
    let key = pair.connect();
    pair.exchange();
    let hello = pair.recorded[0].1.clone();
    let (dst_len, dst) = (hello[5], &hello[6..6 + usize::from(hello[5])]);
    let source_at = 6 + dst.len();
    let source = &hello[source_at + 1..source_at + 1 + usize::from(hello[source_at])];
    let answer = [
        &[0x80, 0, 0, 0, 0, source.len() as u8],
        source,
        &[dst_len],
        dst,
        &0xff00_001d_u32.to_be_bytes(),
    ]
    .concat();
    pair.deliver(Who::Client, &answer, None);
    pair.exchange();
    assert_eq!(
        pair.client.closed(key).unwrap().3,
        CloseKind::VersionNegotiation
    );
    pair.run_until_idle();
}
