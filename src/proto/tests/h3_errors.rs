//! Every rule that a peer can break, with the code that the RFC wants for it, fed whole and byte by
//! byte.

use crate::h3_common::*;
use bytes::Bytes;
use uringcore_proto::h3::{Code, Connection, Event, LocalError, Output, Role, Settings, varint};

/// A connection that has the peer's SETTINGS, with its own first outputs taken.
fn ready(role: Role, settings: Settings) -> Connection {
    let uni = if role == Role::Client {
        CLIENT_UNI
    } else {
        SERVER_UNI
    };
    let mut connection = Connection::new(role, settings, uni);
    connection.handle_stream_data(
        peer_control(role),
        [&[0][..], &frame(0x4, b"")].concat().into(),
        false,
    );
    outputs(&mut connection);
    assert_eq!(events(&mut connection), [Event::SettingsReceived]);
    connection
}

fn peer_control(role: Role) -> u64 {
    if role == Role::Client { 3 } else { 2 }
}

/// Feeds one stream to a fresh connection both ways and expects the connection to be closed with
/// `code`.
fn expect_close(what: &str, role: Role, stream_id: u64, data: &[u8], fin: bool, code: Code) {
    for feed in [Feed::Whole, Feed::ByteByByte] {
        let mut connection = ready(role, Settings::default());
        if role == Role::Client && stream_id == 0 {
            connection.send_headers(0, &GET, true).unwrap();
        }
        feed_stream(&mut connection, stream_id, data, fin, feed);
        assert_eq!(close_code(&mut connection), Some(code), "{what} ({feed:?})");
        assert!(connection.is_closed());
        // Nothing more is done, whatever comes.
        events(&mut connection);
        connection.handle_stream_data(8, headers_frame(&GET).into(), true);
        connection.handle_datagram(Bytes::new());
        assert_eq!(
            (outputs(&mut connection), events(&mut connection)),
            (vec![], vec![])
        );
        assert_eq!(
            connection.send_headers(0, &GET, true),
            Err(LocalError::Closed)
        );
    }
}

/// Feeds a request stream to a fresh connection both ways and expects only that stream to be given
/// up.
fn expect_stream_error(what: &str, role: Role, data: &[u8], fin: bool, code: Code) {
    for feed in [Feed::Whole, Feed::ByteByByte] {
        let mut connection = ready(role, Settings::default());
        if role == Role::Client {
            connection.send_headers(0, &GET, false).unwrap();
            outputs(&mut connection);
        }
        feed_stream(&mut connection, 0, data, fin, feed);
        let done = outputs(&mut connection);
        assert!(
            done.contains(&Output::ResetStream { stream_id: 0, code }),
            "{what} ({feed:?}): {done:?}"
        );
        assert!(!connection.is_closed(), "{what}");
        assert_eq!(connection.open_requests(), 0, "{what}");
        if role == Role::Client {
            let last = events(&mut connection).pop();
            assert_eq!(
                last,
                Some(Event::Reset {
                    stream_id: 0,
                    code: code.0,
                    local: true
                }),
                "{what}"
            );
        }

        // A strict host hears of it as a connection error.
        let mut strict = ready(role, Settings::default());
        strict.set_strict(true);
        if role == Role::Client {
            strict.send_headers(0, &GET, false).unwrap();
        }
        feed_stream(&mut strict, 0, data, fin, feed);
        let expected = if code == Code::H3_REQUEST_INCOMPLETE {
            None
        } else {
            Some(code)
        };
        assert_eq!(close_code(&mut strict), expected, "{what}, strict");
    }
}

