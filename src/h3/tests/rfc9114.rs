//! Reactions to violations of RFC 9114, each test named after its section. The grammar of a request's target (section
//! 4.3.1) is in `request_targets.rs`, correct behaviour in `requests_and_responses.rs` and `push.rs`.

use crate::common::{violations::*, *};
use bytes::Bytes;
use uringcore_h3::Role::{Client, Server};
use uringcore_h3::settings::id;
use uringcore_h3::{Code, Event, HeadersKind, LocalError, Output, PeerSettings, Settings, varint};

const UNEXPECTED: Code = Code::H3_FRAME_UNEXPECTED;
const FRAME_ERROR: Code = Code::H3_FRAME_ERROR;
const ID_ERROR: Code = Code::H3_ID_ERROR;
const GENERAL: Code = Code::H3_GENERAL_PROTOCOL_ERROR;
const MESSAGE_ERROR: Code = Code::H3_MESSAGE_ERROR;

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
const CANCEL_PUSH: u64 = 0x3;
const SETTINGS: u64 = 0x4;
const PUSH_PROMISE: u64 = 0x5;
const GOAWAY: u64 = 0x7;
const MAX_PUSH_ID: u64 = 0xd;
/// The types of HTTP/2's PRIORITY, PING, WINDOW_UPDATE and CONTINUATION frames.
const RESERVED: [u64; 4] = [0x2, 0x6, 0x8, 0x9];
const GREASE: u64 = 0x1f * 5 + 0x21;

fn get() -> Vec<u8> {
    headers_frame(&GET)
}

fn after_get(more: &[Vec<u8>]) -> Vec<u8> {
    [&[get()], more].concat().concat()
}

fn trailers() -> Vec<u8> {
    headers_frame(&[("x-t", "1")])
}

// Section 4.1: HTTP message framing -------------------------------------------------------------------

#[test]
fn section_4_1_data_before_headers_is_unexpected() {
    closes(Server, 0, &frame(DATA, b"x"), UNEXPECTED);
    closes(Client, 0, &frame(DATA, b"x"), UNEXPECTED);
    let interim = headers_frame(&[(":status", "103")]);
    let data = [interim, frame(DATA, b"x")].concat();
    closes(Client, 0, &data, UNEXPECTED);
}

#[test]
fn section_4_1_nothing_follows_trailers() {
    for more in [frame(DATA, b"x"), trailers()] {
        closes(Server, 0, &after_get(&[trailers(), more]), UNEXPECTED);
    }
}

#[test]
fn section_4_1_a_request_without_a_header_section_ends_only_itself() {
    let incomplete = Code::H3_REQUEST_INCOMPLETE;
    refuses_at_end(Server, b"", incomplete);
    refuses_at_end(Server, &frame(GREASE, b"abc"), incomplete);
}

#[test]
fn section_4_1_a_response_has_a_final_header_section() {
    refuses_at_end(Client, b"", MESSAGE_ERROR);
    let interim = headers_frame(&[(":status", "103")]);
    refuses_at_end(Client, &interim, MESSAGE_ERROR);
}

#[test]
fn section_4_1_late_data_on_a_refused_stream_is_not_a_new_request() {
    let mut server = ready(Server, Settings::default());
    server.handle_stream_data(0, headers_frame(&[(":method", "GET")]).into(), false);
    assert_eq!(server.open_requests(), 0);
    server.handle_stream_data(0, frame(DATA, b"late").into(), false);
    server.handle_stream_data(0, frame(DATA, b"and last").into(), true);
    assert!(!server.is_closed());
    assert_eq!(events(&mut server), []);
}

#[test]
fn section_4_1_a_server_may_stop_reading_a_request_and_answer_it() {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(0, &GET, false).unwrap();
    pair.pump();
    events(&mut pair.server);
    pair.server
        .send_headers(0, &[(":status", "200")], false)
        .unwrap();
    pair.server.stop_receiving(0, Code::H3_NO_ERROR.0);
    pair.server.stop_receiving(0, Code::H3_NO_ERROR.0);
    let stops = outputs(&mut pair.server)
        .into_iter()
        .filter(|output| matches!(output, Output::StopSending { .. }))
        .collect::<Vec<_>>();
    let code = Code::H3_NO_ERROR;
    assert_eq!(stops, [Output::StopSending { stream_id: 0, code }]);
    // Data that was in flight is ignored.
    pair.server
        .handle_stream_data(0, frame(DATA, b"late").into(), false);
    assert_eq!(events(&mut pair.server), []);
    pair.server
        .send_data(0, Bytes::from_static(b"x"), true)
        .unwrap();
    assert_eq!(pair.server.open_requests(), 0);
    pair.server
        .handle_stream_data(0, frame(DATA, b"later").into(), true);
    assert_eq!(
        (events(&mut pair.server), pair.server.open_requests()),
        (vec![], 0)
    );
}

