//! DATAGRAM frames and pings.

use std::time::Duration;

use crate::support::{Link, Pair, Random, with_transport};
use bytes::Bytes;
use uringcore_quic::{ConnectionKey, DatagramError, Event};

fn datagram_pair(change: impl Fn(&mut uringcore_quic::TransportSettings)) -> Pair {
    let (client, server) = with_transport(|t| {
        t.datagram_recv_bytes = Some(1 << 20);
        change(t);
    });
    Pair::new(client, server)
}

fn datagrams(peer: &crate::support::Peer) -> Vec<Bytes> {
    let data = |(_, event): &(_, Event)| match event {
        Event::Datagram { data, .. } => Some(data.clone()),
        _ => None,
    };
    peer.events.iter().filter_map(data).collect()
}

#[test]
fn datagrams_arrive_whole_and_in_both_directions() {
    let mut pair = datagram_pair(|_| {});
    let (client, server) = pair.establish();
    for n in 0..200_u32 {
        let length = 1 + n as usize * 5;
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_datagram(Random::new(n.into()).bytes(length).into())
            .unwrap();
    }
    pair.server
        .endpoint
        .connection(server)
        .unwrap()
        .send_datagram(Bytes::new())
        .unwrap();
    pair.run_until("all of them", |pair| {
        datagrams(&pair.server).len() == 200 && datagrams(&pair.client).len() == 1
    });
    for (n, data) in datagrams(&pair.server).iter().enumerate() {
        assert!(
            *data == Random::new(n as u64).bytes(1 + n * 5),
            "datagram {n}"
        );
    }
}

#[test]
fn datagrams_above_the_limits_are_refused() {
    let mut pair = datagram_pair(|t| t.datagram_send_bytes = 10_000);
    let key = pair.connect();
    let conn = pair.client.endpoint.connection(key).unwrap();
    assert_eq!(
        conn.max_datagram_size(),
        None,
        "the size is unknown before the handshake"
    );
    conn.send_datagram(Bytes::from_static(b"early")).unwrap();
    let too_large = conn.send_datagram(vec![0; 1_200].into());
    assert!(matches!(too_large, Err(DatagramError::TooLarge { .. })));
    pair.run_until("the early one", |pair| datagrams(&pair.server).len() == 1);
    let conn = pair.client.endpoint.connection(key).unwrap();
    let max = conn.max_datagram_size().unwrap();
    assert!((1_150..1_500).contains(&max), "{max}");
    assert_eq!(
        conn.send_datagram(vec![0; max + 1].into()),
        Err(DatagramError::TooLarge { max })
    );
    conn.send_datagram(vec![0; max].into()).unwrap();
    let mut accepted = 1;
    while conn.stats().datagram_frames_dropped == 0 {
        conn.send_datagram(vec![0; 1_000].into()).unwrap();
        accepted += 1;
    }
    // The last datagram has pushed the first one out of the queue.
    accepted -= 1;
    assert!((8..11).contains(&accepted), "{accepted}");
    pair.run_until("what was accepted", |pair| {
        datagrams(&pair.server).len() == accepted + 1
    });
    pair.client
        .endpoint
        .connection(key)
        .unwrap()
        .send_datagram(Bytes::new())
        .unwrap();
}

#[test]
fn datagrams_are_unsupported_if_one_side_disables_them() {
    let (mut client, server) = with_transport(|_| {});
    client.transport.datagram_recv_bytes = Some(65_536);
    let mut pair = Pair::new(client, server);
    let key = pair.connect();
    let conn = pair.client.endpoint.connection(key).unwrap();
    conn.send_datagram(Bytes::from_static(b"never arrives"))
        .unwrap();
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.client.has(key, completed));
    pair.run_for(Duration::from_secs(1));
    let conn = pair.client.endpoint.connection(key).unwrap();
    assert_eq!(
        conn.send_datagram(Bytes::new()),
        Err(DatagramError::Unsupported)
    );
    assert_eq!(conn.stats().datagram_frames_dropped, 1);
    let server = pair.server.events[0].0;
    let conn = pair.server.endpoint.connection(server).unwrap();
    assert_eq!(
        conn.send_datagram(Bytes::new()),
        Err(DatagramError::Unsupported)
    );
}

#[test]
fn endless_datagrams_do_not_starve_streams() {
    let (mut pair, client, server) = saturated_pair(Link::default());
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(4, vec![1; 1 << 20].into(), true).unwrap();
    let before = datagrams(&pair.server).len();
    pair.run_until("the stream", |pair| pair.server.finished(server, 4));
    // The stream needs about 910 packets.
    let arrived = datagrams(&pair.server).len() - before;
    assert!(
        (500..1_500).contains(&arrived),
        "streams and datagrams share the link: {arrived} datagrams"
    );
}

