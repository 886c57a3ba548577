//! Streams between two endpoints over a simulated link.

use std::time::Duration;

use crate::support::{Link, Pair, Random, with_transport};
use bytes::Bytes;
use uringcore_quic::{CloseKind, Congestion, Connection, Event, Priority, StreamError};

fn pattern(seed: u64, length: usize) -> Bytes {
    Random::new(seed).bytes(length).into()
}

/// Transfers 20 streams of 1 MiB in each direction, in writes of mixed sizes.
fn twenty_streams(mut pair: Pair) -> Pair {
    let (client, server) = pair.establish();
    let length = 1 << 20;
    for n in 0..20 {
        let id = n * 4;
        let data = pattern(id, length);
        let conn = pair.client.endpoint.connection(client).unwrap();
        let mut rest = data.clone();
        let mut sizes = Random::new(n);
        while !rest.is_empty() {
            let size = [1, 100, 1_200, 20_000, 300_000][sizes.below(5)].min(rest.len());
            let piece = rest.split_to(size);
            conn.send_stream(id, piece, rest.is_empty()).unwrap();
        }
    }
    pair.run_until("20 MiB to the server", |pair| {
        // The server echoes each stream as soon as it is complete.
        for ((_, id), received) in pair.server.streams.iter_mut() {
            if received.fin && received.events > 0 {
                received.events = 0;
                let data = std::mem::take(&mut received.data);
                assert!(data == pattern(*id, length), "stream {id}");
                let conn = pair.server.endpoint.connection(server).unwrap();
                conn.send_stream(*id, data.into(), true).unwrap();
            }
        }
        (0..20).all(|n| pair.server.finished(server, n * 4))
    });
    pair.run_until("20 MiB back", |pair| {
        (0..20).all(|n| pair.client.finished(client, n * 4))
    });
    for n in 0..20 {
        assert!(
            pair.client.received(client, n * 4) == pattern(n * 4, length),
            "stream {}",
            n * 4
        );
    }
    let is_finished = |id| move |event: &Event| *event == Event::StreamFinished { stream_id: id };
    pair.run_until("all FINs being acknowledged", |pair| {
        (0..20).all(|n| {
            pair.client.has(client, is_finished(n * 4))
                && pair.server.has(server, is_finished(n * 4))
        })
    });
    pair
}

#[test]
fn twenty_streams_transfer_a_mebibyte_in_each_direction() {
    let pair = twenty_streams(Pair::default_pair());
    assert!(
        pair.elapsed() < Duration::from_secs(20),
        "took {:?}",
        pair.elapsed()
    );
}

#[test]
fn twenty_streams_survive_loss_reordering_duplication_and_corruption() {
    let link = Link {
        loss: 5,
        reorder: 5,
        duplicate: 2,
        corrupt: 1,
        ..Link::default()
    };
    let mut pair = twenty_streams(Pair::default_pair().link(link));
    let key = pair.client.endpoint.keys().next().unwrap();
    let stats = pair.client.endpoint.connection(key).unwrap().stats();
    assert!(stats.packets_lost > 100, "the link lost packets: {stats:?}");
}

#[test]
fn every_congestion_controller_moves_data() {
    for congestion in [Congestion::NewReno, Congestion::Bbr, Congestion::Cubic] {
        let (client, server) = with_transport(|t| t.congestion = congestion);
        twenty_streams(Pair::new(client, server));
    }
}

#[test]
fn data_of_one_iteration_is_delivered_in_one_event() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    for _ in 0..50 {
        conn.send_stream(0, Bytes::from_static(&[7; 100]), false)
            .unwrap();
    }
    pair.run_until("5,000 bytes", |pair| {
        pair.server.received(server, 0).len() == 5_000
    });
    assert_eq!(pair.server.streams[&(server, 0)].events, 1);
}