// Section 4.1.2: malformed requests and responses -----------------------------------------------------

fn post(length: &'static str) -> Vec<u8> {
    headers_frame(&[&GET[..], &[("content-length", length)]].concat())
}

fn content(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| frame(DATA, part)).collect()
}

#[test]
fn section_4_1_2_less_content_than_content_length_is_malformed() {
    refuses_at_end(Server, &post("5"), MESSAGE_ERROR);
    let three = [post("5"), content(&[b"abc"])].concat();
    refuses_at_end(Server, &three, MESSAGE_ERROR);
    let with_trailers = [three, trailers()].concat();
    refuses_at_end(Server, &with_trailers, MESSAGE_ERROR);
}

#[test]
fn section_4_1_2_more_content_than_content_length_is_malformed() {
    let six = [post("5"), content(&[b"abc", b"def"])].concat();
    refuses(Server, &six, MESSAGE_ERROR);
    let one = [post("0"), content(&[b"a"])].concat();
    refuses(Server, &one, MESSAGE_ERROR);
    // The length in the frame's header exceeds the content-length, so the frame is rejected at once.
    let endless = [post("5"), varints(&[DATA, varint::MAX])].concat();
    refuses(Server, &endless, MESSAGE_ERROR);
}

#[test]
fn section_4_1_2_content_length_counts_all_data_frames() {
    let mut server = ready(Server, Settings::default());
    let request = [post("5"), content(&[b"abc", b"de"])].concat();
    feed_stream(&mut server, 0, &request, true, Feed::ByteByByte);
    assert_eq!(events(&mut server).len(), 2);
    assert!(!server.is_closed());
}

#[test]
fn section_4_1_2_a_bad_content_length_is_malformed() {
    for length in ["1x", "+1", "", "99999999999999999999", "-1", "1,1"] {
        malformed_with(&[("content-length", length)]);
    }
    malformed_with(&[("content-length", "1"), ("content-length", "2")]);
    malformed_with(&[("content-length", "1"), ("content-length", "1")]);
}

#[test]
fn section_4_1_2_a_response_without_content_has_none() {
    let no_content = [headers_frame(&[(":status", "204")]), frame(DATA, b"x")].concat();
    refuses_at_end(Client, &no_content, MESSAGE_ERROR);
}

#[test]
fn section_4_1_2_a_response_pseudo_field_in_a_request_is_malformed() {
    malformed_with(&[(":status", "200")]);
}

#[test]
fn section_4_1_2_a_request_pseudo_field_in_a_response_is_malformed() {
    malformed_response(&[(":status", "200"), (":path", "/")]);
}

// Section 4.2: HTTP fields ----------------------------------------------------------------------------

#[test]
fn section_4_2_a_field_name_with_upper_case_is_malformed() {
    malformed_with(&[("X-Upper", "1")]);
    malformed_response(&[(":status", "200"), ("Server", "x")]);
    malformed_without_and_with(":path", (":Path", "/"));
}

#[test]
fn section_4_2_connection_specific_fields_are_malformed() {
    for field in [
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
    ] {
        malformed_with(&[field]);
        malformed_response(&[(":status", "200"), field]);
    }
}

#[test]
fn section_4_2_te_is_trailers_in_requests_and_malformed_otherwise() {
    malformed_with(&[("te", "gzip")]);
    malformed_with(&[("te", "trailers, gzip")]);
    malformed_response(&[(":status", "200"), ("te", "trailers")]);
}

