//! The target of a request (RFC 9114 section 4.3.1): the grammar of the pseudo-header fields, and that `host` must
//! equal `:authority`.

use crate::common::*;
use uringcore_h3::{Code, LocalError, Output, QueuedConnection, Role, Settings};

type Fields<'a> = Vec<(&'a str, &'a str)>;

/// A GET whose fields are replaced by `changes` with equal names (`None` removes the field), and followed by `extra`.
fn request<'a>(changes: &[(&'a str, Option<&'a str>)], extra: &[(&'a str, &'a str)]) -> Fields<'a> {
    let mut fields: Fields<'a> = GET.to_vec();
    for &(name, value) in changes {
        fields.retain(|field| field.0 != name);
        if let Some(value) = value {
            fields.insert(0, (name, value));
        }
    }
    fields.extend_from_slice(extra);
    fields
}

fn with<'a>(name: &'a str, value: &'a str) -> Fields<'a> {
    request(&[(name, Some(value))], &[])
}

fn server() -> QueuedConnection {
    let mut server = QueuedConnection::new(Role::Server, Settings::default(), SERVER_UNI);
    outputs(&mut server);
    server
}

/// True if the request can be sent and is accepted. Sender and receiver must agree.
fn is_accepted(fields: &[(&str, &str)]) -> bool {
    let mut server = server();
    feed_stream(&mut server, 0, &headers_frame(fields), true, Feed::Whole);
    let seen = events(&mut server).len();
    let code = Code::H3_MESSAGE_ERROR;
    let reset = outputs(&mut server).contains(&Output::ResetStream { stream_id: 0, code });
    assert_eq!((seen, reset), if reset { (0, true) } else { (1, false) });

    let mut strict = self::server();
    strict.set_strict(true);
    feed_stream(&mut strict, 0, &headers_frame(fields), true, Feed::Whole);
    assert_eq!(close_code(&mut strict), reset.then_some(code));

    let mut client = QueuedConnection::new(Role::Client, Settings::default(), CLIENT_UNI);
    outputs(&mut client);
    let sent = client.send_headers(0, fields, true);
    match &sent {
        Ok(()) => assert!(!reset, "{fields:?}"),
        Err(LocalError::InvalidField(_)) => assert!(reset, "{fields:?}: {sent:?}"),
        Err(error) => panic!("{fields:?}: {error:?}"),
    }
    !reset
}

fn expect(accepted: bool, requests: impl IntoIterator<Item = (&'static str, Fields<'static>)>) {
    for (what, fields) in requests {
        assert_eq!(is_accepted(&fields), accepted, "{what}: {fields:?}");
    }
}

#[test]
fn section_4_3_1_host_is_given_once_and_equals_authority() {
    let authority = [(":authority", Some("good"))];
    let without = [(":authority", None)];
    expect(
        true,
        [
            ("equal", request(&authority, &[("host", "good")])),
            ("host alone", request(&without, &[("host", "good:8443")])),
            ("authority alone", request(&authority, &[])),
        ],
    );
    let repeated = |fields| request(&authority, fields);
    expect(
        false,
        [
            ("differs", repeated(&[("host", "evil")])),
            ("differs in case", repeated(&[("host", "Good")])),
            (
                "first differs",
                repeated(&[("host", "evil"), ("host", "good")]),
            ),
            (
                "last differs",
                repeated(&[("host", "good"), ("host", "evil")]),
            ),
            (
                "twice the same",
                repeated(&[("host", "good"), ("host", "good")]),
            ),
            ("empty host beside :authority", repeated(&[("host", "")])),
            (
                "two without :authority",
                request(&without, &[("host", "a"), ("host", "b")]),
            ),
            (
                "twice without :authority",
                request(&without, &[("host", "a"), ("host", "a")]),
            ),
            ("empty host alone", request(&without, &[("host", "")])),
            (
                "empty :authority beside host",
                request(&[(":authority", Some(""))], &[("host", "a")]),
            ),
            ("userinfo in host", request(&without, &[("host", "a@b")])),
            (
                "CONNECT with another host",
                vec![
                    (":method", "CONNECT"),
                    (":authority", "a:1"),
                    ("host", "b:1"),
                ],
            ),
        ],
    );
}

