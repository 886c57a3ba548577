//! Each error of RFC 9113 that a client can make.

use uringcore_http::http2::frame_codec::{PREFACE, flag, kind};
use uringcore_http::http2::{Code, Event, Limits, RequestLimits};
use uringcore_http::tcp_output::Closing;

use super::client::{Client, GET, POST, encoded};

/// Checks that `bytes` end a connection with open stream 1 (half-closed by the client), open stream 3, and closed
/// stream 5.
fn ends_connection(bytes: &[u8], code: Code, why: &str) {
    let mut client = prepared();
    client.send(bytes);
    assert_eq!(client.goaway(), Some(code as u32), "{why}");
    assert_eq!(client.closing, Some(Closing::Sending), "{why}");
    let aborted = |stream_id| client_event(stream_id);
    assert_eq!(client.events(), [aborted(1), aborted(3)], "{why}");
}

fn client_event(stream_id: u64) -> Event {
    Event::Aborted { stream_id }
}

fn prepared() -> Client {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client.headers(3, &POST, false);
    client.headers(5, &GET, true);
    client
        .send_headers(5, &[(":status", "204")], true)
        .expect("a response");
    client.done(5);
    client.frames();
    client.events();
    client
}

#[test]
fn errors_of_frames_end_the_connection() {
    let huge = encoded(kind::DATA, 0, 3, &[0; 16_385]);
    for (bytes, code, why) in [
        // Section 4.2 and 4.3.
        (huge, Code::FrameSizeError, "a frame above MAX_FRAME_SIZE"),
        (
            encoded(kind::HEADERS, 4, 7, &[0x80]),
            Code::CompressionError,
            "an invalid block",
        ),
        (
            encoded(kind::HEADERS, 4, 1, &[0xff]),
            Code::CompressionError,
            "invalid trailers",
        ),
        // Section 5.1.
        (
            encoded(kind::DATA, 0, 7, b"a"),
            Code::ProtocolError,
            "DATA on an idle stream",
        ),
        (
            encoded(kind::RST_STREAM, 0, 7, &[0; 4]),
            Code::ProtocolError,
            "RST_STREAM on an idle stream",
        ),
        (
            encoded(kind::WINDOW_UPDATE, 0, 7, &[0, 0, 0, 1]),
            Code::ProtocolError,
            "WINDOW_UPDATE on an idle stream",
        ),
        (
            encoded(kind::HEADERS, 5, 5, &[0x82]),
            Code::StreamClosed,
            "HEADERS on a closed stream",
        ),
        (
            encoded(kind::HEADERS, 5, 8, &[0x82]),
            Code::ProtocolError,
            "an even stream",
        ),
        (
            encoded(kind::DATA, 0, 8, b"a"),
            Code::ProtocolError,
            "DATA on an even stream",
        ),
        // Section 6.1 to 6.4.
        (
            encoded(kind::DATA, 0, 0, b"a"),
            Code::ProtocolError,
            "DATA on the connection",
        ),
        (
            encoded(kind::DATA, 8, 3, b"\x02a"),
            Code::ProtocolError,
            "too much padding",
        ),
        (
            encoded(kind::DATA, 8, 3, b""),
            Code::ProtocolError,
            "no length of the padding",
        ),
        (
            encoded(kind::HEADERS, 5, 0, &[0x82]),
            Code::ProtocolError,
            "HEADERS on the connection",
        ),
        (
            encoded(kind::HEADERS, 0xd, 7, &[4, 0x82]),
            Code::ProtocolError,
            "too much padding",
        ),
        (
            encoded(kind::HEADERS, 0x25, 7, &[0; 4]),
            Code::FrameSizeError,
            "no room for the priority",
        ),
        (
            encoded(kind::HEADERS, 0x25, 7, &[0, 0, 0, 7, 0]),
            Code::ProtocolError,
            "a stream that depends on itself",
        ),
        (
            encoded(kind::PRIORITY, 0, 0, &[0; 5]),
            Code::ProtocolError,
            "PRIORITY on the connection",
        ),
        (
            encoded(kind::PRIORITY, 0, 7, &[0; 4]),
            Code::FrameSizeError,
            "a short PRIORITY",
        ),
        (
            encoded(kind::RST_STREAM, 0, 3, &[0; 5]),
            Code::FrameSizeError,
            "a long RST_STREAM",
        ),
        (
            encoded(kind::RST_STREAM, 0, 0, &[0; 4]),
            Code::ProtocolError,
            "RST_STREAM on the connection",
        ),
        // Section 6.5.
        (
            encoded(kind::SETTINGS, 0, 1, &[]),
            Code::ProtocolError,
            "SETTINGS on a stream",
        ),
        (
            encoded(kind::SETTINGS, 1, 0, &[0; 6]),
            Code::FrameSizeError,
            "an acknowledgement with content",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0; 5]),
            Code::FrameSizeError,
            "SETTINGS that are cut",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]),
            Code::ProtocolError,
            "ENABLE_PUSH of 2",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]),
            Code::FlowControlError,
            "a window of 2^31",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]),
            Code::ProtocolError,
            "a small MAX_FRAME_SIZE",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0, 5, 1, 0, 0, 0]),
            Code::ProtocolError,
            "a large MAX_FRAME_SIZE",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 2]),
            Code::ProtocolError,
            "ENABLE_CONNECT_PROTOCOL of 2",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0, 9, 0, 0, 0, 2]),
            Code::ProtocolError,
            "NO_RFC7540_PRIORITIES of 2",
        ),
        (
            encoded(kind::SETTINGS, 0, 0, &[0, 9, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]),
            Code::ProtocolError,
            "a changed NO_RFC7540_PRIORITIES",
        ),
        // Section 6.6 to 6.8.
        (
            encoded(kind::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]),
            Code::ProtocolError,
            "PUSH_PROMISE",
        ),
        (
            encoded(kind::PING, 0, 0, &[0; 7]),
            Code::FrameSizeError,
            "a short PING",
        ),
        (
            encoded(kind::PING, 0, 1, &[0; 8]),
            Code::ProtocolError,
            "PING on a stream",
        ),
        (
            encoded(kind::GOAWAY, 0, 1, &[0; 8]),
            Code::ProtocolError,
            "GOAWAY on a stream",
        ),
        (
            encoded(kind::GOAWAY, 0, 0, &[0; 7]),
            Code::FrameSizeError,
            "a short GOAWAY",
        ),
        // Section 6.9.
        (
            encoded(kind::WINDOW_UPDATE, 0, 0, &[0; 4]),
            Code::ProtocolError,
            "an increment of 0",
        ),
        (
            encoded(kind::WINDOW_UPDATE, 0, 0, &[0; 3]),
            Code::FrameSizeError,
            "a short WINDOW_UPDATE",
        ),
        (
            encoded(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            Code::FlowControlError,
            "a window above 2^31",
        ),
        // Section 6.10.
        (
            encoded(kind::CONTINUATION, 4, 3, &[0x82]),
            Code::ProtocolError,
            "CONTINUATION without HEADERS",
        ),
        (
            [
                encoded(kind::HEADERS, 1, 7, &[0x82]),
                encoded(kind::CONTINUATION, 4, 9, &[]),
            ]
            .concat(),
            Code::ProtocolError,
            "CONTINUATION of another stream",
        ),
        (
            [
                encoded(kind::HEADERS, 1, 7, &[0x82]),
                encoded(kind::PING, 0, 0, &[0; 8]),
            ]
            .concat(),
            Code::ProtocolError,
            "a frame within a block",
        ),
        (
            [
                encoded(kind::HEADERS, 1, 7, &[0x82]),
                encoded(0xfe, 0, 0, &[]),
            ]
            .concat(),
            Code::ProtocolError,
            "an unknown frame within a block",
        ),
        // RFC 9218 section 7.1.
        (
            encoded(kind::PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]),
            Code::ProtocolError,
            "PRIORITY_UPDATE on a stream",
        ),
        (
            encoded(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 0]),
            Code::ProtocolError,
            "PRIORITY_UPDATE of stream 0",
        ),
        (
            encoded(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 2]),
            Code::ProtocolError,
            "PRIORITY_UPDATE of a push",
        ),
        (
            encoded(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0]),
            Code::FrameSizeError,
            "a short PRIORITY_UPDATE",
        ),
    ] {
        ends_connection(&bytes, code, why);
    }
}