#[test]
fn section_4_2_2_a_section_above_our_limit_ends_its_request_only() {
    let load = Code::H3_EXCESSIVE_LOAD;
    let mut frame_header = varints(&[HEADERS, 65_537]);
    refuses(Server, &frame_header, load);
    frame_header.extend_from_slice(b"the rest would follow");
    refuses(Server, &frame_header, load);
    let many = [&GET[..], &vec![("x", ""); 2000]].concat();
    refuses_at_end(Server, &headers_frame(&many), load);
    let response = [&[(":status", "200")][..], &vec![("x", ""); 2000]].concat();
    refuses(Client, &headers_frame(&response), load);
}

#[test]
fn section_4_2_2_the_peers_limit_is_kept() {
    let small = Settings {
        max_field_section_size: 300,
        ..Settings::default()
    };
    let mut pair = Pair::with_settings(Feed::Whole, Settings::default(), small);
    let long = "x".repeat(300);
    let list = [&GET[..], &[("x-long", &long)]].concat();
    assert!(matches!(
        pair.client.send_headers(0, &list, true),
        Err(LocalError::FieldSectionTooLarge { max: 300, .. })
    ));
    pair.client.send_headers(0, &GET, true).unwrap();
}

#[test]
fn section_4_2_2_a_peer_with_a_limit_of_0_gets_no_field_section() {
    let none = Settings {
        max_field_section_size: 0,
        ..Settings::default()
    };
    let mut pair = Pair::with_settings(Feed::Whole, none, Settings::default());
    pair.client.send_headers(0, &GET, true).unwrap();
    pair.pump();
    events(&mut pair.server);
    for _ in 0..2 {
        let sent = pair.server.send_headers(0, &[(":status", "200")], true);
        let error = LocalError::FieldSectionTooLarge { size: 42, max: 0 };
        assert_eq!(sent, Err(error));
    }
    assert!(matches!(
        pair.server.send_data(0, Bytes::from_static(b"x"), true),
        Err(LocalError::FrameUnexpected(_))
    ));
    // The failed call has sent nothing, and has not changed the stream's state. So the request can still be abandoned.
    assert_eq!(outputs(&mut pair.server), []);
    assert_eq!(pair.server.open_requests(), 1);
    pair.server.cancel_request(0, Code::H3_INTERNAL_ERROR.0);
    assert_eq!(pair.server.open_requests(), 0);
}

// Section 4.3: HTTP control data ----------------------------------------------------------------------

#[test]
fn section_4_3_a_pseudo_field_after_regular_fields_is_malformed() {
    malformed_request(&[&[("x", "y")][..], &GET].concat());
    malformed_response(&[("x", "y"), (":status", "200")]);
}

#[test]
fn section_4_3_an_unknown_pseudo_field_is_malformed() {
    malformed_with(&[(":unknown", "x")]);
    malformed_response(&[(":status", "200"), (":unknown", "x")]);
}

#[test]
fn section_4_3_a_repeated_pseudo_field_is_malformed() {
    for field in GET {
        malformed_with(&[field]);
    }
    malformed_response(&[(":status", "200"), (":status", "200")]);
}

#[test]
fn section_4_3_a_pseudo_field_in_trailers_is_malformed() {
    for field in [(":path", "/"), (":status", "200"), (":unknown", "")] {
        let request = after_get(&[headers_frame(&[field])]);
        refuses_at_end(Server, &request, MESSAGE_ERROR);
    }
}

#[test]
fn section_4_3_1_a_missing_pseudo_field_is_malformed() {
    for (name, _) in GET {
        malformed_without(name);
    }
}

#[test]
fn section_4_3_1_an_empty_path_or_authority_is_malformed() {
    malformed_without_and_with(":path", (":path", ""));
    malformed_without_and_with(":authority", (":authority", ""));
}

#[test]
fn section_4_3_2_the_status_is_a_number_of_three_digits() {
    malformed_response(&[("x", "y")]);
    for status in ["", "20", "2000", "20x", "099", "+20", "101"] {
        malformed_response(&[(":status", status)]);
    }
}

/// Checks that a GET request is malformed without the field `name`, and also with `field` in place of that field.
#[track_caller]
fn malformed_without_and_with(name: &str, field: (&str, &str)) {
    let mut fields = GET.to_vec();
    fields.retain(|field| field.0 != name);
    malformed_request(&[&fields[..], &[field]].concat());
}

// Section 4.4: the CONNECT method ---------------------------------------------------------------------

