//! The limit of the peer's open streams. If it is high, a lower one is announced at first.

use std::time::Duration;

use bytes::Bytes;

use crate::support::{Link, Pair, with_transport};
use uringcore_quic::TransportSettings;

/// A client opens `count` streams of each kind and ends none. Returns how many of each kind the server has received:
/// when the first have arrived, and a round trip later.
fn seen(count: u64, edit: fn(&mut TransportSettings)) -> [[usize; 2]; 2] {
    let (client, server) = with_transport(edit);
    let link = Link {
        latency: Duration::from_millis(50),
        ..Link::default()
    };
    let mut pair = Pair::new(client, server).link(link);
    let (client, _) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let conn = pair.client.endpoint.connection(client).unwrap();
    for id in (0..count).flat_map(|n| [n * 4, n * 4 + 2]) {
        conn.send_stream(id, Bytes::from_static(b"x"), false)
            .unwrap();
    }
    pair.run_for(Duration::from_millis(60));
    let first = counted(&pair);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.client.closed(client), None);
    [first, counted(&pair)]
}

fn counted(pair: &Pair) -> [usize; 2] {
    let ids = || pair.server.streams.keys().map(|(_, id)| id % 4);
    [0, 2].map(|kind| ids().filter(|id| *id == kind).count())
}

#[test]
fn a_high_stream_limit_is_announced_in_two_steps() {
    assert_eq!(seen(300, |_| ()), [[100, 12], [128, 128]]);
    let many = |t: &mut TransportSettings| {
        t.max_streams_bidi = 1_000;
        t.max_streams_uni = 200;
    };
    assert_eq!(seen(300, many), [[100, 12], [300, 200]]);
}

#[test]
fn a_low_stream_limit_is_announced_at_once() {
    let few = |t: &mut TransportSettings| {
        t.max_streams_bidi = 114;
        t.max_streams_uni = 13;
    };
    assert_eq!(seen(300, few), [[114, 13], [114, 13]]);
}

#[test]
fn a_peer_that_opens_streams_in_turn_never_reaches_the_first_limit() {
    let (client, server) = with_transport(|_| ());
    let mut pair = Pair::new(client, server);
    let (client, _) = pair.establish();
    for n in 0..128 {
        let conn = pair.client.endpoint.connection(client).unwrap();
        for id in [n * 4, n * 4 + 2] {
            conn.send_stream(id, Bytes::from_static(b"x"), false)
                .unwrap();
            assert_eq!(conn.send_queue_bytes(id), 1);
        }
        pair.run_for(Duration::from_millis(40));
        assert_eq!(counted(&pair), [n as usize + 1; 2]);
    }
}

#[test]
fn the_application_may_read_and_change_the_stream_limit() {
    let (client, server) = with_transport(|_| ());
    let mut pair = Pair::new(client, server);
    let (_, server) = pair.establish();
    let conn = pair.server.endpoint.connection(server).unwrap();
    assert_eq!([false, true].map(|uni| conn.max_streams(uni)), [128; 2]);
    conn.set_max_streams(true, 20);
    assert_eq!(conn.max_streams(true), 20);
    pair.exchange();
    pair.run_for(Duration::from_secs(1));
    let client = pair.client.events[0].0;
    let conn = pair.client.endpoint.connection(client).unwrap();
    for n in 0..40 {
        conn.send_stream(n * 4 + 2, Bytes::from_static(b"x"), false)
            .unwrap();
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(counted(&pair), [0, 20]);
}
