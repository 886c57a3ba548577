//! Requests and responses of well-behaved clients.

use bytes::Bytes;
use uringcore_http::http2::frame_codec::{flag, kind};
use uringcore_http::http2::{Code, Event};
use uringcore_http::response_errors::SendError;

use super::client::{Client, GET, POST, content, encoded};

const OK: (&str, &str) = (":status", "200");

#[test]
fn a_request_is_answered() {
    let mut client = Client::new();
    client.headers(
        1,
        &[
            &GET[..],
            &[("accept", "a"), ("cookie", "b=c"), ("cookie", "d=e")],
        ]
        .concat(),
        true,
    );
    let events = client.events();
    let [
        Event::Request {
            stream_id: 1,
            head,
            refusal: None,
            ended: true,
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&head.method[..], &head.target[..]),
        (&b"GET"[..], &b"/"[..])
    );
    let fields = Vec::from_iter(
        head.fields
            .iter()
            .map(|(name, value)| (&name[..], &value[..])),
    );
    let expected: [(&[u8], &[u8]); 3] = [
        (b"host", b"localhost"),
        (b"accept", b"a"),
        (b"cookie", b"b=c; d=e"),
    ];
    assert_eq!(fields, expected);
    client
        .respond(
            1,
            &[OK, ("x", "y"), ("connection", "keep-alive")],
            b"hello",
            true,
        )
        .expect("a response");
    client.done(1);
    let frames = client.frames();
    assert_eq!(frames.len(), 2);
    assert_eq!(client.lines(&frames[0]), [":status: 200", "x: y"]);
    assert_eq!(
        (&frames[1].payload[..], frames[1].ends()),
        (&b"hello"[..], true)
    );
    assert!(!frames[0].ends());
    assert_eq!(client.closing, None);
}

#[test]
fn the_input_may_be_cut_anywhere() {
    let mut whole = Client::new();
    let block = whole.block(&POST);
    let bytes = [
        encoded(kind::HEADERS, 0, 1, &block[..3]),
        encoded(kind::CONTINUATION, 0, 1, &[]),
        encoded(kind::CONTINUATION, flag::END_HEADERS, 1, &block[3..]),
        encoded(kind::DATA, flag::PADDED, 1, b"\x02abc\0\0"),
        encoded(kind::PING, 0, 0, b"12345678"),
        encoded(kind::DATA, flag::END_STREAM, 1, b"def"),
    ]
    .concat();
    for size in 1..bytes.len() {
        let mut client = Client::new();
        bytes.chunks(size).for_each(|part| client.send(part));
        let mut received = Vec::new();
        let mut has_ended = false;
        for event in client.events() {
            match event {
                Event::Request { ended, .. } => assert!(!ended),
                Event::Body { pieces, ended, .. } => {
                    received.extend(pieces.concat());
                    has_ended |= ended;
                }
                event => panic!("{event:?}"),
            }
        }
        assert_eq!((&received[..], has_ended), (&b"abcdef"[..], true), "{size}");
    }
}

#[test]
fn trailers_of_a_request_end_its_content() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.data(1, b"a", false);
    client.headers(1, &[("x-checksum", "1")], true);
    let last = client.events().pop();
    let expected = Event::Body {
        stream_id: 1,
        pieces: vec![Bytes::from_static(b"a")],
        ended: true,
    };
    assert_eq!(last, Some(expected));
}

#[test]
fn trailers_of_a_response_follow_its_content() {
    let mut client = Client::new();
    // The window lets only a part of the content through.
    client.settings(&[(4, 3)]);
    client.headers(1, &GET, true);
    client
        .respond(1, &[OK], b"abcdef", false)
        .expect("a response");
    client
        .send_headers(1, &[("grpc-status", "0")], true)
        .expect("trailers");
    client.headers(3, &GET, true);
    client
        .send_headers(3, &[OK, ("x", "y")], true)
        .expect("a response");
    let frames = client.frames();
    assert_eq!(content(&frames), b"abc");
    let heads = Vec::from_iter(
        frames
            .iter()
            .filter(|frame| frame.kind == kind::HEADERS)
            .cloned(),
    );
    assert_eq!(client.lines(&heads[0]), [":status: 200"]);
    assert_eq!(client.lines(&heads[1]), [":status: 200", "x: y"]);
    client.window_update(1, 3);
    let frames = client.frames_of(1);
    assert_eq!(content(&frames), b"def");
    let last = frames.last().expect("a frame");
    assert!(last.ends() && last.kind == kind::HEADERS);
    assert_eq!(client.lines(last), ["grpc-status: 0"]);
}

