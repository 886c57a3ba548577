//! Server push (RFC 9114 section 4.6), both roles: promises, push streams, limits, cancellation.

use crate::common::*;
use bytes::Bytes;
use uringcore_h3::{
    Code, Event, HeadersKind, LocalError, Output, QueuedConnection, Role, Settings,
};

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/"),
];
const STYLE: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/style.css"),
];
const OK: [(&str, &str); 1] = [(":status", "200")];
/// The identifier of the server's fourth unidirectional stream.
const PUSH_STREAM: u64 = 15;

fn accepting(max_push_id: u64) -> Settings {
    Settings {
        max_push_id: Some(max_push_id),
        ..Settings::default()
    }
}

fn pair(feed: Feed, max_push_id: u64) -> Pair {
    let mut pair = Pair::with_settings(feed, accepting(max_push_id), Settings::default());
    pair.client.send_headers(0, &GET, true).unwrap();
    pair.pump();
    events(&mut pair.server);
    pair
}

/// A client that has sent a request and has received the server's SETTINGS.
fn client(settings: Settings) -> QueuedConnection {
    let mut client = QueuedConnection::new(Role::Client, settings, CLIENT_UNI);
    let control = [&[0][..], &frame(0x4, b"")].concat();
    client.handle_stream_data(3, control.into(), false);
    client.send_headers(0, &GET, true).unwrap();
    outputs(&mut client);
    events(&mut client);
    client
}

fn promise(push_id: u64) -> Vec<u8> {
    frame(
        0x5,
        &[varints(&[push_id]), literal_section(&STYLE)].concat(),
    )
}

#[test]
fn a_push_is_promised_and_sent() {
    for feed in [Feed::Whole, Feed::ByteByByte] {
        let mut pair = pair(feed, 1);
        pair.server
            .send_push_promise(0, PUSH_STREAM, &STYLE)
            .unwrap();
        pair.server.send_headers(0, &OK, false).unwrap();
        pair.server
            .send_data(0, Bytes::from_static(b"page"), true)
            .unwrap();
        pair.server.send_headers(PUSH_STREAM, &OK, false).unwrap();
        pair.server
            .send_data(PUSH_STREAM, Bytes::from_static(b"style"), true)
            .unwrap();
        pair.pump();
        let headers = |stream_id| Event::Headers {
            stream_id,
            fields: fields(&OK),
            kind: HeadersKind::Response,
            fin: false,
        };
        let data = |stream_id, data| Event::Data {
            stream_id,
            data: Bytes::from_static(data),
            fin: true,
        };
        assert_eq!(
            events(&mut pair.client),
            [
                Event::PushPromise {
                    stream_id: 0,
                    push_id: 0,
                    fields: fields(&STYLE)
                },
                headers(0),
                data(0, b"page"),
                headers(PUSH_STREAM),
                data(PUSH_STREAM, b"style"),
            ]
        );
        assert_eq!(pair.client.push_id(PUSH_STREAM), Some(0));
        assert_eq!(pair.client.push_id(0), None);
        assert_eq!(pair.server.open_requests(), 0);
        assert_eq!(pair.client.open_requests(), 0);
    }
}

#[test]
fn a_promise_may_be_the_last_frame_of_its_stream() {
    let mut client = client(accepting(0));
    let response = [headers_frame(&OK), promise(0)].concat();
    client.handle_stream_data(0, response.into(), true);
    let kinds = events(&mut client);
    assert!(
        matches!(
            &kinds[..],
            [
                Event::Headers { fin: false, .. },
                Event::PushPromise { push_id: 0, .. },
                Event::Data { fin: true, .. }
            ]
        ),
        "{kinds:?}"
    );
}

#[test]
fn the_clients_max_push_id_bounds_promises() {
    let mut pair = pair(Feed::Whole, 0);
    pair.server
        .send_push_promise(0, PUSH_STREAM, &STYLE)
        .unwrap();
    assert_eq!(
        pair.server.send_push_promise(0, PUSH_STREAM + 4, &STYLE),
        Err(LocalError::NoPush)
    );
    let mut unwilling = Pair::new(Feed::Whole);
    unwilling.client.send_headers(0, &GET, true).unwrap();
    unwilling.pump();
    assert_eq!(
        unwilling.server.send_push_promise(0, PUSH_STREAM, &STYLE),
        Err(LocalError::NoPush)
    );
}

#[test]
fn misuse_is_refused_and_changes_nothing() {
    let mut pair = pair(Feed::Whole, 8);
    let server = &mut pair.server;
    assert!(matches!(
        server.send_push_promise(4, PUSH_STREAM, &STYLE),
        Err(LocalError::FrameUnexpected(_))
    ));
    assert!(matches!(
        server.send_push_promise(3, PUSH_STREAM, &STYLE),
        Err(LocalError::InvalidStream(_))
    ));
    assert!(matches!(
        server.send_push_promise(0, PUSH_STREAM, &STYLE[1..]),
        Err(LocalError::InvalidField(_))
    ));
    assert_eq!(outputs(server), []);
    server.send_headers(0, &OK, true).unwrap();
    assert!(matches!(
        server.send_push_promise(0, PUSH_STREAM, &STYLE),
        Err(LocalError::FrameUnexpected(_))
    ));
    assert!(matches!(
        server.send_headers(PUSH_STREAM, &OK, true),
        Err(LocalError::InvalidStream(_))
    ));
    assert_eq!(
        pair.client.send_push_promise(0, 14, &STYLE),
        Err(LocalError::NoPush)
    );
}

