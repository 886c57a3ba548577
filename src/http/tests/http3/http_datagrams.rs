//! HTTP datagrams and capsules (RFC 9297), in QUIC DATAGRAM frames and on the stream.

use std::sync::Arc;

use uringcore_quic::TransportSettings;

use super::*;
use crate::h3_common::{frame, varints};

const CONNECT_UDP: Lines<'_> = &[
    (":method", "CONNECT"),
    (":protocol", "connect-udp"),
    (":scheme", "https"),
    (":authority", "example.org"),
    (":path", "/masque/192.0.2.6/443/"),
    ("capsule-protocol", "?1"),
];
const DATA: u64 = 0;
const UNKNOWN: u64 = 0x29 * 7 + 0x17;

fn limits() -> Limits {
    Limits {
        protocols: Arc::new(["connect-udp", "chat"].map(Bytes::from)),
        ..Limits::default()
    }
}

fn with_datagrams(transport: &mut TransportSettings) {
    transport.datagram_recv_bytes = Some(65_535);
}

/// Makes a client and a server that have both enabled datagrams.
fn site() -> Site {
    let says = h3::Settings {
        h3_datagram: true,
        ..h3::Settings::default()
    };
    Site::between(says, limits(), with_datagrams)
}

/// The client has not enabled DATAGRAM frames of QUIC, so datagrams are sent in capsules.
fn site_of_capsules() -> Site {
    Site::new(limits())
}

fn capsule(kind: u64, value: &[u8]) -> Vec<u8> {
    [&varints(&[kind, value.len() as u64])[..], value].concat()
}

fn datagrams(reported: &[Event]) -> Vec<(u64, Vec<u8>)> {
    let datagram = |event: &Event| match event {
        Event::Datagram { stream_id, data } => Some((*stream_id, data.to_vec())),
        _ => None,
    };
    reported.iter().filter_map(datagram).collect()
}

fn heard(site: &Site) -> Vec<(u64, Vec<u8>)> {
    let datagram = |event: &h3::Event| match event {
        h3::Event::Datagram { stream_id, data } => Some((*stream_id, data.to_vec())),
        _ => None,
    };
    site.heard.iter().filter_map(datagram).collect()
}

impl Site {
    fn say(&mut self, stream_id: u64, data: &[u8]) {
        self.browser.send_datagram(stream_id, data).unwrap();
        self.run();
    }

    fn accept(&mut self, stream_id: u64) {
        self.command(|http, quic, now| http.send_headers(quic, stream_id, OK, false, now))
            .unwrap();
        self.run();
    }

    fn answer_with(&mut self, stream_id: u64, data: &[u8]) -> Result<bool, SendError> {
        self.command(|http, quic, now| http.send_datagram(quic, stream_id, data, now))
    }
}

#[test]
fn datagrams_go_both_ways_beside_the_stream_of_their_request() {
    let mut site = site();
    site.ask(0, CONNECT_UDP, false);
    let reported = site.take_events();
    let [
        Event::Request {
            head,
            refusal: None,
            ..
        },
    ] = &reported[..]
    else {
        panic!("{reported:?}");
    };
    assert_eq!(head.protocol.as_deref(), Some(&b"connect-udp"[..]));
    assert_eq!(
        (&head.method[..], &head.target[..]),
        (&b"CONNECT"[..], &b"/masque/192.0.2.6/443/"[..])
    );
    site.accept(0);
    site.say(0, b"ping");
    site.say(0, b"");
    assert_eq!(
        datagrams(&site.take_events()),
        [(0, b"ping".to_vec()), (0, Vec::new())]
    );
    assert_eq!(site.answer_with(0, b"pong"), Ok(true));
    site.run();
    assert_eq!(heard(&site), [(0, b"pong".to_vec())]);
    let size = site
        .command(|http, quic, _| http.max_datagram_size(quic, 0))
        .unwrap();
    assert!((1000..1500).contains(&size), "{size}");
    // A datagram that is too large is dropped, as a network would drop it.
    assert!(site.answer_with(0, &vec![1; size + 1]).is_ok());
    assert!(site.answer_with(0, &vec![2; size]).is_ok());
    site.run();
    assert_eq!(heard(&site)[1..], [(0, vec![2; size])]);
}