#[test]
fn trailers_without_waiting_content_are_sent_at_once() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client.respond(1, &[OK], b"a", false).expect("a response");
    client
        .send_headers(1, &[("a", "b")], true)
        .expect("trailers");
    let frames = client.frames_of(1);
    assert_eq!(
        Vec::from_iter(frames.iter().map(|it| it.ends())),
        [false, false, true]
    );
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client
        .send_headers(1, &[(":status", "100")], false)
        .expect("an interim response");
    client
        .send_headers(1, &[(":status", "103"), ("link", "</a>")], false)
        .expect("an interim response");
    client.send_headers(1, &[OK], true).expect("a response");
    let frames = client.frames_of(1);
    let mut statuses = Vec::new();
    for frame in frames {
        statuses.push((client.lines(&frame)[0].clone(), frame.ends()));
    }
    assert_eq!(
        statuses,
        [
            (":status: 100".to_owned(), false),
            (":status: 103".to_owned(), false),
            (":status: 200".to_owned(), true)
        ]
    );
}

#[test]
fn a_large_field_block_is_continued() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    // These characters are shorter without the Huffman code.
    let value = "~".repeat(40_000);
    client
        .send_headers(1, &[OK, ("x", &value)], true)
        .expect("a response");
    let frames = client.frames_of(1);
    let kinds = Vec::from_iter(frames.iter().map(|it| (it.kind, it.flags)));
    assert_eq!(
        kinds,
        [
            (kind::HEADERS, flag::END_STREAM),
            (kind::CONTINUATION, 0),
            (kind::CONTINUATION, flag::END_HEADERS)
        ]
    );
    let mut whole = frames[0].clone();
    whole.payload = frames.iter().flat_map(|it| it.payload.clone()).collect();
    assert_eq!(client.lines(&whole)[1].len(), 40_003);
}

#[test]
fn wrong_responses_are_refused_and_send_nothing() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    let invalid = |sent| matches!(sent, Err(SendError::Invalid(_)));
    assert!(invalid(client.send_data(1, b"a", false)));
    assert!(invalid(client.send_headers(1, &[("a", "b")], false)));
    assert!(invalid(client.send_headers(1, &[OK, ("a", "b\nc")], false)));
    assert!(invalid(client.send_headers(1, &[OK, ("A", "b")], false)));
    assert!(invalid(client.send_headers(
        1,
        &[(":status", "101")],
        false
    )));
    assert!(client.frames().is_empty());
    client.send_headers(1, &[OK], false).expect("a response");
    assert!(invalid(client.send_headers(1, &[OK], false)));
    client.send_data(1, b"a", true).expect("content");
    assert_eq!(client.send_data(1, b"a", true), Err(SendError::Gone));
    assert_eq!(client.send_headers(9, &[OK], true), Err(SendError::Gone));
}

#[test]
fn a_response_may_be_larger_than_the_client_accepts() {
    let mut client = Client::new();
    client.settings(&[(6, 60)]);
    client.headers(1, &GET, true);
    let sent = client.send_headers(1, &[OK, ("x", "y")], true);
    assert_eq!(sent, Err(SendError::TooLarge { size: 76, max: 60 }));
    client.send_headers(1, &[OK], true).expect("a response");
}

#[test]
fn an_early_response_ends_the_request() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.respond(1, &[OK], b"no", true).expect("a response");
    client.http.cancel(1, Code::NoError, client.now);
    client.collect();
    let frames = client.frames_of(1);
    let last = frames.last().expect("a frame");
    assert_eq!(
        (last.kind, last.code()),
        (kind::RST_STREAM, Code::NoError as u32)
    );
    // The rest of the request, which was on its way, is ignored.
    client.data(1, b"rest", false);
    client.headers(1, &[("trailer", "1")], true);
    client.headers(3, &GET, true);
    assert!(client.frames().is_empty() && client.closing.is_none());
}