#[test]
fn control_stream_rules() {
    use Role::{Client, Server};
    let control = |frames: &[Vec<u8>]| [&[0][..], &frames.concat()].concat();
    let settings = || frame(0x4, b"");
    let cases: Vec<(&str, Role, Vec<Vec<u8>>, Code)> = vec![
        (
            "GOAWAY before SETTINGS",
            Server,
            vec![frame(0x7, b"\x00")],
            Code::H3_MISSING_SETTINGS,
        ),
        (
            "unknown frame before SETTINGS",
            Server,
            vec![frame(0x21, b"")],
            Code::H3_MISSING_SETTINGS,
        ),
        (
            "second SETTINGS",
            Server,
            vec![settings(), settings()],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "DATA",
            Server,
            vec![settings(), frame(0x0, b"x")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "HEADERS",
            Server,
            vec![settings(), frame(0x1, b"x")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "PUSH_PROMISE",
            Client,
            vec![settings(), frame(0x5, b"x")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "HTTP/2 PRIORITY",
            Server,
            vec![settings(), frame(0x2, b"")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "HTTP/2 PING",
            Server,
            vec![settings(), frame(0x6, b"")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "HTTP/2 WINDOW_UPDATE",
            Server,
            vec![settings(), frame(0x8, b"")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "HTTP/2 CONTINUATION",
            Server,
            vec![settings(), frame(0x9, b"")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "MAX_PUSH_ID to a client",
            Client,
            vec![settings(), frame(0xd, b"\x01")],
            Code::H3_FRAME_UNEXPECTED,
        ),
        (
            "MAX_PUSH_ID going down",
            Server,
            vec![settings(), frame(0xd, b"\x08"), frame(0xd, b"\x07")],
            Code::H3_ID_ERROR,
        ),
        (
            "CANCEL_PUSH to a server",
            Server,
            vec![settings(), frame(0x3, b"\x00")],
            Code::H3_ID_ERROR,
        ),
        (
            "CANCEL_PUSH to a client",
            Client,
            vec![settings(), frame(0x3, b"\x00")],
            Code::H3_ID_ERROR,
        ),
        (
            "GOAWAY with a push ID to a client",
            Client,
            vec![settings(), frame(0x7, b"\x01")],
            Code::H3_ID_ERROR,
        ),
        (
            "GOAWAY going up",
            Client,
            vec![settings(), frame(0x7, b"\x04"), frame(0x7, b"\x08")],
            Code::H3_ID_ERROR,
        ),
        (
            "GOAWAY without an ID",
            Server,
            vec![settings(), frame(0x7, b"")],
            Code::H3_FRAME_ERROR,
        ),
        (
            "GOAWAY with half an ID",
            Server,
            vec![settings(), frame(0x7, b"\x40")],
            Code::H3_FRAME_ERROR,
        ),
        (
            "GOAWAY with more than an ID",
            Server,
            vec![settings(), frame(0x7, b"\x00\x00")],
            Code::H3_FRAME_ERROR,
        ),
        (
            "GOAWAY far too long",
            Server,
            vec![settings(), frame(0x7, &[0; 100])],
            Code::H3_FRAME_ERROR,
        ),
        (
            "huge SETTINGS",
            Server,
            vec![frame(0x4, &[0x21; 5000])],
            Code::H3_EXCESSIVE_LOAD,
        ),
    ];
    for (what, role, frames, code) in cases {
        for feed in [Feed::Whole, Feed::ByteByByte] {
            let uni = if role == Client {
                CLIENT_UNI
            } else {
                SERVER_UNI
            };
            let mut connection = Connection::new(role, Settings::default(), uni);
            feed_stream(
                &mut connection,
                peer_control(role),
                &control(&frames),
                false,
                feed,
            );
            assert_eq!(close_code(&mut connection), Some(code), "{what} ({feed:?})");
        }
    }
}

#[test]
fn settings_rules() {
    let cases: [(&str, Vec<u8>, Code); 9] = [
        (
            "ends inside a setting",
            varints(&[0x6]),
            Code::H3_FRAME_ERROR,
        ),
        (
            "ends inside a value",
            [&varints(&[0x6])[..], &[0x80]].concat(),
            Code::H3_FRAME_ERROR,
        ),
        ("twice", varints(&[0x6, 1, 0x6, 1]), Code::H3_SETTINGS_ERROR),
        (
            "HTTP/2 ENABLE_PUSH",
            varints(&[0x2, 0]),
            Code::H3_SETTINGS_ERROR,
        ),
        (
            "HTTP/2 MAX_FRAME_SIZE",
            varints(&[0x5, 0]),
            Code::H3_SETTINGS_ERROR,
        ),
        (
            "ENABLE_CONNECT_PROTOCOL 2",
            varints(&[0x8, 2]),
            Code::H3_SETTINGS_ERROR,
        ),
        (
            "H3_DATAGRAM 2",
            varints(&[0x33, 2]),
            Code::H3_SETTINGS_ERROR,
        ),
        (
            "ENABLE_WEBTRANSPORT 2",
            varints(&[0x33, 1, 0x2b60_3742, 2]),
            Code::H3_SETTINGS_ERROR,
        ),
        (
            "WebTransport without datagrams",
            varints(&[0x2b60_3742, 1]),
            Code::H3_SETTINGS_ERROR,
        ),
    ];
    for (what, payload, code) in cases {
        for feed in [Feed::Whole, Feed::ByteByByte] {
            let mut server = Connection::new(Role::Server, Settings::default(), SERVER_UNI);
            feed_stream(
                &mut server,
                2,
                &[&[0][..], &frame(0x4, &payload)].concat(),
                false,
                feed,
            );
            assert_eq!(close_code(&mut server), Some(code), "{what} ({feed:?})");
        }
    }
    // With what QUIC says about datagrams known.
    for (enabled, code) in [(false, Some(Code::H3_SETTINGS_ERROR)), (true, None)] {
        let mut server = Connection::new(Role::Server, Settings::default(), SERVER_UNI);
        server.set_peer_quic_datagrams(enabled);
        let control = [&[0][..], &frame(0x4, &varints(&[0x33, 1]))].concat();
        server.handle_stream_data(2, control.into(), false);
        assert_eq!(close_code(&mut server), code);
    }
}

#[test]
fn unidirectional_stream_rules() {
    use Role::{Client, Server};
    expect_close(
        "push stream from a client",
        Server,
        14,
        b"\x01\x00",
        false,
        Code::H3_STREAM_CREATION_ERROR,
    );
    expect_close(
        "push stream to a client",
        Client,
        15,
        b"\x01\x00",
        false,
        Code::H3_ID_ERROR,
    );
    expect_close(
        "second control stream",
        Server,
        14,
        b"\x00",
        false,
        Code::H3_STREAM_CREATION_ERROR,
    );
    expect_close(
        "control stream ends",
        Server,
        2,
        b"",
        true,
        Code::H3_CLOSED_CRITICAL_STREAM,
    );
    expect_close(
        "QPACK encoder stream ends",
        Server,
        6,
        b"\x02",
        true,
        Code::H3_CLOSED_CRITICAL_STREAM,
    );
    expect_close(
        "QPACK decoder stream ends",
        Server,
        10,
        b"\x03",
        true,
        Code::H3_CLOSED_CRITICAL_STREAM,
    );
    expect_close(
        "QPACK encoder stream fault",
        Server,
        6,
        b"\x02\x00",
        false,
        Code::QPACK_ENCODER_STREAM_ERROR,
    );
    expect_close(
        "QPACK decoder stream fault",
        Server,
        10,
        b"\x03\x00",
        false,
        Code::QPACK_DECODER_STREAM_ERROR,
    );

    for stream_type in [2, 3] {
        let mut server = ready(Server, Settings::default());
        server.handle_stream_data(14, vec![stream_type].into(), false);
        server.handle_stream_data(18, vec![stream_type].into(), false);
        assert_eq!(
            close_code(&mut server),
            Some(Code::H3_STREAM_CREATION_ERROR)
        );
    }
    // A stream may end before its type is known (RFC 9114 section 6.2).
    let mut server = ready(Server, Settings::default());
    server.handle_stream_data(14, Bytes::new(), true);
    server.handle_stream_data(18, Bytes::from_static(b"\x40"), true);
    server.handle_stream_reset(22, 0);
    assert_eq!(outputs(&mut server), []);
}

#[test]
fn critical_streams_may_not_be_reset_or_stopped() {
    let mut server = ready(Role::Server, Settings::default());
    server.handle_stream_reset(2, 0);
    assert_eq!(
        close_code(&mut server),
        Some(Code::H3_CLOSED_CRITICAL_STREAM)
    );
    for stream_id in SERVER_UNI {
        let mut server = ready(Role::Server, Settings::default());
        server.handle_stop_sending(stream_id, 0);
        assert_eq!(
            close_code(&mut server),
            Some(Code::H3_CLOSED_CRITICAL_STREAM)
        );
    }
}

#[test]
fn request_stream_frame_rules() {
    use Role::{Client, Server};
    let request = headers_frame(&GET);
    let trailers = headers_frame(&[("x-t", "1")]);
    let after = |frame: Vec<u8>| [&request[..], &frame].concat();
    let unexpected = Code::H3_FRAME_UNEXPECTED;
    expect_close(
        "DATA first",
        Server,
        0,
        &frame(0x0, b"x"),
        false,
        unexpected,
    );
    let data_after_trailers = [&request[..], &trailers, &frame(0x0, b"x")].concat();
    expect_close(
        "DATA after trailers",
        Server,
        0,
        &data_after_trailers,
        false,
        unexpected,
    );
    let third = [&request[..], &trailers, &trailers].concat();
    expect_close(
        "HEADERS after trailers",
        Server,
        0,
        &third,
        false,
        unexpected,
    );
    for (what, frame_type) in [
        ("CANCEL_PUSH", 0x3),
        ("SETTINGS", 0x4),
        ("GOAWAY", 0x7),
        ("MAX_PUSH_ID", 0xd),
        ("HTTP/2 PRIORITY", 0x2),
        ("HTTP/2 PING", 0x6),
        ("HTTP/2 WINDOW_UPDATE", 0x8),
        ("HTTP/2 CONTINUATION", 0x9),
    ] {
        expect_close(what, Server, 0, &frame(frame_type, b""), false, unexpected);
        expect_close(
            what,
            Server,
            0,
            &after(frame(frame_type, b"\x00")),
            false,
            unexpected,
        );
    }
    expect_close(
        "PUSH_PROMISE to a server",
        Server,
        0,
        &frame(0x5, b"\x00"),
        false,
        unexpected,
    );
    expect_close(
        "PUSH_PROMISE to a client",
        Client,
        0,
        &frame(0x5, b"\x00"),
        false,
        Code::H3_ID_ERROR,
    );
    let connect = headers_frame(&[(":method", "CONNECT"), (":authority", "a:1")]);
    expect_close(
        "HEADERS in a tunnel",
        Server,
        0,
        &[&connect[..], &trailers].concat(),
        false,
        unexpected,
    );
    let cut = &request[..request.len() - 1];
    expect_close(
        "HEADERS cut by FIN",
        Server,
        0,
        cut,
        true,
        Code::H3_FRAME_ERROR,
    );
    expect_close(
        "DATA cut by FIN",
        Server,
        0,
        &after(b"\x00\x05abc".to_vec()),
        true,
        Code::H3_FRAME_ERROR,
    );
    expect_close(
        "frame header cut by FIN",
        Server,
        0,
        &after(b"\x00".to_vec()),
        true,
        Code::H3_FRAME_ERROR,
    );
    expect_close(
        "unknown frame cut by FIN",
        Server,
        0,
        &after(b"\x21\x05ab".to_vec()),
        true,
        Code::H3_FRAME_ERROR,
    );
    let garbage = frame(0x1, b"\x00\x00\x80");
    expect_close(
        "QPACK fault",
        Server,
        0,
        &garbage,
        false,
        Code::QPACK_DECOMPRESSION_FAILED,
    );
    expect_close(
        "empty HEADERS",
        Server,
        0,
        &frame(0x1, b""),
        false,
        Code::QPACK_DECOMPRESSION_FAILED,
    );
    expect_close(
        "server-initiated stream",
        Client,
        1,
        b"\x01",
        false,
        Code::H3_STREAM_CREATION_ERROR,
    );
}

#[test]
fn malformed_requests() {
    let with = |extra: &[(&'static str, &'static str)]| [&GET[..], extra].concat();
    let without = |name: &str| -> Vec<(&str, &str)> {
        GET.into_iter().filter(|field| field.0 != name).collect()
    };
    let cases: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("no :method", without(":method")),
        ("no :scheme", without(":scheme")),
        ("no :authority or host", without(":authority")),
        ("no :path", without(":path")),
        (
            "empty :path",
            [&without(":path")[..], &[(":path", "")]].concat(),
        ),
        (
            "empty :authority",
            [&without(":authority")[..], &[(":authority", "")]].concat(),
        ),
        ("host differs", with(&[("host", "other")])),
        ("twice", with(&[(":path", "/")])),
        ("unknown pseudo-header", with(&[(":unknown", "x")])),
        ("response pseudo-header", with(&[(":status", "200")])),
        (
            "pseudo-header after field",
            [&[("x", "y")][..], &GET].concat(),
        ),
        ("upper case", with(&[("X-Upper", "1")])),
        ("space in name", with(&[("x y", "1")])),
        ("empty name", with(&[("", "1")])),
        ("colon in name", with(&[("x:y", "1")])),
        ("NUL in value", with(&[("x", "a\0b")])),
        ("CR in value", with(&[("x", "a\rb")])),
        ("LF in value", with(&[("x", "a\nb")])),
        (
            "LF in pseudo-header",
            [&without(":path")[..], &[(":path", "/\nx")]].concat(),
        ),
        ("leading space", with(&[("x", " a")])),
        ("trailing tab", with(&[("x", "a\t")])),
        ("connection", with(&[("connection", "close")])),
        ("keep-alive", with(&[("keep-alive", "1")])),
        ("proxy-connection", with(&[("proxy-connection", "x")])),
        (
            "transfer-encoding",
            with(&[("transfer-encoding", "chunked")]),
        ),
        ("upgrade", with(&[("upgrade", "h2c")])),
        ("te gzip", with(&[("te", "gzip")])),
        (
            "content-length not a number",
            with(&[("content-length", "1x")]),
        ),
        ("content-length signed", with(&[("content-length", "+1")])),
        ("content-length empty", with(&[("content-length", "")])),
        (
            "content-length huge",
            with(&[("content-length", "99999999999999999999")]),
        ),
        (
            "content-length twice",
            with(&[("content-length", "1"), ("content-length", "2")]),
        ),
        (
            ":protocol without CONNECT",
            with(&[(":protocol", "websocket")]),
        ),
        (
            "CONNECT with :path",
            vec![
                (":method", "CONNECT"),
                (":authority", "a:1"),
                (":path", "/"),
            ],
        ),
        ("CONNECT without :authority", vec![(":method", "CONNECT")]),
    ];
    for (what, list) in cases {
        expect_stream_error(
            what,
            Role::Server,
            &headers_frame(&list),
            false,
            Code::H3_MESSAGE_ERROR,
        );
    }
    let trailers = [headers_frame(&GET), headers_frame(&[(":path", "/")])].concat();
    expect_stream_error(
        "pseudo-header in trailers",
        Role::Server,
        &trailers,
        true,
        Code::H3_MESSAGE_ERROR,
    );
}

#[test]
fn malformed_responses() {
    for (what, list) in [
        ("no :status", vec![("x", "y")]),
        (
            "request pseudo-header",
            vec![(":status", "200"), (":path", "/")],
        ),
        ("status of two digits", vec![(":status", "20")]),
        ("status of four digits", vec![(":status", "2000")]),
        ("status with letters", vec![(":status", "20x")]),
        ("status 0xx", vec![(":status", "099")]),
        ("101", vec![(":status", "101")]),
        ("te", vec![(":status", "200"), ("te", "trailers")]),
    ] {
        expect_stream_error(
            what,
            Role::Client,
            &headers_frame(&list),
            false,
            Code::H3_MESSAGE_ERROR,
        );
    }
    expect_stream_error("nothing", Role::Client, b"", true, Code::H3_MESSAGE_ERROR);
    let interim = headers_frame(&[(":status", "103")]);
    expect_stream_error(
        "only an interim response",
        Role::Client,
        &interim,
        true,
        Code::H3_MESSAGE_ERROR,
    );
    let no_content = [headers_frame(&[(":status", "204")]), frame(0x0, b"x")].concat();
    expect_stream_error(
        "204 with content",
        Role::Client,
        &no_content,
        true,
        Code::H3_MESSAGE_ERROR,
    );
}

#[test]
fn content_length_must_match() {
    let post =
        |length: &'static str| headers_frame(&[&GET[..], &[("content-length", length)]].concat());
    let content = |parts: &[&[u8]]| {
        parts
            .iter()
            .flat_map(|part| frame(0x0, part))
            .collect::<Vec<u8>>()
    };
    let error = Code::H3_MESSAGE_ERROR;
    for (what, request, fin) in [
        ("none of five", post("5"), true),
        (
            "three of five",
            [post("5"), content(&[b"abc"])].concat(),
            true,
        ),
        (
            "six of five",
            [post("5"), content(&[b"abc", b"def"])].concat(),
            false,
        ),
        ("one of none", [post("0"), content(&[b"a"])].concat(), false),
        (
            "three of five, then trailers",
            [post("5"), content(&[b"abc"]), headers_frame(&[("x", "y")])].concat(),
            true,
        ),
        // Refused by the frame's header alone.
        (
            "a frame far too long",
            [post("5"), varints(&[0x0, varint::MAX])].concat(),
            false,
        ),
    ] {
        expect_stream_error(what, Role::Server, &request, fin, error);
    }
    let mut server = ready(Role::Server, Settings::default());
    let request = [post("5"), content(&[b"abc", b"de"])].concat();
    feed_stream(&mut server, 0, &request, true, Feed::ByteByByte);
    assert_eq!(events(&mut server).len(), 2);
    assert!(!server.is_closed());
}

#[test]
fn an_incomplete_request_ends_only_itself() {
    let incomplete = Code::H3_REQUEST_INCOMPLETE;
    expect_stream_error("FIN at once", Role::Server, b"", true, incomplete);
    expect_stream_error(
        "only an unknown frame",
        Role::Server,
        &frame(0x21, b"abc"),
        true,
        incomplete,
    );
}

#[test]
fn oversized_field_sections_end_only_their_request() {
    let load = Code::H3_EXCESSIVE_LOAD;
    let mut frame_header = varints(&[0x1, 65_537]);
    expect_stream_error(
        "HEADERS frame too long",
        Role::Server,
        &frame_header,
        false,
        load,
    );
    frame_header.extend_from_slice(b"the rest would follow");
    expect_stream_error(
        "the same with data",
        Role::Server,
        &frame_header,
        false,
        load,
    );
    let many = vec![("x", ""); 2000];
    let section = [&GET[..], &many].concat();
    expect_stream_error(
        "many small fields",
        Role::Server,
        &headers_frame(&section),
        true,
        load,
    );
}

#[test]
fn datagram_rules() {
    for bad in [&b""[..], b"\x40", b"\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let mut server = ready(
            Role::Server,
            Settings {
                h3_datagram: true,
                ..Settings::default()
            },
        );
        server.handle_datagram(Bytes::copy_from_slice(bad));
        assert_eq!(
            close_code(&mut server),
            Some(Code::H3_DATAGRAM_ERROR),
            "{bad:?}"
        );
    }
}

#[test]
fn webtransport_rules() {
    let settings = Settings {
        webtransport: true,
        h3_datagram: true,
        ..Settings::default()
    };
    let cases: [(&str, Role, u64, Vec<u8>, Code); 4] = [
        (
            "not the first frame",
            Role::Server,
            0,
            [frame(0x21, b""), varints(&[0x41, 0])].concat(),
            Code::H3_FRAME_ERROR,
        ),
        (
            "session is no request",
            Role::Server,
            0,
            varints(&[0x41, 1]),
            Code::H3_ID_ERROR,
        ),
        (
            "unidirectional, session is no request",
            Role::Server,
            14,
            varints(&[0x54, 2]),
            Code::H3_ID_ERROR,
        ),
        (
            "server-initiated request",
            Role::Client,
            1,
            headers_frame(&GET),
            Code::H3_STREAM_CREATION_ERROR,
        ),
    ];
    for (what, role, stream_id, data, code) in cases {
        for feed in [Feed::Whole, Feed::ByteByByte] {
            let mut connection = ready(role, settings.clone());
            feed_stream(&mut connection, stream_id, &data, false, feed);
            assert_eq!(close_code(&mut connection), Some(code), "{what} ({feed:?})");
        }
    }
}

#[test]
fn what_blocked_streams_hold_is_bounded() {
    let mut server = ready(Role::Server, Settings::default());
    // A section that needs an insertion which never comes, then more and more content.
    let blocked = frame(0x1, b"\x02\x00\x80");
    server.handle_stream_data(0, blocked.into(), false);
    assert_eq!(server.open_requests(), 1);
    let mut pieces = 0;
    while server.open_requests() == 1 {
        server.handle_stream_data(0, vec![0; 64 * 1024].into(), false);
        pieces += 1;
        assert!(pieces < 100, "no bound");
    }
    let done = outputs(&mut server);
    assert!(done.contains(&Output::StopSending {
        stream_id: 0,
        code: Code::H3_EXCESSIVE_LOAD
    }));
    // The room is free again: others may block.
    server.handle_stream_data(4, frame(0x1, b"\x02\x00\x80").into(), false);
    server.handle_stream_data(4, vec![0; 64 * 1024].into(), false);
    assert_eq!(server.open_requests(), 1);
    assert!(!server.is_closed());
}

#[test]
fn too_many_blocked_streams_close_the_connection() {
    let mut server = ready(Role::Server, Settings::default());
    for stream in 0..=16 {
        server.handle_stream_data(stream * 4, frame(0x1, b"\x02\x00\x80").into(), false);
    }
    assert_eq!(
        close_code(&mut server),
        Some(Code::QPACK_DECOMPRESSION_FAILED)
    );
}

#[test]
fn given_up_streams_are_not_mistaken_for_new_ones() {
    let mut server = ready(Role::Server, Settings::default());
    server.handle_stream_data(0, headers_frame(&[(":method", "GET")]).into(), false);
    assert_eq!(server.open_requests(), 0);
    server.handle_stream_data(0, frame(0x0, b"late").into(), false);
    server.handle_stream_data(0, frame(0x0, b"and last").into(), true);
    assert!(!server.is_closed());
    assert_eq!(events(&mut server), []);
}