#[test]
fn datagrams_are_read_from_capsules_and_unknown_capsules_are_ignored() {
    let mut site = site_of_capsules();
    site.ask(0, CONNECT_UDP, false);
    site.accept(0);
    site.take_events();
    let content = [
        capsule(UNKNOWN, &[9; 500]),
        capsule(0, b"one"),
        capsule(UNKNOWN, &[8; 70_000]),
        capsule(0, b"two"),
    ]
    .concat();
    for piece in content.chunks(997) {
        site.raw(0, &frame(DATA, piece), false);
    }
    site.raw(0, b"", true);
    let reported = site.take_events();
    assert_eq!(
        datagrams(&reported),
        [(0, b"one".to_vec()), (0, b"two".to_vec())]
    );
    assert!(
        matches!(&reported[2..], [Event::Body { pieces, ended: true, .. }] if pieces.is_empty())
    );
    assert_eq!(
        site.command(|http, quic, _| http.max_datagram_size(quic, 0)),
        None
    );
    assert_eq!(site.answer_with(0, b"three"), Ok(true));
    site.run();
    let content = |event: &h3::Event| match event {
        h3::Event::Data { data, .. } => Some(data.to_vec()),
        _ => None,
    };
    let sent: Vec<u8> = site.heard.iter().filter_map(content).flatten().collect();
    assert_eq!(sent, capsule(0, b"three"));
}

#[test]
fn a_stream_that_ends_inside_a_capsule_is_malformed() {
    let mut site = site_of_capsules();
    site.ask(0, CONNECT_UDP, false);
    site.accept(0);
    site.take_events();
    site.raw(0, &frame(DATA, &capsule(UNKNOWN, b"cut")[..4]), true);
    assert_eq!(aborted(&site.take_events()), [0]);
    assert_eq!(site.resets(), [(0, Code::H3_MESSAGE_ERROR.0)]);
}

#[test]
fn a_datagram_above_the_largest_udp_payload_is_dropped() {
    let mut site = site_of_capsules();
    site.ask(0, CONNECT_UDP, false);
    site.accept(0);
    site.take_events();
    site.raw(0, &frame(DATA, &varints(&[0, 1 << 40])), false);
    assert_eq!(aborted(&site.take_events()), [0]);
    assert_eq!(site.resets(), [(0, Code::H3_EXCESSIVE_LOAD.0)]);
}

#[test]
fn content_without_the_capsule_protocol_is_delivered_unparsed() {
    let mut site = site();
    let mut lines = CONNECT_UDP.to_vec();
    lines[1].1 = "chat";
    lines[5].1 = "?0";
    site.ask(0, &lines, false);
    site.accept(0);
    site.take_events();
    site.raw(0, &frame(DATA, b"as it is"), false);
    site.say(0, b"beside it");
    let reported = site.take_events();
    assert!(
        matches!(&reported[..], [Event::Body { pieces, .. }, Event::Datagram { .. }] if pieces.pieces()[0] == "as it is")
    );
}

#[test]
fn an_unsupported_protocol_is_refused() {
    let mut site = site();
    for (stream_id, protocol) in [(0, "connect-ip"), (4, "websocket")] {
        let mut lines = CONNECT_UDP.to_vec();
        lines[1].1 = protocol;
        site.ask(stream_id, &lines, false);
        let reported = site.take_events();
        let refused = |event: &Event| matches!(event, Event::Request { refusal: Some(refusal), .. } if refusal.status == 501);
        assert!(reported.iter().any(refused), "{reported:?}");
    }
}

#[test]
fn a_datagram_for_a_request_without_datagrams_aborts_it() {
    let mut site = site();
    site.ask(0, POST, false);
    site.ask(4, POST, false);
    site.take_events();
    site.say(0, b"what for?");
    // RFC 9297 section 2: the request has no datagrams.
    assert_eq!(aborted(&site.take_events()), [0]);
    assert_eq!(site.resets(), [(0, Code::H3_DATAGRAM_ERROR.0)]);
    assert_eq!(site.closed_with(), None);
    assert!(site.answer_with(4, b"").is_err());
}

#[test]
fn a_datagram_before_or_after_its_request_is_dropped() {
    let mut site = site();
    // The datagram arrives before the request that it belongs to.
    site.say(0, b"early");
    site.ask(0, CONNECT_UDP, false);
    site.accept(0);
    site.command(|http, quic, now| http.send_data(quic, 0, Bytes::new(), true, now))
        .unwrap();
    site.done(0);
    site.run();
    site.say(0, b"late");
    assert_eq!(datagrams(&site.take_events()), []);
    assert_eq!(site.answer_with(0, b""), Err(SendError::Gone));
    assert_eq!(site.closed_with(), None);
}

#[test]
fn datagram_capsules_are_dropped_while_the_stream_is_full() {
    let mut site = Site::with(limits(), |transport| transport.max_stream_data = 10_000);
    site.ask(0, CONNECT_UDP, false);
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    quic.pause_stream(0);
    site.accept(0);
    let mut had_room = true;
    for _ in 0..100 {
        had_room = site.answer_with(0, &[0; 60_000]).unwrap();
    }
    assert!(!had_room);
    let quic = site.pair.server.endpoint.connection(site.server).unwrap();
    let queued = quic.send_queue_bytes(0);
    assert!(queued < 1 << 20, "{queued}");
}