#[test]
fn nothing_is_promised_in_a_tunnel() {
    let mut pair = Pair::with_settings(Feed::Whole, accepting(8), Settings::default());
    let connect = [(":method", "CONNECT"), (":authority", "a:1")];
    pair.client.send_headers(0, &connect, false).unwrap();
    pair.pump();
    pair.server.send_headers(0, &OK, false).unwrap();
    assert!(matches!(
        pair.server.send_push_promise(0, PUSH_STREAM, &STYLE),
        Err(LocalError::FrameUnexpected(_))
    ));
    pair.pump();
    assert!(!pair.client.is_closed());
}

#[test]
fn the_response_to_a_refused_connect_may_promise() {
    let mut pair = Pair::with_settings(Feed::Whole, accepting(8), Settings::default());
    let connect = [(":method", "CONNECT"), (":authority", "a:1")];
    pair.client.send_headers(0, &connect, false).unwrap();
    pair.pump();
    pair.server
        .send_headers(0, &[(":status", "404")], false)
        .unwrap();
    pair.server
        .send_push_promise(0, PUSH_STREAM, &STYLE)
        .unwrap();
    pair.pump();
    assert!(!pair.client.is_closed());
}

#[test]
fn only_get_and_head_without_content_are_promised() {
    let mut pair = pair(Feed::Whole, 8);
    for bad in [
        vec![(":method", "CONNECT"), (":authority", "a:1")],
        [&[(":method", "POST")], &STYLE[1..]].concat(),
        [&STYLE[..], &[("content-length", "1")]].concat(),
    ] {
        let promised = pair.server.send_push_promise(0, PUSH_STREAM, &bad);
        assert!(
            matches!(promised, Err(LocalError::InvalidField(_))),
            "{bad:?}"
        );
    }
}

#[test]
fn a_pushed_response_to_head_has_a_length_and_no_content() {
    let head = [&[(":method", "HEAD")], &STYLE[1..]].concat();
    let response = [(":status", "200"), ("content-length", "7")];
    for feed in [Feed::Whole, Feed::ByteByByte] {
        let mut pair = pair(feed, 8);
        pair.server
            .send_push_promise(0, PUSH_STREAM, &head)
            .unwrap();
        pair.server
            .send_headers(PUSH_STREAM, &response, true)
            .unwrap();
        pair.pump();
        let is_refused = |event: &Event| matches!(event, Event::Reset { .. });
        assert!(!events(&mut pair.client).iter().any(is_refused));
    }
}

#[test]
fn either_side_can_cancel_a_push() {
    let mut pair = pair(Feed::Whole, 8);
    for push in 0..3 {
        let stream_id = PUSH_STREAM + 4 * push;
        pair.server.send_push_promise(0, stream_id, &STYLE).unwrap();
        pair.server.send_headers(stream_id, &OK, false).unwrap();
    }
    pair.pump();
    events(&mut pair.client);
    // The peer rejects pushes in three ways: by CANCEL_PUSH, by STOP_SENDING, and by RESET_STREAM.
    pair.server
        .handle_stream_data(2, frame(0x3, &varints(&[0])).into(), false);
    assert_eq!(
        outputs(&mut pair.server),
        [Output::ResetStream {
            stream_id: PUSH_STREAM,
            code: Code::H3_REQUEST_CANCELLED
        }]
    );
    pair.client.cancel_request(PUSH_STREAM + 4, 0x10c);
    pair.pump();
    assert!(
        pair.server
            .send_data(PUSH_STREAM + 4, Bytes::from_static(b"x"), true)
            .is_err()
    );
    pair.server.cancel_request(PUSH_STREAM + 8, 0x10c);
    pair.pump();
    assert!(events(&mut pair.client).contains(&Event::Reset {
        stream_id: PUSH_STREAM + 8,
        code: 0x10c,
        local: false
    }));
    assert_eq!(pair.server.open_requests(), 1, "only the request is left");
}

#[test]
fn a_clients_goaway_ends_pushes() {
    let mut pair = pair(Feed::Whole, 8);
    pair.client.send_goaway(1).unwrap();
    pair.pump();
    pair.server
        .send_push_promise(0, PUSH_STREAM, &STYLE)
        .unwrap();
    assert_eq!(
        pair.server.send_push_promise(0, PUSH_STREAM + 4, &STYLE),
        Err(LocalError::NoPush)
    );
}