#[test]
fn stream_ids_follow_the_rfc_and_getters_do_not_use_them_up() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    assert_eq!(
        (conn.next_stream_id(false), conn.next_stream_id(true)),
        (0, 2)
    );
    assert_eq!(conn.next_stream_id(false), 0);
    conn.send_stream(0, Bytes::new(), false).unwrap();
    assert_eq!(conn.next_stream_id(false), 4);
    conn.send_stream(2, Bytes::new(), true).unwrap();
    assert_eq!(conn.next_stream_id(true), 6);
    let conn = pair.server.endpoint.connection(server).unwrap();
    assert_eq!(
        (conn.next_stream_id(false), conn.next_stream_id(true)),
        (1, 3)
    );
}

#[test]
fn commands_for_wrong_streams_are_refused() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    let data = || Bytes::from_static(b"x");
    assert_eq!(
        conn.send_stream(1, data(), false),
        Err(StreamError::Unknown)
    );
    assert_eq!(
        conn.send_stream(3, data(), false),
        Err(StreamError::WrongDirection)
    );
    assert_eq!(
        conn.send_stream(1 << 62, data(), false),
        Err(StreamError::OutOfRange)
    );
    assert_eq!(conn.stop_stream(2, 0), Err(StreamError::WrongDirection));
    assert_eq!(conn.stop_stream(5, 0), Err(StreamError::Unknown));
    assert_eq!(conn.reset_stream(0, 1 << 62), Err(StreamError::OutOfRange));
    conn.send_stream(0, data(), true).unwrap();
    assert_eq!(
        conn.send_stream(0, data(), false),
        Err(StreamError::Finished)
    );
    conn.send_stream(4, data(), false).unwrap();
    conn.reset_stream(4, 9).unwrap();
    assert_eq!(conn.send_stream(4, data(), false), Err(StreamError::Reset));
    assert_eq!(conn.reset_stream(4, 9), Ok(()));
    pair.run_until("the FIN", |pair| pair.server.finished(server, 0));
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(0, data(), true).unwrap();
    pair.run_until("the answer", |pair| pair.client.finished(client, 0));
    pair.run_for(Duration::from_secs(1));
    let conn = pair.server.endpoint.connection(server).unwrap();
    assert_eq!(
        conn.send_stream(0, data(), false),
        Err(StreamError::Over),
        "the stream has ended and was removed"
    );
    assert_eq!(conn.stop_stream(0, 0), Err(StreamError::Over));
    assert_eq!(
        conn.send_stream(4 << 2, data(), false),
        Err(StreamError::Unknown),
        "never opened"
    );
    let conn = pair.client.endpoint.connection(client).unwrap();
    assert_eq!(
        conn.send_stream(0, data(), false),
        Err(StreamError::Over),
        "over"
    );
    assert_eq!(conn.stop_stream(0, 0), Err(StreamError::Over));
}

#[test]
fn skipped_stream_ids_can_be_used_later() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    for id in [12, 0, 8, 4] {
        conn.send_stream(id, Bytes::copy_from_slice(&[id as u8]), true)
            .unwrap();
        assert_eq!(conn.next_stream_id(false), 16);
    }
    pair.run_until("four streams", |p| {
        [0, 4, 8, 12]
            .iter()
            .all(|&id| p.server.finished(server, id))
    });
    for id in [0, 4, 8, 12] {
        assert_eq!(pair.server.received(server, id), [id as u8]);
    }
}

#[test]
fn a_reset_carries_its_code_and_drops_queued_data() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(1, 4 << 20), false).unwrap();
    pair.run_until("some data", |pair| {
        !pair.server.received(server, 0).is_empty()
    });
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.reset_stream(0, 0x1234).unwrap();
    assert_eq!(conn.send_queue_bytes(0), 0);
    assert_eq!(conn.stats().send_queue_bytes, 0);
    let is_reset = |event: &Event| {
        *event
            == Event::StreamReset {
                stream_id: 0,
                error_code: 0x1234,
            }
    };
    pair.run_until("the reset", |pair| pair.server.has(server, is_reset));
    assert!(!pair.server.finished(server, 0));
    // The server's direction continues.
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(0, Bytes::from_static(b"still here"), true)
        .unwrap();
    pair.run_until("the other direction", |pair| {
        pair.client.finished(client, 0)
    });
}