#[test]
fn section_4_4_a_connect_request_has_an_authority_and_neither_scheme_nor_path() {
    let connect = |extra: &[(&'static str, &'static str)]| {
        let mut fields = vec![(":method", "CONNECT"), (":authority", "a:1")];
        fields.extend_from_slice(extra);
        fields
    };
    malformed_request(&connect(&[(":path", "/")]));
    malformed_request(&connect(&[(":scheme", "https")]));
    malformed_request(&connect(&[(":scheme", "https"), (":path", "/")]));
    malformed_request(&[(":method", "CONNECT")]);
    malformed_request(&[(":method", "CONNECT"), (":authority", "")]);
}

#[test]
fn section_4_4_the_authority_of_a_connect_request_is_a_host_and_a_port() {
    let connect = |authority| headers_frame(&[(":method", "CONNECT"), (":authority", authority)]);
    for authority in ["a", "a:", ":1", "a:0", "a:65536", "a:x", "[::1]", "a:-1"] {
        refuses(Server, &connect(authority), MESSAGE_ERROR);
    }
    for authority in ["a:1", "a.example:65535", "[2001:db8::1]:443"] {
        let mut server = ready(Server, Settings::default());
        server.handle_stream_data(0, connect(authority).into(), false);
        assert_eq!(events(&mut server).len(), 1, "{authority}");
    }
}

#[test]
fn section_4_4_only_data_follows_in_a_tunnel() {
    let connect = headers_frame(&[(":method", "CONNECT"), (":authority", "a:1")]);
    closes(Server, 0, &[connect, trailers()].concat(), UNEXPECTED);

    let promise = frame(PUSH_PROMISE, &[&[0][..], &literal_section(&GET)].concat());
    for more in [trailers(), promise] {
        let pushable = Settings {
            max_push_id: Some(8),
            ..Settings::default()
        };
        let mut client = ready(Client, pushable);
        client
            .send_headers(0, &[(":method", "CONNECT"), (":authority", "a:1")], false)
            .unwrap();
        let response = [headers_frame(&[(":status", "200")]), more].concat();
        client.handle_stream_data(0, response.into(), false);
        assert_eq!(close_code(&mut client), Some(UNEXPECTED));
    }
}

#[test]
fn section_4_4_a_refused_connect_has_an_ordinary_response_and_a_request_without_trailers() {
    let connect = [(":method", "CONNECT"), (":authority", "a:1")];
    for status in ["302", "404", "500"] {
        for feed in FEEDS {
            let mut pair = Pair::new(feed);
            pair.client.send_headers(0, &connect, false).unwrap();
            pair.pump();
            pair.server
                .send_headers(0, &[(":status", status)], false)
                .unwrap();
            pair.pump();
            // The fuzz target `h3_pair` found this input: trailers of a CONNECT request closed the connection at the
            // server.
            let sent = pair.client.send_headers(0, &[("x", "y")], true);
            assert!(matches!(sent, Err(LocalError::FrameUnexpected(_))));
            pair.client.send_data(0, Bytes::new(), true).unwrap();
            let content = Bytes::from_static(b"no");
            pair.server.send_data(0, content, false).unwrap();
            pair.server.send_headers(0, &[("x", "y")], true).unwrap();
            pair.pump();
            assert!(matches!(
                events(&mut pair.client)[..],
                [
                    Event::Headers {
                        kind: HeadersKind::Response,
                        ..
                    },
                    Event::Data { .. },
                    Event::Headers {
                        kind: HeadersKind::Trailers,
                        fin: true,
                        ..
                    },
                ]
            ));
        }
    }
}

#[test]
fn section_4_4_trailers_of_a_refused_connect_request_are_accepted() {
    let connect = headers_frame(&[(":method", "CONNECT"), (":authority", "a:1")]);
    for (status, is_taken) in [("200", false), ("404", true)] {
        let mut server = ready(Server, Settings::default());
        server.handle_stream_data(0, connect.clone().into(), false);
        server
            .send_headers(0, &[(":status", status)], false)
            .unwrap();
        server.handle_stream_data(0, trailers().into(), true);
        assert_eq!(close_code(&mut server).is_none(), is_taken, "{status}");
    }
}

// Section 4.6: server push ----------------------------------------------------------------------------

fn pushable() -> Settings {
    Settings {
        max_push_id: Some(8),
        ..Settings::default()
    }
}

