//! Connections whose application reads streams on demand, and opens streams when the peer's limit allows.

use std::time::Duration;

use crate::support::{Pair, Random, with_transport};
use bytes::Bytes;
use uringcore_quic::{Connection, ConnectionKey, Event, Received, StreamEnd};

fn pattern(seed: u64, length: usize) -> Bytes {
    Random::new(seed).bytes(length).into()
}

/// A client, and a server that reads on demand, with these receive windows and this limit of streams.
fn read_on_demand(
    stream_window: u64,
    window: u64,
    streams: u64,
) -> (Pair, ConnectionKey, ConnectionKey) {
    let (client, server) = with_transport(|t| {
        t.max_stream_data = stream_window;
        t.max_data = window;
        t.max_streams_bidi = streams;
    });
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    conn(&mut pair, server).read_on_demand();
    (pair, client, server)
}

fn conn(pair: &mut Pair, key: ConnectionKey) -> &mut Connection {
    pair.server.endpoint.connection(key).unwrap()
}

fn readable(pair: &Pair, server: ConnectionKey, id: u64) -> usize {
    let tells = |(key, event): &&(ConnectionKey, Event)| {
        *key == server && *event == Event::StreamReadable { stream_id: id }
    };
    pair.server.events.iter().filter(tells).count()
}

fn read(
    pair: &mut Pair,
    server: ConnectionKey,
    id: u64,
    max: usize,
) -> (Vec<u8>, Option<StreamEnd>) {
    let Received { data, end } = conn(pair, server).read_stream(id, max);
    (data.to_vec(), end)
}

#[test]
fn reading_gives_as_much_credit() {
    let (mut pair, client, server) = read_on_demand(10_000, 1 << 20, 8);
    let data = pattern(1, 50_000);
    let sender = pair.client.endpoint.connection(client).unwrap();
    sender.send_stream(0, data.clone(), true).unwrap();
    pair.run_for(Duration::from_secs(1));
    assert!(
        readable(&pair, server, 0) == 1,
        "reported once until it is read"
    );
    let mut got = Vec::new();
    let (first, end) = read(&mut pair, server, 0, usize::MAX);
    assert_eq!(
        (first.len(), end),
        (10_000, None),
        "the client has sent one window and no more"
    );
    got.extend(first);
    loop {
        pair.run_for(Duration::from_secs(1));
        let before = readable(&pair, server, 0);
        let (piece, end) = read(&mut pair, server, 0, 7_000);
        assert!(piece.len() <= 7_000);
        got.extend(piece);
        if end.is_some() {
            assert_eq!(end, Some(StreamEnd::Finished));
            break;
        }
        assert!(before > 0);
    }
    assert_eq!(got, data);
    let is_data = |event: &Event| matches!(event, Event::StreamData { .. });
    assert!(!pair.server.has(server, is_data));
}

#[test]
fn the_end_is_returned_with_the_last_byte() {
    let (mut pair, client, server) = read_on_demand(1 << 20, 1 << 20, 8);
    let sender = pair.client.endpoint.connection(client).unwrap();
    sender.send_stream(0, pattern(1, 1_000), true).unwrap();
    pair.run_for(Duration::from_secs(1));
    let (data, end) = read(&mut pair, server, 0, 400);
    assert_eq!((data.len(), end), (400, None));
    let (data, end) = read(&mut pair, server, 0, 600);
    assert_eq!((data.len(), end), (600, Some(StreamEnd::Finished)));
    // The stream has ended, so it can be neither read nor stopped any more.
    assert_eq!(read(&mut pair, server, 0, 600), (Vec::new(), None));
    conn(&mut pair, server).stop_stream(0, 1).unwrap_err();
}

#[test]
fn a_reset_is_returned_by_a_read() {
    let (mut pair, client, server) = read_on_demand(1 << 20, 1 << 20, 8);
    let sender = pair.client.endpoint.connection(client).unwrap();
    sender.send_stream(0, pattern(1, 1_000), false).unwrap();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(read(&mut pair, server, 0, 10).0.len(), 10);
    let sender = pair.client.endpoint.connection(client).unwrap();
    sender.reset_stream(0, 9).unwrap();
    pair.run_for(Duration::from_secs(1));
    let reset = StreamEnd::Reset { error_code: 9 };
    assert_eq!(read(&mut pair, server, 0, 10), (Vec::new(), Some(reset)));
}

#[test]
fn streams_without_data_are_reported() {
    let (mut pair, client, server) = read_on_demand(1 << 20, 1 << 20, 8);
    let sender = pair.client.endpoint.connection(client).unwrap();
    sender.send_stream(8, pattern(1, 10), false).unwrap();
    pair.run_for(Duration::from_secs(1));
    for id in [0, 4, 8] {
        assert_eq!(readable(&pair, server, id), 1, "stream {id}");
    }
}

#[test]
fn unread_data_is_delivered_before_closed() {
    let (mut pair, client, server) = read_on_demand(1 << 20, 1 << 20, 8);
    let data = pattern(1, 5_000);
    let sender = pair.client.endpoint.connection(client).unwrap();
    sender.send_stream(0, data.clone(), true).unwrap();
    sender.send_stream(4, data.clone(), false).unwrap();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(read(&mut pair, server, 0, 100).0, data[..100]);
    let now = pair.now;
    let sender = pair.client.endpoint.connection(client).unwrap();
    sender.close(now, 3, None, b"");
    pair.run_until("the close", |pair| pair.server.closed(server).is_some());
    assert_eq!(pair.server.received(server, 0), &data[100..]);
    assert!(pair.server.finished(server, 0));
    assert_eq!(pair.server.received(server, 4), &data[..]);
    assert!(!pair.server.finished(server, 4));
}

#[test]
fn streams_are_opened_as_the_peer_allows() {
    let (mut pair, client, server) = read_on_demand(1 << 20, 1 << 20, 2);
    let opener = pair.client.endpoint.connection(client).unwrap();
    opener.read_on_demand();
    assert_eq!(opener.open_stream(false), Some(0));
    // The program writes to stream 4 before the peer's limit allows the stream.
    opener.send_stream(4, pattern(4, 10), true).unwrap();
    opener.send_stream(8, pattern(8, 10), true).unwrap();
    assert_eq!(opener.open_stream(false), None);
    opener.send_stream(0, pattern(0, 10), true).unwrap();
    pair.run_for(Duration::from_secs(1));
    let available = |event: &Event| {
        *event
            == Event::StreamsAvailable {
                unidirectional: false,
            }
    };
    assert!(!pair.client.has(client, available));
    for id in [0, 4] {
        assert!(conn(&mut pair, server).is_sending(id));
        assert_eq!(read(&mut pair, server, id, 100).0, pattern(id, 10));
        conn(&mut pair, server)
            .send_stream(id, Bytes::new(), true)
            .unwrap();
        assert!(conn(&mut pair, server).is_finishing());
    }
    pair.run_until("more streams", |pair| pair.client.has(client, available));
    let opener = pair.client.endpoint.connection(client).unwrap();
    // The stream that waits is opened first.
    assert_eq!(opener.open_stream(false), Some(12));
    assert_eq!(opener.open_stream(false), None);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(read(&mut pair, server, 8, 100).0, pattern(8, 10));
    assert!(!conn(&mut pair, server).is_finishing());
    assert!(!conn(&mut pair, server).is_sending(0));
}