#[test]
fn errors_of_streams_leave_the_others() {
    for (bytes, stream_id, code, why) in [
        (
            encoded(kind::DATA, 0, 1, b"a"),
            1,
            Code::StreamClosed,
            "DATA after the end",
        ),
        (
            encoded(kind::HEADERS, 5, 1, &[0x82]),
            1,
            Code::StreamClosed,
            "HEADERS after the end",
        ),
        (
            encoded(kind::DATA, 0, 5, b"a"),
            5,
            Code::StreamClosed,
            "DATA on a closed stream",
        ),
        (
            encoded(kind::HEADERS, 4, 3, &[]),
            3,
            Code::ProtocolError,
            "trailers without an end",
        ),
        (
            encoded(kind::HEADERS, 5, 3, &[0x82]),
            3,
            Code::ProtocolError,
            "trailers with a pseudo-header field",
        ),
        (
            encoded(kind::WINDOW_UPDATE, 0, 3, &[0; 4]),
            3,
            Code::ProtocolError,
            "an increment of 0",
        ),
        (
            encoded(kind::WINDOW_UPDATE, 0, 3, &[0x7f, 0xff, 0xff, 0xff]),
            3,
            Code::FlowControlError,
            "a large window",
        ),
        (
            encoded(kind::PRIORITY, 0, 3, &[0; 4]),
            3,
            Code::FrameSizeError,
            "a short PRIORITY",
        ),
        (
            encoded(kind::PRIORITY, 0, 3, &[0, 0, 0, 3, 0]),
            3,
            Code::ProtocolError,
            "a stream that depends on itself",
        ),
    ] {
        let mut client = prepared();
        client.send(&bytes);
        assert_eq!(client.reset_code(stream_id), Some(code as u32), "{why}");
        assert_eq!(client.closing, None, "{why}");
        let aborted = match stream_id {
            5 => Vec::new(),
            _ => vec![client_event(u64::from(stream_id))],
        };
        assert_eq!(client.events(), aborted, "{why}");
        client.headers(7, &GET, true);
        assert_eq!(client.requests(), [(7, None)], "{why}");
    }
}