#[test]
fn stop_sending_is_answered_by_a_reset_with_its_code() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(1, 4 << 20), false).unwrap();
    pair.run_until("some data", |pair| {
        !pair.server.received(server, 0).is_empty()
    });
    let before = pair.server.received(server, 0).len();
    pair.server
        .endpoint
        .connection(server)
        .unwrap()
        .stop_stream(0, 77)
        .unwrap();
    let is_stop = |event: &Event| {
        matches!(
            event,
            Event::StopSending {
                stream_id: 0,
                error_code: 77,
                ..
            }
        )
    };
    pair.run_until("the stop", |pair| pair.client.has(client, is_stop));
    // The whole stream was dropped, except for the data in quinn-proto, which is at most two windows.
    let drops_the_queue = |event: &Event| match event {
        Event::StopSending { unsent, .. } => (3 << 20..4 << 20).contains(unsent),
        _ => false,
    };
    assert!(pair.client.has(client, drops_the_queue));
    let conn = pair.client.endpoint.connection(client).unwrap();
    assert_eq!(
        conn.send_stream(0, Bytes::new(), true),
        Err(StreamError::Reset)
    );
    assert_eq!(conn.send_queue_bytes(0), 0);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(
        pair.server.received(server, 0).len(),
        before,
        "nothing is delivered any more"
    );
    let conn = pair.server.endpoint.connection(server).unwrap();
    assert_eq!(conn.stop_stream(0, 77), Err(StreamError::Over));
}

#[test]
fn stream_abandoned_is_emitted_for_a_full_queue() {
    let (client, server) = with_transport(|t| t.send_window = 64 << 10);
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.set_watermarks(100_000, 20_000);
    for id in [0, 4, 8] {
        conn.send_stream(id, pattern(id, 4 << 20), false).unwrap();
    }
    conn.send_stream(12, pattern(12, 90_000), false).unwrap();
    pair.run_until("some data", |pair| {
        !pair.server.received(server, 4).is_empty()
    });
    // One stream is reset by this side, one is stopped by the peer, and one has a queue that was never full.
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.reset_stream(0, 1).unwrap();
    conn.reset_stream(12, 1).unwrap();
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.stop_stream(4, 2).unwrap();
    let abandoned = |pair: &Pair| {
        let id = |(_, event): &(_, Event)| match event {
            Event::StreamAbandoned { stream_id } => Some(*stream_id),
            _ => None,
        };
        pair.client.events.iter().filter_map(id).collect::<Vec<_>>()
    };
    pair.exchange();
    assert_eq!(abandoned(&pair), [0], "without an event of the peer");
    pair.run_until("the stop", |pair| abandoned(pair).len() == 2);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(abandoned(&pair), [0, 4], "each once");
}

#[test]
fn stream_abandoned_is_emitted_for_an_unopened_stream() {
    let (client, server) = with_transport(|t| t.max_streams_bidi = 0);
    let mut pair = Pair::new(client, server);
    let (client, _) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(0, 1 << 20), false).unwrap();
    conn.reset_stream(0, 1).unwrap();
    pair.exchange();
    let reported = Event::StreamAbandoned { stream_id: 0 };
    assert!(pair.client.has(client, |event| *event == reported));
}