#[test]
fn section_4_3_1_only_schemes_with_a_mandatory_authority_need_one() {
    let bare = |scheme| request(&[(":authority", None), (":scheme", Some(scheme))], &[]);
    for scheme in ["http", "https", "HTTPS", "ws", "wss"] {
        assert!(!is_accepted(&bare(scheme)), "{scheme}");
    }
    for scheme in ["urn", "coap+tcp", "x-1.0"] {
        assert!(is_accepted(&bare(scheme)), "{scheme}");
    }
    let other = |path, authority| {
        request(
            &[
                (":scheme", Some("other")),
                (":path", Some(path)),
                (":authority", Some(authority)),
            ],
            &[],
        )
    };
    expect(
        true,
        [
            ("rootless path", other("a:b", "h")),
            ("empty path", other("", "h")),
            ("empty authority", other("/etc", "")),
            ("userinfo", other("/", "user@h")),
        ],
    );
    expect(
        false,
        [
            ("space in path", other("a b", "h")),
            ("space in authority", other("/", "h h")),
        ],
    );
}

#[test]
fn section_4_3_1_the_method_is_a_token() {
    for method in ["GET", "get", "M-SEARCH", "!#$%&'*+-.^_`|~09"] {
        assert!(is_accepted(&with(":method", method)), "{method}");
    }
    for method in [
        "",
        "GE T",
        "GET\t",
        "GET/",
        "G\u{e9}T",
        "GET\u{7f}",
        "(GET)",
        "GET,HEAD",
        "\"",
    ] {
        assert!(!is_accepted(&with(":method", method)), "{method:?}");
    }
}

#[test]
fn section_4_3_1_the_path_is_absolute_and_printable() {
    for path in [
        "/",
        "/a?b=c/d?e",
        "//a",
        "/%20",
        "/a;b=c:@",
        "/\u{e9}",
        "/*",
    ] {
        assert!(is_accepted(&with(":path", path)), "{path}");
    }
    for path in [
        "",
        "a",
        "*",
        "**",
        "?a",
        "https://b/",
        "/a b",
        "/a\tb",
        "/a\u{1}b",
        "/a\u{7f}b",
        "/a#b",
        " /",
    ] {
        assert!(!is_accepted(&with(":path", path)), "{path:?}");
    }
    let options = |path| request(&[(":method", Some("OPTIONS")), (":path", Some(path))], &[]);
    assert!(is_accepted(&options("*")));
    assert!(is_accepted(&options("/a")));
    assert!(!is_accepted(&options("**")));
    assert!(!is_accepted(&options("*/")));
}

#[test]
fn section_4_3_1_the_scheme_is_one_of_uris() {
    for scheme in [
        "", "1http", "+a", "ht tp", "https:", "http/", "h\u{e9}", "-",
    ] {
        assert!(!is_accepted(&with(":scheme", scheme)), "{scheme:?}");
    }
    assert!(is_accepted(&with(":scheme", "Http")));
}

#[test]
fn section_4_3_1_the_authority_is_host_and_port_without_userinfo() {
    for authority in [
        "a",
        "a.example:8443",
        "[2001:db8::1]:443",
        "[fe80::1%25eth0]",
        "x_y",
        "127.0.0.1",
    ] {
        assert!(is_accepted(&with(":authority", authority)), "{authority}");
    }
    for authority in [
        "user@a",
        "user:secret@a",
        "@",
        "a b",
        "a/",
        "a/b",
        "a?b",
        "a#b",
        "a\\b",
        "a\t",
        "a\u{1}",
        "a\u{7f}",
        "\u{e9}.example",
        "a\"",
        "<a>",
    ] {
        assert!(
            !is_accepted(&with(":authority", authority)),
            "{authority:?}"
        );
        let target = format!("{authority}:1");
        let connect = [(":method", "CONNECT"), (":authority", &target)];
        assert!(!is_accepted(&connect), "CONNECT {authority:?}");
    }
    assert!(is_accepted(&[
        (":method", "CONNECT"),
        (":authority", "a.example:443")
    ]));
}