/// Expects that a server's data on a stream closes a client that allows push IDs up to 8.
#[track_caller]
fn push_closes(stream_id: u64, data: &[u8], fin: bool, code: Code) {
    for feed in FEEDS {
        let mut client = ready(Client, pushable());
        client.send_headers(0, &GET, true).unwrap();
        outputs(&mut client);
        feed_stream(&mut client, stream_id, data, fin, feed);
        assert_eq!(close_code(&mut client), Some(code), "{feed:?}");
    }
}

fn promise(push_id: u64) -> Vec<u8> {
    let payload = [varints(&[push_id]), literal_section(&GET)].concat();
    frame(PUSH_PROMISE, &payload)
}

fn push_stream(push_id: u64, rest: &[u8]) -> Vec<u8> {
    [&varints(&[0x1, push_id])[..], rest].concat()
}

#[test]
fn section_4_6_push_ids_end_at_max_push_id() {
    push_closes(0, &promise(9), false, ID_ERROR);
    push_closes(15, &push_stream(9, b""), false, ID_ERROR);
    // Without MAX_PUSH_ID no push ID is allowed.
    closes(Client, 0, &frame(PUSH_PROMISE, b"\x00"), ID_ERROR);
    closes(Client, 15, b"\x01\x00", ID_ERROR);
}

#[test]
fn section_4_6_a_push_id_has_one_stream() {
    let mut client = ready(Client, pushable());
    client.handle_stream_data(15, push_stream(2, b"").into(), false);
    client.handle_stream_data(19, push_stream(2, b"").into(), false);
    assert_eq!(close_code(&mut client), Some(ID_ERROR));
}

#[test]
fn section_4_6_a_push_is_promised_again_with_the_same_fields_only() {
    for (again, code) in [
        (&GET[..], None),
        (&[&GET[..], &[("x", "y")]].concat(), Some(GENERAL)),
        (&[&GET[..3], &[(":path", "/other")]].concat(), Some(GENERAL)),
    ] {
        let mut client = ready(Client, pushable());
        for stream_id in [0, 4] {
            client.send_headers(stream_id, &GET, true).unwrap();
        }
        outputs(&mut client);
        client.handle_stream_data(0, promise(0).into(), false);
        let payload = [varints(&[0]), literal_section(again)].concat();
        client.handle_stream_data(4, frame(PUSH_PROMISE, &payload).into(), false);
        assert_eq!(close_code(&mut client), code, "{again:?}");
        let reported = events(&mut client).len();
        assert_eq!(reported, if code.is_none() { 2 } else { 1 });
    }
}

// Section 5.2: connection shutdown --------------------------------------------------------------------

#[test]
fn section_5_2_goaway_to_a_client_names_a_request_stream() {
    for id in [1, 2, 3, 5] {
        control_frames_close(Client, &[frame(GOAWAY, &[id])], ID_ERROR);
    }
}

#[test]
fn section_5_2_the_id_of_goaway_does_not_go_up() {
    let frames = [frame(GOAWAY, b"\x04"), frame(GOAWAY, b"\x08")];
    control_frames_close(Client, &frames, ID_ERROR);
    control_frames_close(Server, &frames, ID_ERROR);
}

// Section 6: streams ----------------------------------------------------------------------------------

#[test]
fn section_6_1_a_server_opens_no_bidirectional_stream() {
    closes(Client, 1, b"\x01", Code::H3_STREAM_CREATION_ERROR);
}

#[test]
fn section_6_2_a_stream_may_end_before_its_type_is_known() {
    let mut server = ready(Server, Settings::default());
    server.handle_stream_data(14, Bytes::new(), true);
    server.handle_stream_data(18, Bytes::from_static(b"\x40"), true);
    server.handle_stream_reset(22, 0);
    assert_eq!(outputs(&mut server), []);
}

#[test]
fn section_6_2_1_the_control_stream_begins_with_settings() {
    let missing = Code::H3_MISSING_SETTINGS;
    control_closes(Server, &[frame(GOAWAY, b"\x00")], missing);
    control_closes(Client, &[frame(GOAWAY, b"\x00")], missing);
    control_closes(Server, &[frame(MAX_PUSH_ID, b"\x00")], missing);
    control_closes(Server, &[frame(GREASE, b"")], missing);
    control_closes(Server, &[frame(DATA, b"")], missing);
}