#[test]
fn streams_above_the_peers_limit_wait() {
    let (client, server) = with_transport(|t| {
        t.max_streams_bidi = 3;
        t.max_streams_uni = 2;
    });
    let mut pair = Pair::new(client, server);
    let key = pair.connect();
    // Before the handshake, the queue is not limited either.
    let conn = pair.client.endpoint.connection(key).unwrap();
    for n in 0..40 {
        let (bidi, uni) = (conn.next_stream_id(false), conn.next_stream_id(true));
        assert_eq!((bidi, uni), (n * 4, n * 4 + 2));
        conn.send_stream(bidi, pattern(bidi, 3_000), true).unwrap();
        conn.send_stream(uni, pattern(uni, 3_000), true).unwrap();
    }
    // A stream that is reset while it waits must still be opened: otherwise the peer would wait for it for ever.
    conn.reset_stream(80, 5).unwrap();
    pair.run_until("the first streams", |pair| {
        pair.server
            .streams
            .values()
            .filter(|received| received.fin)
            .count()
            >= 5
    });
    let server = pair.server.streams.keys().next().unwrap().0;
    assert!(pair.server.streams.len() <= 5);
    assert!(
        pair.client
            .endpoint
            .connection(key)
            .unwrap()
            .send_queue_bytes(156)
            == 3_000
    );
    pair.run_until("all streams", |pair| {
        let unanswered: Vec<u64> = (pair.server.streams.iter())
            .filter(|((_, id), received)| received.fin && id % 4 == 0 && received.events > 0)
            .map(|((_, id), _)| *id)
            .collect();
        for id in unanswered {
            pair.server.streams.get_mut(&(server, id)).unwrap().events = 0;
            let conn = pair.server.endpoint.connection(server).unwrap();
            conn.send_stream(id, Bytes::from_static(b"ok"), true)
                .unwrap();
        }
        let is_reset = |event: &Event| {
            *event
                == Event::StreamReset {
                    stream_id: 80,
                    error_code: 5,
                }
        };
        if pair.server.has(server, is_reset) && !pair.server.streams.contains_key(&(server, 80)) {
            pair.server.streams.entry((server, 80)).or_default().fin = true;
            let conn = pair.server.endpoint.connection(server).unwrap();
            conn.send_stream(80, Bytes::new(), true).unwrap();
        }
        pair.server
            .streams
            .values()
            .filter(|received| received.fin)
            .count()
            == 80
    });
    for id in (0..40)
        .flat_map(|n| [n * 4, n * 4 + 2])
        .filter(|&id| id != 80)
    {
        assert!(
            pair.server.received(server, id) == pattern(id, 3_000),
            "stream {id}"
        );
    }
}

#[test]
fn each_crossing_of_a_watermark_is_reported_once() {
    let (client, server) = with_transport(|t| t.send_window = 64 << 10);
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.set_watermarks(100_000, 20_000);
    conn.send_stream(0, pattern(1, 500_000), false).unwrap();
    conn.send_stream(4, pattern(2, 50_000), false).unwrap();
    assert_eq!(conn.send_queue_bytes(0), 500_000);
    let writable = |pair: &Pair, id| {
        let wanted = Event::StreamWritable { stream_id: id };
        pair.client
            .events
            .iter()
            .filter(|(_, event)| *event == wanted)
            .count()
    };
    pair.exchange();
    assert_eq!(writable(&pair, 0), 0, "still above");
    pair.run_until("the low watermark", |pair| writable(pair, 0) == 1);
    let left = pair
        .client
        .endpoint
        .connection(client)
        .unwrap()
        .send_queue_bytes(0);
    assert!(left <= 20_000, "{left} bytes");
    pair.run_until("all data", |pair| {
        pair.server.received(server, 0).len() == 500_000
    });
    assert_eq!(
        (writable(&pair, 0), writable(&pair, 4)),
        (1, 0),
        "a watermark is reported once, and only after the high one"
    );
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(1, 200_000), true).unwrap();
    pair.run_until("the low watermark again", |pair| writable(pair, 0) == 2);
}

#[test]
fn a_stream_that_is_full_again_is_not_reported_writable() {
    let (client, server) = with_transport(|t| t.send_window = 64 << 10);
    let mut pair = Pair::new(client, server);
    let (client, _) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.set_watermarks(40_000, 20_000);
    conn.set_connection_watermarks(40_000, 20_000);
    conn.send_stream(0, pattern(1, 40_000), false).unwrap();
    // The application sends before it has polled all events, and writes again before it polls the next.
    let mut datagram = Vec::new();
    while pair
        .client
        .endpoint
        .poll_transmit(pair.now, &mut datagram)
        .is_some()
    {}
    let conn = pair.client.endpoint.connection(client).unwrap();
    assert!(conn.send_queue_bytes(0) < 20_000);
    conn.send_stream(0, pattern(1, 400_000), false).unwrap();
    let is_writable = |event: &Event| {
        matches!(
            event,
            Event::StreamWritable { .. } | Event::ConnectionWritable { .. }
        )
    };
    let reported = std::iter::from_fn(|| pair.client.endpoint.poll_event())
        .filter(|(_, event)| is_writable(event))
        .count();
    assert_eq!(reported, 0);
    pair.run_until("the low watermark", |pair| {
        let reported = pair.client.events.iter();
        reported.filter(|(_, event)| is_writable(event)).count() == 2
    });
}