#[test]
fn malformed_requests_are_reset() {
    let missing = |name: &str| Vec::from_iter(GET.into_iter().filter(|(it, _)| *it != name));
    let with = |line| [&GET[..], &[line]].concat();
    for (fields, why) in [
        (missing(":method"), "no method"),
        (missing(":scheme"), "no scheme"),
        (missing(":path"), "no path"),
        (missing(":authority"), "no authority"),
        (with((":path", "/")), "two paths"),
        (with((":status", "200")), "a status"),
        (with((":unknown", "1")), "an unknown pseudo-header field"),
        (
            with((":protocol", "websocket")),
            "a protocol without CONNECT",
        ),
        (with(("X-Upper", "1")), "a name in upper case"),
        (
            with(("connection", "keep-alive")),
            "a connection-specific field",
        ),
        (
            with(("transfer-encoding", "chunked")),
            "a connection-specific field",
        ),
        (with(("te", "gzip")), "te other than trailers"),
        (with(("x", "a\r\nb: c")), "a value with a line break"),
        (with(("x", " a")), "a value with white space"),
        (with(("", "a")), "an empty name"),
        (with(("host", "other")), "a host that differs"),
        (with(("content-length", "5")), "less content than announced"),
        (with(("content-length", "-5")), "an invalid length"),
        (
            [&[("x", "y")], &GET[..]].concat(),
            "a pseudo-header field after others",
        ),
    ] {
        let mut client = Client::new();
        client.headers(1, &fields, true);
        assert_eq!(
            client.reset_code(1),
            Some(Code::ProtocolError as u32),
            "{why}"
        );
        assert!(
            client.events().is_empty() && client.closing.is_none(),
            "{why}"
        );
        client.headers(3, &with(("te", "trailers")), true);
        assert_eq!(client.requests(), [(3, None)], "{why}");
    }
}