#[test]
fn section_6_2_1_there_is_one_control_stream() {
    closes(Server, 14, b"\x00", Code::H3_STREAM_CREATION_ERROR);
    closes(Client, 15, b"\x00", Code::H3_STREAM_CREATION_ERROR);
}

#[test]
fn section_6_2_1_the_control_stream_is_never_closed() {
    let closed = Code::H3_CLOSED_CRITICAL_STREAM;
    closes_at_end(Server, 2, b"", closed);
    closes_at_end(Client, 3, b"", closed);
    let mut server = ready(Server, Settings::default());
    server.handle_stream_reset(2, 0);
    assert_eq!(close_code(&mut server), Some(closed));
    // The peer must not stop this side's control stream either, nor its QPACK streams (RFC 9204 section 4.2).
    for stream_id in SERVER_UNI {
        let mut server = ready(Server, Settings::default());
        server.handle_stop_sending(stream_id, 0);
        assert_eq!(close_code(&mut server), Some(closed));
    }
}

#[test]
fn section_6_2_2_a_client_opens_no_push_stream() {
    closes(Server, 14, b"\x01\x00", Code::H3_STREAM_CREATION_ERROR);
}

#[test]
fn section_6_2_2_a_push_stream_does_not_end_inside_its_header() {
    push_closes(15, &[0x1], true, FRAME_ERROR);
}

// Section 7: HTTP framing layer -----------------------------------------------------------------------

#[test]
fn section_7_1_a_stream_does_not_end_inside_a_frame() {
    let request = get();
    let cut = &request[..request.len() - 1];
    closes_at_end(Server, 0, cut, FRAME_ERROR);
    for cut in [&b"\x00\x05abc"[..], b"\x00", b"\x21\x05ab", b"\x40"] {
        closes_at_end(Server, 0, &after_get(&[cut.to_vec()]), FRAME_ERROR);
    }
}

#[test]
fn section_7_1_a_frame_has_the_length_of_its_fields() {
    for frame_type in [GOAWAY, MAX_PUSH_ID, CANCEL_PUSH] {
        for payload in [&b""[..], b"\x40", b"\x00\x00", &[0; 100]] {
            let broken = frame(frame_type, payload);
            control_frames_close(Server, &[broken], FRAME_ERROR);
        }
    }
    push_closes(0, &frame(PUSH_PROMISE, b""), false, FRAME_ERROR);
    push_closes(0, &frame(PUSH_PROMISE, b"\x40"), false, FRAME_ERROR);
}

#[test]
fn section_7_2_1_and_7_2_2_data_and_headers_do_not_belong_on_the_control_stream() {
    for frame_type in [DATA, HEADERS] {
        control_frames_close(Server, &[frame(frame_type, b"x")], UNEXPECTED);
        control_frames_close(Client, &[frame(frame_type, b"x")], UNEXPECTED);
    }
}

#[test]
fn section_7_2_3_to_7_2_7_control_frames_do_not_belong_on_request_streams() {
    for frame_type in [CANCEL_PUSH, SETTINGS, GOAWAY, MAX_PUSH_ID] {
        closes(Server, 0, &frame(frame_type, b""), UNEXPECTED);
        let behind = after_get(&[frame(frame_type, b"\x00")]);
        closes(Server, 0, &behind, UNEXPECTED);
        closes(Client, 0, &frame(frame_type, b"\x00"), UNEXPECTED);
        let pushed = push_stream(0, &frame(frame_type, b"\x00"));
        push_closes(15, &pushed, false, UNEXPECTED);
    }
}

#[test]
fn section_7_2_3_cancel_push_names_an_allowed_push() {
    let cancel = |id| [frame(CANCEL_PUSH, &varints(&[id]))];
    control_frames_close(Server, &cancel(0), ID_ERROR);
    control_frames_close(Client, &cancel(0), ID_ERROR);
    push_closes(3, &cancel(9).concat(), false, ID_ERROR);
}

#[test]
fn section_7_2_4_settings_come_once() {
    for role in [Server, Client] {
        let again = frame(SETTINGS, b"");
        control_frames_close(role, &[again], UNEXPECTED);
    }
}

fn settings_close(payload: &[u8], code: Code) {
    for role in [Server, Client] {
        control_closes(role, &[frame(SETTINGS, payload)], code);
    }
}