#[test]
fn a_paused_stream_gives_no_credit_and_others_continue() {
    let (client, server) = with_transport(|t| t.max_stream_data = 100_000);
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    pair.pause_behind(client, server, b"x");
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(1, 1_000_000), true).unwrap();
    conn.send_stream(4, pattern(2, 1_000_000), true).unwrap();
    pair.run_until("the other stream", |pair| pair.server.finished(server, 4));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(
        pair.server.received(server, 0).len(),
        1,
        "a paused stream is not read"
    );
    let left = pair
        .client
        .endpoint
        .connection(client)
        .unwrap()
        .send_queue_bytes(0);
    assert!(
        left >= 900_000,
        "at most one window left the sender, {left} bytes did not"
    );
    pair.server
        .endpoint
        .connection(server)
        .unwrap()
        .resume_stream(0);
    pair.exchange();
    assert!(
        pair.server.received(server, 0).len() >= 90_000,
        "the window is read at once"
    );
    pair.run_until("all of it", |pair| pair.server.finished(server, 0));
    assert!(pair.server.received(server, 0)[1..] == pattern(1, 1_000_000));
}

/// The reader takes one event and then pauses until the link is silent. Waiting data must neither be returned twice
/// nor merged again: each packet's piece is returned once, a pause causes at most one event, and the peer's credit
/// bounds the waiting data.
#[test]
fn pausing_after_each_event_does_not_multiply_work() {
    const WINDOW: usize = 100_000;
    const SIZE: usize = 8 << 20;
    let (client, server) = with_transport(|t| t.max_stream_data = WINDOW as u64);
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    let sent = pattern(1, SIZE);
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, sent.clone(), true).unwrap();
    pair.run_until("the stream", |pair| {
        !pair.server.received(server, 0).is_empty()
    });
    let reader = |pair: &mut Pair, act: fn(&mut Connection, u64)| {
        act(pair.server.endpoint.connection(server).unwrap(), 0);
    };
    let mut pauses = 0;
    while !pair.server.finished(server, 0) {
        let events = |pair: &Pair| pair.server.streams[&(server, 0)].events;
        let before = events(&pair);
        reader(&mut pair, Connection::pause_stream);
        pair.run_for(Duration::from_millis(200));
        assert_eq!(events(&pair), before, "a paused stream has no events");
        let already = pair.server.received(server, 0).len();
        reader(&mut pair, Connection::resume_stream);
        pair.server.take_events();
        assert!(
            events(&pair) <= before + 1,
            "all waiting data comes in one event"
        );
        let came = pair.server.received(server, 0).len() - already;
        assert!(came <= WINDOW, "{came} bytes behind a pause");
        pauses += 1;
        assert!(pauses <= 2 * SIZE / WINDOW, "{pauses} pauses, {came} bytes");
    }
    assert!(pair.server.received(server, 0) == sent);
    assert!(pauses >= SIZE / WINDOW, "{pauses} pauses");
    let pieces = pair.server.streams[&(server, 0)].pieces;
    let packets = pair.client.sent;
    assert!(pieces <= packets, "{pieces} pieces of {packets} packets");
}

#[test]
fn data_of_a_paused_stream_is_delivered_before_closed() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.pause_behind(client, server, b"a");
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"bc"), true)
        .unwrap();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.received(server, 0), b"a");
    let now = pair.now;
    pair.client
        .endpoint
        .connection(client)
        .unwrap()
        .close(now, 0, None, b"");
    pair.run_until("the close", |pair| pair.server.closed(server).is_some());
    assert_eq!(pair.server.received(server, 0), b"abc");
    assert!(pair.server.finished(server, 0));
    assert_eq!(
        pair.server.closed(server).unwrap().3,
        CloseKind::PeerApplication
    );
}

