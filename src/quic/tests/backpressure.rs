//! Backpressure: credit, pauses of reading, watermarks and priorities.

use std::time::Duration;

use crate::support::{Link, Pair, Random, with_transport};
use bytes::Bytes;
use uringcore_quic::{ConnectionKey, Event, Priority};

fn pattern(seed: u64, length: usize) -> Bytes {
    Random::new(seed).bytes(length).into()
}

/// A connection over a link of 10 Mbit/s with a round trip of 40 ms. Flow control allows everything.
fn narrow_pair() -> (Pair, ConnectionKey, ConnectionKey) {
    let (client, server) = with_transport(|t| {
        t.max_data = 1 << 30;
        t.max_stream_data = 1 << 30;
    });
    let mut pair = Pair::new(client, server).link(Link {
        latency: Duration::from_millis(20),
        rate: Some(1_250_000),
        ..Link::default()
    });
    let (client, server) = pair.establish();
    (pair, client, server)
}

fn all_received(pair: &Pair, server: ConnectionKey) -> usize {
    let of_connection = pair
        .server
        .streams
        .iter()
        .filter(|((key, _), _)| *key == server);
    of_connection.map(|(_, received)| received.data.len()).sum()
}

#[test]
fn a_reset_is_reported_on_a_paused_stream() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    for id in [0, 4] {
        conn.send_stream(id, pattern(id, 1_000), false).unwrap();
    }
    pair.run_until("both", |pair| all_received(pair, server) == 2_000);
    for id in [0, 4] {
        let conn = pair.server.endpoint.connection(server).unwrap();
        conn.pause_stream(id);
    }
    let conn = pair.client.endpoint.connection(client).unwrap();
    // Stream 0 has data that is held back and then a reset, stream 4 has only a reset.
    conn.send_stream(0, pattern(0, 5_000), false).unwrap();
    pair.run_for(Duration::from_secs(1));
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.reset_stream(0, 7).unwrap();
    conn.reset_stream(4, 8).unwrap();
    pair.run_for(Duration::from_secs(1));
    let mut resets: Vec<_> = pair
        .server
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::StreamReset {
                stream_id,
                error_code,
            } => Some((*stream_id, *error_code)),
            _ => None,
        })
        .collect();
    resets.sort_unstable();
    assert_eq!(resets, [(0, 7), (4, 8)]);
    assert_eq!(
        all_received(&pair, server),
        2_000,
        "the held-back data was dropped"
    );
    // Pausing and resuming a stream that has ended has no effect.
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.resume_stream(0);
    conn.resume_stream(4);
    pair.run_for(Duration::from_secs(1));
    assert!(
        !pair
            .server
            .has(server, |event| matches!(event, Event::Closed { .. }))
    );
}

#[test]
fn resets_of_paused_streams_return_credit() {
    // Far more streams and bytes than the limits allow at once, one after the other. All are paused and reset.
    let (client, server) = with_transport(|t| {
        t.max_data = 100_000;
        t.max_stream_data = 50_000;
        t.max_streams_bidi = 4;
    });
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    for n in 0..20 {
        let id = n * 4;
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(id, pattern(n, 1), false).unwrap();
        pair.run_until("the stream", |pair| {
            pair.server.received(server, id).len() == 1
        });
        pair.server
            .endpoint
            .connection(server)
            .unwrap()
            .pause_stream(id);
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(id, pattern(n, 40_000), false).unwrap();
        pair.run_for(Duration::from_millis(200));
        pair.client
            .endpoint
            .connection(client)
            .unwrap()
            .reset_stream(id, 1)
            .unwrap();
        // The server's direction must end, too; otherwise the stream stays open.
        pair.run_until("the reset", |pair| {
            let reset = |event: &Event| matches!(event, Event::StreamReset { stream_id, .. } if *stream_id == id);
            pair.server.has(server, reset)
        });
        pair.server
            .endpoint
            .connection(server)
            .unwrap()
            .reset_stream(id, 1)
            .unwrap();
    }
}

#[test]
fn connection_writable_is_emitted_once() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let reported = |pair: &Pair| {
        let wanted = |(key, event): &&(ConnectionKey, Event)| {
            *key == client
                && matches!(event, Event::ConnectionWritable { queued_bytes } if *queued_bytes <= 100_000)
        };
        pair.client.events.iter().filter(wanted).count()
    };
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.set_watermarks(400_000, 100_000);
    // No single stream is at the high watermark, but the sum of all is.
    for id in 0..9 {
        conn.send_stream(id * 4, pattern(id, 100_000), true)
            .unwrap();
        assert_eq!(conn.is_full(), id >= 3, "{id}");
    }
    pair.run_until("room", |pair| reported(pair) == 1);
    assert!(!pair.client.endpoint.connection(client).unwrap().is_full());
    pair.run_until("all", |pair| all_received(pair, server) == 900_000);
    // The peer receives nothing, so only resetting the stream makes room.
    pair.client.is_mute = true;
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(40, pattern(1, 2_000_000), false).unwrap();
    assert!(conn.is_full());
    conn.reset_stream(40, 1).unwrap();
    pair.exchange();
    assert_eq!(reported(&pair), 2);
    pair.client.is_mute = false;
    pair.run_for(Duration::from_secs(5));
    assert_eq!(reported(&pair), 2);
}