#[test]
fn short_stream_data_overtakes_endless_datagrams() {
    for loss in [0, 10] {
        let link = Link {
            loss,
            ..Link::default()
        };
        let (mut pair, client, server) = saturated_pair(link);
        let mut worst = Duration::ZERO;
        for _ in 0..20 {
            let conn = pair.client.endpoint.connection(client).unwrap();
            let id = conn.next_stream_id(true);
            conn.send_stream(id, Bytes::from_static(b"control"), true)
                .unwrap();
            let begin = pair.now;
            pair.run_until("the few bytes", |pair| pair.server.finished(server, id));
            worst = worst.max(pair.now - begin);
        }
        // The latency of the link is 5 ms in each direction. A lost packet costs one round trip or more.
        let limit = Duration::from_millis(if loss == 0 { 40 } else { 2_000 });
        assert!(worst < limit, "{worst:?} with {loss} % loss");
    }
}

#[test]
fn idle_streams_do_not_slow_datagrams_down() {
    let (mut pair, client, _) = saturated_pair(Link::default());
    let arrived = datagrams(&pair.server).len();
    let before = pair.client.endpoint.stats();
    pair.run_until("5,000 more", |pair| {
        datagrams(&pair.server).len() > arrived + 5_000
    });
    let after = pair.client.endpoint.stats();
    let batch = (after.datagrams_sent - before.datagrams_sent) as f64
        / (after.transmits - before.transmits) as f64;
    assert!(batch > 2.0, "{batch} a batch");
    assert!(pair.client.endpoint.peek(client).unwrap().is_established());
}

/// A client with an idle stream, a large congestion window, and more datagrams than it can send. The datagrams fill
/// their packets, so that no stream data fits in beside them.
fn saturated_pair(link: Link) -> (Pair, ConnectionKey, ConnectionKey) {
    let mut pair = datagram_pair(|t| {
        t.datagram_send_bytes = 32 << 20;
        t.mtu_discovery = false;
    });
    let (client, server) = pair.establish();
    pair.link = link;
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, Bytes::from_static(b"idle"), false)
        .unwrap();
    let size = conn.max_datagram_size().unwrap();
    // A little less than the queue's bound, above which the oldest datagrams would be dropped.
    for _ in 0..(28 << 20) / (size + 64) {
        conn.send_datagram(vec![0; size].into()).unwrap();
    }
    pair.run_until("some", |pair| {
        pair.server.received(server, 0) == b"idle" && datagrams(&pair.server).len() > 500
    });
    (pair, client, server)
}

#[test]
fn pings_are_answered_once_even_if_lost() {
    let mut pair = Pair::default_pair();
    let key = pair.connect();
    pair.client.endpoint.connection(key).unwrap().ping(1);
    let is_answer = |uid| move |event: &Event| *event == Event::PingAcknowledged { uid };
    pair.run_until("the first answer", |pair| {
        pair.client.has(key, is_answer(1))
    });
    pair.run_for(Duration::from_secs(1));
    let begin = pair.now;
    pair.client.endpoint.connection(key).unwrap().ping(2);
    pair.run_until("the second answer", |pair| {
        pair.client.has(key, is_answer(2))
    });
    let time = pair.now - begin;
    assert!(
        time >= Duration::from_millis(10),
        "a round trip at least: {time:?}"
    );
    assert!(time <= Duration::from_millis(50), "{time:?}");
    pair.link = Link {
        loss: 40,
        ..Link::default()
    };
    for uid in 10..60 {
        pair.client.endpoint.connection(key).unwrap().ping(uid);
        pair.run_until("an answer over a bad link", |pair| {
            pair.client.has(key, is_answer(uid))
        });
    }
    pair.link = Link::default();
    pair.run_for(Duration::from_secs(5));
    let count = |uid| {
        pair.client
            .events
            .iter()
            .filter(|(_, e)| is_answer(uid)(e))
            .count()
    };
    assert!(
        (1..60)
            .filter(|uid| !(3..10).contains(uid))
            .all(|uid| count(uid) == 1)
    );
}

#[test]
fn a_lost_ping_is_answered_after_later_data() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    pair.client.is_mute = true;
    pair.client.endpoint.connection(client).unwrap().ping(1);
    pair.exchange();
    pair.client.is_mute = false;
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, vec![1; 100_000].into(), true).unwrap();
    let is_answer = |event: &Event| *event == Event::PingAcknowledged { uid: 1 };
    pair.run_until("both", |pair| {
        pair.server.finished(server, 0) && pair.client.has(client, is_answer)
    });
}