#[test]
fn section_7_2_4_settings_end_with_a_whole_setting() {
    settings_close(&varints(&[0x6]), FRAME_ERROR);
    settings_close(&[&varints(&[0x6])[..], &[0x80]].concat(), FRAME_ERROR);
}

#[test]
fn section_7_2_4_a_setting_is_given_once() {
    settings_close(&varints(&[0x6, 1, 0x6, 1]), Code::H3_SETTINGS_ERROR);
    let unknown = varints(&[GREASE, 1, 0x6, 1, GREASE, 2]);
    settings_close(&unknown, Code::H3_SETTINGS_ERROR);
}

#[test]
fn section_7_2_4_1_the_settings_of_http_2_are_reserved() {
    for identifier in [0x0, 0x2, 0x3, 0x4, 0x5] {
        let payload = varints(&[identifier, 0]);
        settings_close(&payload, Code::H3_SETTINGS_ERROR);
    }
}

#[test]
fn section_7_2_4_1_any_value_of_an_integer_setting_is_accepted() {
    let payload = varints(&[
        0x1,
        varint::MAX,
        0x6,
        varint::MAX,
        0x7,
        varint::MAX,
        0x21,
        0,
    ]);
    for role in [Server, Client] {
        let mut connection = fresh(role, Settings::default());
        let control = [&[0][..], &frame(SETTINGS, &payload)].concat();
        connection.handle_stream_data(peer_control(role), control.into(), false);
        assert_eq!(events(&mut connection), [Event::SettingsReceived]);
        let settings = connection.received_settings().map(PeerSettings::pairs);
        assert_eq!(settings.map(<[_]>::len), Some(4));
    }
}

#[test]
fn section_7_2_5_push_promise_goes_to_clients_on_request_streams() {
    closes(Server, 0, &frame(PUSH_PROMISE, b"\x00"), UNEXPECTED);
    control_frames_close(Client, &[frame(PUSH_PROMISE, b"x")], UNEXPECTED);
    control_frames_close(Server, &[frame(PUSH_PROMISE, b"x")], UNEXPECTED);
    push_closes(15, &push_stream(0, &promise(1)), false, UNEXPECTED);
}

#[test]
fn section_7_2_7_a_server_sends_no_max_push_id() {
    control_frames_close(Client, &[frame(MAX_PUSH_ID, b"\x01")], UNEXPECTED);
}

#[test]
fn section_7_2_7_max_push_id_does_not_go_down() {
    let frames = [frame(MAX_PUSH_ID, b"\x08"), frame(MAX_PUSH_ID, b"\x07")];
    control_frames_close(Server, &frames, ID_ERROR);
}

#[test]
fn section_7_2_8_the_frames_of_http_2_are_reserved() {
    for frame_type in RESERVED {
        control_frames_close(Server, &[frame(frame_type, b"")], UNEXPECTED);
        control_frames_close(Client, &[frame(frame_type, b"")], UNEXPECTED);
        closes(Server, 0, &frame(frame_type, b""), UNEXPECTED);
        closes(
            Server,
            0,
            &after_get(&[frame(frame_type, b"\x00")]),
            UNEXPECTED,
        );
        closes(Client, 0, &frame(frame_type, b""), UNEXPECTED);
    }
}

// Section 9: extensions -------------------------------------------------------------------------------

#[test]
fn section_9_unknown_frames_settings_and_streams_are_ignored() {
    for feed in FEEDS {
        let settings = Settings {
            extra: vec![(0x21, 7), (0x1f * 9 + 0x21, 1 << 40)],
            ..Settings::default()
        };
        let mut pair = Pair::with_settings(feed, settings.clone(), settings);
        assert_eq!(pair.server.received_settings().unwrap().get(0x21), Some(7));
        let grease = frame(GREASE, &[0xaa; 300]);
        let request = [
            &grease[..],
            &get(),
            &frame(0x21, b""),
            &frame(DATA, b"abc"),
            &grease,
        ]
        .concat();
        feed_stream(&mut pair.server, 0, &request, true, feed);
        let unknown = [&varints(&[0x1f * 3 + 0x21])[..], b"whatever"].concat();
        feed_stream(&mut pair.server, 14, &unknown, false, feed);
        feed_stream(&mut pair.server, 2, &grease, false, feed);
        feed_stream(&mut pair.server, 2, &frame(0x40, b""), false, feed);
        let expected = [
            Event::Headers {
                stream_id: 0,
                fields: fields(&GET),
                kind: HeadersKind::Request,
                fin: false,
            },
            Event::Data {
                stream_id: 0,
                data: Bytes::from_static(b"abc"),
                fin: true,
            },
        ];
        assert_eq!(events(&mut pair.server), expected);
        assert_eq!(outputs(&mut pair.server), []);
    }
}