#[test]
fn a_full_datagram_queue_makes_the_connection_full() {
    let (client, server) = with_transport(|t| t.datagram_recv_bytes = Some(1 << 20));
    let mut pair = Pair::new(client, server);
    let (client, _) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    while !conn.is_full() {
        conn.send_datagram(vec![1; 1_000].into()).unwrap();
    }
    assert_eq!(
        conn.stats().datagram_frames_dropped,
        0,
        "the connection is full before datagrams are dropped"
    );
    let room = |event: &Event| *event == Event::ConnectionWritable { queued_bytes: 0 };
    pair.run_until("room", |pair| pair.client.has(client, room));
}

/// Keeps another stream's data in the queue. Returns how many bytes of that stream arrive between the time when
/// urgent data is queued and the time when that has arrived.
fn bytes_ahead(
    pair: &mut Pair,
    client: ConnectionKey,
    server: ConnectionKey,
    id: u64,
    length: usize,
) -> usize {
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.set_priority(id, Priority::new(0, false).unwrap())
        .err();
    conn.send_stream(id, pattern(id, length), true).unwrap();
    conn.set_priority(id, Priority::new(0, false).unwrap())
        .unwrap();
    let before = all_received(pair, server);
    pair.run_until("the urgent data", |pair| pair.server.finished(server, id));
    all_received(pair, server) - before - length
}

#[test]
fn an_urgent_stream_waits_for_no_more_than_the_congestion_window() {
    let (mut pair, client, server) = narrow_pair();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(1, 64 << 20), true).unwrap();
    let mut window_max = 0;
    for n in 1..40 {
        pair.run_for(Duration::from_millis(97));
        let window = pair
            .client
            .endpoint
            .peek(client)
            .unwrap()
            .stats()
            .congestion_window as usize;
        window_max = window_max.max(window);
        let ahead = bytes_ahead(&mut pair, client, server, n * 4, 10_000);
        // One packet may already have been made before the application paused.
        assert!(
            ahead <= window + 3_000,
            "{ahead} bytes went first, the window is {window}"
        );
    }
    // The window must have been large, so that the send queue was full.
    assert!(window_max > 100_000, "{window_max}");
    assert!(!pair.server.finished(server, 0));
}

#[test]
fn a_saturating_urgent_stream_starves_others() {
    let (mut pair, client, server) = narrow_pair();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(1, 64 << 20), true).unwrap();
    pair.run_for(Duration::from_secs(2));
    // Data that quinn-proto has taken before, and one window, may still arrive.
    let window = pair
        .client
        .endpoint
        .peek(client)
        .unwrap()
        .stats()
        .congestion_window as usize;
    let ahead = bytes_ahead(&mut pair, client, server, 4, 8 << 20);
    assert!(
        ahead < 3 * window,
        "{ahead} bytes of the bulk, the window is {window}"
    );
}

#[test]
fn streams_of_one_urgency_are_sent_by_id_unless_incremental() {
    for incremental in [false, true] {
        let (mut pair, client, server) = narrow_pair();
        let conn = pair.client.endpoint.connection(client).unwrap();
        let priority = Priority::new(5, incremental).unwrap();
        let ids = [8, 0, 4];
        for id in ids {
            conn.send_stream(id, Bytes::new(), false).unwrap();
            conn.set_priority(id, priority).unwrap();
        }
        for id in ids {
            conn.send_stream(id, pattern(id, 2 << 20), true).unwrap();
        }
        pair.run_until("the end of the first stream", |pair| {
            ids.iter().any(|id| pair.server.finished(server, *id))
        });
        let got = |id| pair.server.received(server, id).len();
        match incremental {
            false => {
                assert!(pair.server.finished(server, 0));
                assert!(
                    got(4) < 100_000 && got(8) < 100_000,
                    "{} {}",
                    got(4),
                    got(8)
                );
            }
            true => ids.iter().for_each(|&id| {
                assert!(got(id) > 3 << 19, "stream {id} has {} bytes", got(id));
            }),
        }
    }
}