#[test]
fn content_must_have_the_announced_length() {
    let fields = [&POST[..], &[("content-length", "3")]].concat();
    for (parts, is_right) in [
        (&[&b"abc"[..]][..], true),
        (&[b"ab", b"c"], true),
        (&[b"ab"], false),
        (&[b"ab", b"cd"], false),
    ] {
        let mut client = Client::new();
        client.headers(1, &fields, false);
        for (at, part) in parts.iter().enumerate() {
            client.data(1, part, at + 1 == parts.len());
        }
        let code = client.reset_code(1);
        assert_eq!(code, (!is_right).then_some(Code::ProtocolError as u32));
        let aborted = client.events().contains(&client_event(1));
        assert_eq!(aborted, !is_right);
    }
}

#[test]
fn trailers_end_content_of_the_announced_length() {
    let mut client = Client::new();
    client.headers(1, &[&POST[..], &[("content-length", "3")]].concat(), false);
    client.data(1, b"ab", false);
    client.headers(1, &[("x", "y")], true);
    assert_eq!(client.reset_code(1), Some(Code::ProtocolError as u32));
}

#[test]
fn a_connection_begins_with_the_preface_and_settings() {
    let mut client = Client::silent(Limits::default());
    client.send(b"GET / HTTP/1.1\r\n");
    assert_eq!(client.goaway(), Some(Code::ProtocolError as u32));
    let mut client = Client::silent(Limits::default());
    client.send(PREFACE);
    client.frame(kind::PING, 0, 0, &[0; 8]);
    assert_eq!(client.goaway(), Some(Code::ProtocolError as u32));
    let mut client = Client::silent(Limits::default());
    client.send(PREFACE);
    client.frame(kind::SETTINGS, flag::ACK, 0, &[]);
    assert_eq!(client.goaway(), Some(Code::ProtocolError as u32));
}

#[test]
fn the_server_sends_its_settings_first_and_acknowledges_the_clients() {
    let mut client = Client::silent(Limits::default());
    client.collect();
    client.send(PREFACE);
    client.settings(&[(0xabcd, 7)]);
    let frames = client.frames();
    let kinds = Vec::from_iter(frames.iter().map(|it| (it.kind, it.flags)));
    let expected = [
        (kind::SETTINGS, 0),
        (kind::WINDOW_UPDATE, 0),
        (kind::SETTINGS, flag::ACK),
    ];
    assert_eq!(kinds, expected);
    let settings = frames[0].payload.chunks(6).map(|it| {
        (
            u16::from_be_bytes([it[0], it[1]]),
            u32::from_be_bytes([it[2], it[3], it[4], it[5]]),
        )
    });
    let limits = RequestLimits::default();
    let open = limits.open_requests as u32;
    let expected = [(3, open), (4, 1 << 20), (6, 64 << 10), (9, 1), (8, 1)];
    assert_eq!(Vec::from_iter(settings), expected);
    client.frame(kind::PING, 0, 0, b"abcdefgh");
    let pong = client.frames().pop().expect("a frame");
    assert_eq!(
        (pong.kind, pong.flags, &pong.payload[..]),
        (kind::PING, flag::ACK, &b"abcdefgh"[..])
    );
}

#[test]
fn unknown_frames_and_flags_are_ignored() {
    let mut client = Client::new();
    client.frame(0xee, 0xff, 9, b"unknown");
    client.frame(kind::PING, 0xfe, 0, &[0; 8]);
    client.frame(kind::GOAWAY, 0, 0, &[0xff; 20]);
    client.headers(1, &GET, true);
    assert_eq!(client.requests(), [(1, None)]);
    assert_eq!(client.closing, None);
}