// Section 10.3: intermediary-encapsulation attacks ----------------------------------------------------

#[test]
fn section_10_3_forbidden_bytes_in_a_field_name_are_malformed() {
    for name in ["", "x y", "x:y", "x\u{e9}", "x\n", "\"x\""] {
        malformed_with(&[(name, "1")]);
    }
}

#[test]
fn section_10_3_forbidden_bytes_in_a_field_value_are_malformed() {
    for value in ["a\0b", "a\rb", "a\nb", " a", "a\t"] {
        malformed_with(&[("x", value)]);
    }
    malformed_without_and_with(":path", (":path", "/\nx"));
}

// RFC 9297 and WebTransport, which are extensions of RFC 9114 -----------------------------------------

#[test]
fn rfc_9297_section_2_1_a_datagram_begins_with_a_quarter_stream_id() {
    for bad in [&b""[..], b"\x40", b"\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let settings = Settings {
            h3_datagram: true,
            ..Settings::default()
        };
        let mut server = ready(Server, settings);
        server.handle_datagram(Bytes::copy_from_slice(bad));
        assert_eq!(close_code(&mut server), Some(Code::H3_DATAGRAM_ERROR));
    }
}

#[test]
fn rfc_9297_section_2_1_a_datagram_names_a_possible_request_stream() {
    for (quarter, code) in [(0, None), (2, None), (3, Some(ID_ERROR))] {
        let settings = Settings {
            h3_datagram: true,
            max_requests: Some(2),
            ..Settings::default()
        };
        let mut server = ready(Server, settings);
        server.handle_stream_data(0, get().into(), false);
        server.handle_datagram(varints(&[quarter]).into());
        assert_eq!(close_code(&mut server), code, "{quarter}");
    }
}

#[test]
fn rfc_9297_section_2_1_1_the_setting_is_a_flag_and_needs_datagram_frames() {
    settings_close(&varints(&[id::H3_DATAGRAM, 2]), Code::H3_SETTINGS_ERROR);
    for (enabled, code) in [(false, Some(Code::H3_SETTINGS_ERROR)), (true, None)] {
        let mut server = fresh(Server, Settings::default());
        server.set_peer_quic_datagrams(enabled);
        let settings = frame(SETTINGS, &varints(&[id::H3_DATAGRAM, 1]));
        server.handle_stream_data(2, [&[0][..], &settings].concat().into(), false);
        assert_eq!(close_code(&mut server), code);
    }
}

#[test]
fn webtransport_needs_datagrams_and_its_setting_is_a_flag() {
    let alone = varints(&[id::ENABLE_WEBTRANSPORT, 1]);
    settings_close(&alone, Code::H3_SETTINGS_ERROR);
    let two = varints(&[id::H3_DATAGRAM, 1, id::ENABLE_WEBTRANSPORT, 2]);
    settings_close(&two, Code::H3_SETTINGS_ERROR);
}

#[test]
fn webtransport_streams_begin_at_once_and_belong_to_a_request() {
    let settings = Settings {
        webtransport: true,
        h3_datagram: true,
        ..Settings::default()
    };
    let late = [frame(0x21, b""), varints(&[0x41, 0])].concat();
    for (role, stream_id, data, code) in [
        (Server, 0, late, FRAME_ERROR),
        (Server, 0, varints(&[0x41, 1]), ID_ERROR),
        (Server, 14, varints(&[0x54, 2]), ID_ERROR),
        (Client, 1, get(), Code::H3_STREAM_CREATION_ERROR),
    ] {
        for feed in FEEDS {
            let mut connection = ready(role, settings.clone());
            feed_stream(&mut connection, stream_id, &data, false, feed);
            assert_eq!(close_code(&mut connection), Some(code), "{data:?}");
        }
    }
}
