//! Extended CONNECT (RFC 9220, which refers to RFC 8441). Each test is named after its section of RFC 9220.

use crate::common::{violations::*, *};
use uringcore_h3::Role::{Client, Server};
use uringcore_h3::settings::id;
use uringcore_h3::{Code, Event, HeadersKind, QueuedConnection, Settings};

const CHAT: [(&str, &str); 5] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/chat"),
];

fn enabled() -> Settings {
    Settings {
        enable_connect_protocol: true,
        ..Settings::default()
    }
}

/// True if a server that supports extended CONNECT accepts the request; otherwise the request is malformed.
#[track_caller]
fn is_accepted(fields: &[(&str, &str)]) -> bool {
    let mut server: QueuedConnection = ready(Server, enabled());
    server.set_strict(true);
    server.handle_stream_data(0, headers_frame(fields).into(), false);
    let is_accepted = events(&mut server).len() == 1;
    let code = (!is_accepted).then_some(Code::H3_MESSAGE_ERROR);
    assert_eq!(close_code(&mut server), code);
    is_accepted
}

fn chat_without(name: &str) -> Vec<(&'static str, &'static str)> {
    CHAT.into_iter().filter(|field| field.0 != name).collect()
}

#[test]
fn section_3_extended_connect_is_announced_and_passed_on() {
    let mut pair = Pair::with_settings(Feed::Whole, Settings::default(), enabled());
    let settings = pair.client.received_settings().unwrap();
    assert!(settings.is_enabled(id::ENABLE_CONNECT_PROTOCOL));
    let request = [&CHAT[..], &[("sec-websocket-version", "13")]].concat();
    pair.client.send_headers(0, &request, false).unwrap();
    pair.pump();
    let headers = Event::Headers {
        stream_id: 0,
        fields: fields(&request),
        kind: HeadersKind::Request,
        fin: false,
    };
    assert_eq!(events(&mut pair.server), [headers]);
}

#[test]
fn section_3_the_protocol_is_malformed_where_it_was_not_announced() {
    malformed_request(&CHAT);
    assert!(is_accepted(&CHAT));
}

#[test]
fn section_3_the_protocol_is_only_for_connect() {
    malformed_with(&[(":protocol", "websocket")]);
    let get = [&GET[..], &[(":protocol", "websocket")]].concat();
    assert!(!is_accepted(&get));
}

#[test]
fn section_3_an_extended_connect_has_scheme_path_and_authority() {
    for name in [":scheme", ":path", ":authority"] {
        assert!(!is_accepted(&chat_without(name)), "{name}");
    }
    let host = [&chat_without(":authority")[..], &[("host", "a")]].concat();
    assert!(!is_accepted(&host));
}

#[test]
fn section_3_the_protocol_is_an_upgrade_token() {
    let connect = |protocol| {
        let mut fields = chat_without(":protocol");
        fields.insert(1, (":protocol", protocol));
        fields
    };
    for protocol in ["websocket", "connect-udp", "HTTP/2.0"] {
        assert!(is_accepted(&connect(protocol)), "{protocol}");
    }
    for protocol in ["", "web socket", "a/", "/a", "a/b/c", "a,b"] {
        assert!(!is_accepted(&connect(protocol)), "{protocol:?}");
    }
}

#[test]
fn section_3_the_setting_is_0_or_1() {
    for role in [Server, Client] {
        for (value, code) in [(0, None), (1, None), (2, Some(Code::H3_SETTINGS_ERROR))] {
            let mut connection = fresh(role, Settings::default());
            let settings = frame(0x4, &varints(&[id::ENABLE_CONNECT_PROTOCOL, value]));
            let control = [&[0][..], &settings].concat();
            connection.handle_stream_data(peer_control(role), control.into(), false);
            assert_eq!(close_code(&mut connection), code, "{value}");
        }
    }
}

#[test]
fn section_3_the_setting_is_not_revoked() {
    let settings = |value| frame(0x4, &varints(&[id::ENABLE_CONNECT_PROTOCOL, value]));
    // A setting could only be changed by a second SETTINGS frame, which HTTP/3 does not allow.
    let frames = [settings(1), settings(0)];
    control_closes(Client, &frames, Code::H3_FRAME_UNEXPECTED);
    let twice = varints(&[
        id::ENABLE_CONNECT_PROTOCOL,
        1,
        id::ENABLE_CONNECT_PROTOCOL,
        0,
    ]);
    control_closes(Client, &[frame(0x4, &twice)], Code::H3_SETTINGS_ERROR);
}

#[test]
fn section_3_only_data_follows_in_an_extended_connect() {
    let mut server = ready(Server, enabled());
    let frames = [headers_frame(&CHAT), frame(0x0, b"x")].concat();
    server.handle_stream_data(0, frames.into(), false);
    assert_eq!(events(&mut server).len(), 2);
    server.handle_stream_data(0, headers_frame(&[("x-t", "1")]).into(), false);
    assert_eq!(close_code(&mut server), Some(Code::H3_FRAME_UNEXPECTED));
}