#[test]
fn an_early_response_is_sent_whole_before_the_reset() {
    let mut client = Client::new();
    client.settings(&[(4, 2)]);
    client.headers(1, &POST, false);
    client.respond(1, &[OK], b"1234", true).expect("a response");
    client.http.cancel(1, Code::NoError, client.now);
    client.collect();
    assert_eq!(client.reset_code(1), None);
    client.window_update(1, 2);
    let frames = client.frames_of(1);
    assert_eq!((content(&frames), frames.len()), (b"34".to_vec(), 2));
    assert_eq!(frames[1].code(), Code::NoError as u32);
}

#[test]
fn an_incomplete_response_is_reset() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client.respond(1, &[OK], b"a", false).expect("a response");
    client.done(1);
    assert_eq!(client.reset_code(1), Some(Code::InternalError as u32));
}

#[test]
fn extended_connect_opens_a_websocket() {
    let mut client = Client::new();
    let connect = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat"),
        (":authority", "localhost"),
        ("sec-websocket-version", "13"),
    ];
    client.headers(1, &connect, false);
    let events = client.events();
    let [
        Event::Request {
            head,
            refusal: None,
            ended: false,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert!(head.is_websocket && &head.target[..] == b"/chat");
    client.send_headers(1, &[OK], false).expect("a response");
    client.data(1, b"frame", false);
    assert!(matches!(
        &client.events()[..],
        [Event::Body { ended: false, .. }]
    ));
    // These requests are answered without the application.
    client.headers(3, &connect[..5], false);
    client.headers(
        5,
        &[(":method", "CONNECT"), (":authority", "localhost:80")],
        false,
    );
    let mut other = connect;
    other[1].1 = "connect-udp";
    client.headers(7, &other, false);
    other[1].1 = "webtransport";
    client.headers(9, &other, false);
    client.headers(11, &[&connect[..], &connect[5..]].concat(), false);
    let refused = [
        (3, Some(400)),
        (5, Some(501)),
        (7, Some(501)),
        (9, Some(501)),
        (11, Some(400)),
    ];
    assert_eq!(client.requests(), refused);
}

#[test]
fn urgent_responses_come_first() {
    let mut client = Client::new();
    let with = |priority| [&GET[..], &[("priority", priority)]].concat();
    client.headers(1, &with("u=5"), true);
    client.headers(3, &with("u=3"), true);
    client.headers(5, &with("u=3, i"), true);
    client.headers(7, &with("u=1"), true);
    client.http.set_writable(false);
    for stream_id in [1, 3, 5, 7] {
        client
            .respond(stream_id, &[OK], &[b'a'; 20_000], true)
            .expect("a response");
    }
    // The first response becomes the most urgent one, and the application makes the last one less urgent.
    client.frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=0");
    client.frames();
    client.http.set_writable(true);
    client.window_update(0, 1 << 20);
    let frames = client.frames();
    let order = Vec::from_iter(frames.iter().filter(|it| it.ends()).map(|it| it.stream_id));
    assert_eq!(order, [1, 7, 3, 5]);
}

#[test]
fn responses_to_a_client_without_priorities_take_turns() {
    let mut client = Client::new();
    client.http.set_writable(false);
    for stream_id in [1u32, 3] {
        client.headers(stream_id, &GET, true);
        client
            .respond(stream_id.into(), &[OK], &[b'a'; 30_000], true)
            .expect("a response");
    }
    client.frames();
    client.http.set_writable(true);
    client.collect();
    let frames = client.frames();
    let data = frames.iter().filter(|it| it.kind == kind::DATA);
    let order = Vec::from_iter(data.map(|it| it.stream_id));
    assert_eq!(order, [1, 3, 1, 3]);
}

#[test]
fn a_priority_may_come_before_its_request() {
    let mut client = Client::new();
    client.frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x03u=0");
    client.http.set_writable(false);
    for stream_id in [1u32, 3] {
        client.headers(stream_id, &GET, true);
        client
            .respond(stream_id.into(), &[OK], &[b'a'; 20_000], true)
            .expect("a response");
    }
    client.frames();
    client.http.set_writable(true);
    client.collect();
    let frames = client.frames();
    let order = Vec::from_iter(frames.iter().filter(|it| it.ends()).map(|it| it.stream_id));
    assert_eq!(order, [3, 1]);
}