#[test]
fn streams_share_the_send_window_fairly() {
    let (client, server) = with_transport(|t| {
        t.send_window = 256 << 10;
        t.max_data = 64 << 20;
        t.max_stream_data = 16 << 20;
    });
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    for n in 0..7 {
        conn.send_stream(n * 4, pattern(n, 4 << 20), true).unwrap();
    }
    pair.run_until("half of it", |pair| {
        (0..7)
            .map(|n| pair.server.received(server, n * 4).len())
            .sum::<usize>()
            > 14 << 20
    });
    for n in 0..7 {
        let share = pair.server.received(server, n * 4).len();
        assert!(
            (1_500_000..2_700_000).contains(&share),
            "stream {} got {share} bytes",
            n * 4
        );
    }
}

#[test]
fn priorities_are_strict() {
    let (client, server) = with_transport(|t| {
        t.max_data = 16 << 20;
        t.max_stream_data = 16 << 20;
    });
    let mut pair = Pair::new(client, server);
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(1, 2 << 20), true).unwrap();
    conn.send_stream(4, pattern(2, 2 << 20), true).unwrap();
    conn.set_priority(4, Priority::new(0, true).unwrap())
        .unwrap();
    pair.run_until("the urgent stream", |pair| pair.server.finished(server, 4));
    assert!(pair.server.received(server, 0).len() < 200_000);
}

#[test]
fn a_server_can_open_streams() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let conn = pair.server.endpoint.connection(server).unwrap();
    let (bidi, uni) = (conn.next_stream_id(false), conn.next_stream_id(true));
    conn.send_stream(bidi, Bytes::from_static(b"hello"), false)
        .unwrap();
    conn.send_stream(uni, Bytes::from_static(b"one way"), true)
        .unwrap();
    pair.run_until("both", |pair| {
        pair.client.received(client, bidi) == b"hello" && pair.client.finished(client, uni)
    });
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(bidi, Bytes::from_static(b"hi"), true)
        .unwrap();
    assert_eq!(
        conn.send_stream(uni, Bytes::new(), true),
        Err(StreamError::WrongDirection)
    );
    pair.run_until("the answer", |pair| pair.server.finished(server, bidi));
}

#[test]
fn an_empty_stream_consists_of_a_fin() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.client
        .endpoint
        .connection(client)
        .unwrap()
        .send_stream(0, Bytes::new(), true)
        .unwrap();
    pair.run_until("the FIN", |pair| pair.server.finished(server, 0));
    assert!(pair.server.received(server, 0).is_empty());
    assert_eq!(pair.server.streams[&(server, 0)].events, 1);
}

#[test]
fn one_large_write_is_as_fast_as_many_small_ones() {
    let time = |write: usize| {
        let (client, server) = with_transport(|t| {
            t.max_data = 64 << 20;
            t.max_stream_data = 64 << 20;
        });
        let mut pair = Pair::new(client, server);
        pair.link.latency = Duration::from_millis(25);
        let (client, server) = pair.establish();
        let conn = pair.client.endpoint.connection(client).unwrap();
        for _ in 0..(16 << 20) / write {
            conn.send_stream(0, vec![1; write].into(), false).unwrap();
        }
        let begin = pair.now;
        pair.run_until("16 MiB", |pair| {
            pair.server.received(server, 0).len() == 16 << 20
        });
        pair.now - begin
    };
    let (large, small) = (time(16 << 20), time(16 << 10));
    assert!(large < small * 11 / 10, "{large:?} against {small:?}");
}

#[test]
fn an_idle_connection_is_woken_once_to_free_memory() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    for n in 0..50 {
        let connection = pair.client.endpoint.connection(client).unwrap();
        connection
            .send_stream(n * 4, pattern(n, 100), true)
            .unwrap();
    }
    pair.run_until("all of it to the server", |pair| {
        (0..50).all(|n| pair.server.finished(server, n * 4))
    });
    pair.run_for(Duration::from_secs(3));
    for endpoint in [&pair.client.endpoint, &pair.server.endpoint] {
        let next = endpoint.next_timeout().unwrap() - pair.now;
        assert!(next > Duration::from_secs(5), "woken again in {next:?}");
    }
    let connection = pair.client.endpoint.connection(client).unwrap();
    connection
        .send_stream(200, pattern(200, 100), true)
        .unwrap();
    pair.run_until("more of it", |pair| pair.server.finished(server, 200));
}
