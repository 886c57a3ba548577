//! Tests of HTTP/1.1 on a server's connection: requests, responses and the end of the connection, without a socket.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uringcore_http::http1::{Connection, Event, LAST_REQUEST_TIME, Limits};
use uringcore_http::response_errors::{SendError, TooSlow};
use uringcore_http::tcp_output::{Closing, Piece, Source};

const SECOND: Duration = Duration::from_secs(1);

/// A connection, and a host that writes all output at once.
struct Server {
    http: Connection,
    now: Instant,
    sent: String,
    closing: Option<Closing>,
}

/// A request, from the events that the host gets.
#[derive(Debug, PartialEq, Eq, Default)]
struct Seen {
    line: String,
    /// The status with which the request was refused, if it was.
    refused: Option<u16>,
    content: String,
    ended: bool,
    aborted: bool,
}

impl Server {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        Self {
            http: Connection::new(Arc::new(limits), now),
            now,
            sent: String::new(),
            closing: None,
        }
    }

    fn receive(&mut self, data: impl AsRef<[u8]>) {
        self.http.receive(data.as_ref().into(), self.now);
        self.write();
    }

    fn write(&mut self) {
        for piece in self.http.output().pieces() {
            let bytes = match piece {
                Piece::Copied(bytes) => bytes,
                Piece::Kept(content) => content,
            };
            self.sent.push_str(&String::from_utf8_lossy(bytes));
        }
        self.http.written();
        self.closing = self.closing.max_with(self.http.take_closing());
    }

    fn take_sent(&mut self) -> String {
        std::mem::take(&mut self.sent)
    }

    fn tick(&mut self, after: Duration, unsent: usize) {
        self.now += after;
        self.http.tick(unsent, self.now);
        self.write();
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.http.poll_event()).collect()
    }

    /// Returns the next request and its serial number.
    fn request(&mut self) -> (u64, Seen) {
        let mut found = None;
        for event in self.events() {
            match (event, &mut found) {
                (
                    Event::Request {
                        serial,
                        head,
                        refusal,
                        ended,
                        ..
                    },
                    None,
                ) => {
                    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
                    let seen = Seen {
                        line: format!("{} {}", text(&head.method), text(&head.target)),
                        refused: refusal.map(|refusal| refusal.status),
                        ended,
                        ..Seen::default()
                    };
                    found = Some((serial, seen));
                }
                (Event::Body { pieces, ended }, Some((_, seen))) => {
                    seen.content += &String::from_utf8_lossy(&pieces.concat());
                    seen.ended = ended;
                }
                (Event::Aborted, Some((_, seen))) => seen.aborted = true,
                (Event::ContentRefused(refusal), Some((_, seen))) => {
                    seen.refused = Some(refusal.status);
                }
                (event, found) => panic!("{event:?} after {found:?}"),
            }
        }
        found.expect("a request")
    }

    fn respond(&mut self, serial: u64, status: &str, fields: &[(&str, &str)], content: &str) {
        self.try_respond(serial, status, fields, content, true)
            .expect("a response");
    }

    fn try_respond(
        &mut self,
        serial: u64,
        status: &str,
        fields: &[(&str, &str)],
        content: &str,
        end: bool,
    ) -> Result<(), SendError> {
        let mut lines = vec![(&b":status"[..], status.as_bytes())];
        lines.extend(
            fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let content = Bytes::copy_from_slice(content.as_bytes());
        let sent = self.http.respond(serial, &lines, content, end, self.now);
        self.write();
        sent
    }

    fn content(&mut self, serial: u64, content: &str, end: bool) -> Result<(), SendError> {
        let content = Bytes::copy_from_slice(content.as_bytes());
        let sent = self.http.send_data(serial, content, end, self.now);
        self.write();
        sent
    }

    /// Answers a request with "ok", and ends its application.
    fn ok(&mut self) -> Seen {
        let (serial, seen) = self.request();
        let status = seen.refused.unwrap_or(200).to_string();
        self.respond(serial, &status, &[], "ok");
        self.http.done(serial, self.now);
        self.write();
        seen
    }
}

trait MaxWith {
    fn max_with(self, other: Self) -> Self;
}

impl MaxWith for Option<Closing> {
    fn max_with(self, other: Self) -> Self {
        other.or(self)
    }
}

fn server() -> Server {
    Server::new(Limits::default())
}

fn seen(line: &str, content: &str) -> Seen {
    Seen {
        line: line.to_owned(),
        content: content.to_owned(),
        ended: true,
        ..Seen::default()
    }
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: b\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKS: &str = "POST /a HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\nT: u\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const OK_CLOSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

#[test]
fn requests_are_served_one_after_the_other_on_one_connection() {
    let mut server = server();
    for (request, expected) in [
        (GET, seen("GET /a", "")),
        (POST, seen("POST /a", "hello")),
        (CHUNKS, seen("POST /a", "hello")),
        (GET, seen("GET /a", "")),
    ] {
        server.receive(request);
        assert_eq!(server.ok(), expected);
        assert_eq!(server.take_sent(), OK);
    }
    assert_eq!(server.closing, None);
}

#[test]
fn requests_are_equal_byte_by_byte_and_pipelined() {
    let all = [GET, POST, CHUNKS, GET, "\r\n", CHUNKS].concat();
    let mut single = server();
    let mut found = Vec::new();
    for byte in all.as_bytes() {
        single.receive([*byte]);
        let mut serial = None;
        for event in single.events() {
            match event {
                Event::Request {
                    serial: of,
                    head,
                    ended,
                    ..
                } => {
                    found.push(seen(
                        &format!("{} /a", String::from_utf8_lossy(&head.method)),
                        "",
                    ));
                    serial = ended.then_some(of);
                }
                Event::Body { pieces, ended } => {
                    let last = found.last_mut().unwrap();
                    last.content += &String::from_utf8_lossy(&pieces.concat());
                    serial = ended.then_some(found.len() as u64);
                }
                other => panic!("{other:?}"),
            }
        }
        if let Some(serial) = serial {
            single.respond(serial, "200", &[], "ok");
            single.http.done(serial, single.now);
        }
    }
    let mut whole = server();
    whole.receive(&all);
    let pipelined: Vec<_> = (0..5).map(|_| whole.ok()).collect();
    assert_eq!(found, pipelined);
    assert_eq!(single.sent, whole.sent);
    assert_eq!(whole.sent, OK.repeat(5));
}

#[test]
fn a_pipelined_request_waits_for_the_response_before_it() {
    let mut server = server();
    server.receive([GET, POST].concat());
    let (first, request) = server.request();
    assert_eq!(request, seen("GET /a", ""));
    server
        .try_respond(first, "200", &[], "begun", false)
        .unwrap();
    assert!(server.events().is_empty());
    server.content(first, "", true).unwrap();
    let (second, request) = server.request();
    assert_eq!(request, seen("POST /a", "hello"));
    // The application of the first request is still running, and cannot write any more.
    assert_eq!(server.content(first, "late", true), Err(SendError::Gone));
    server.respond(second, "200", &[], "ok");
    assert!(server.sent.ends_with(OK));
}

#[test]
fn pipelined_input_has_a_bound() {
    let mut server = server();
    server.receive(GET);
    let (serial, _) = server.request();
    let piece = GET.repeat(100);
    let mut received = 0;
    while server.http.wants_input() {
        server.receive(&piece);
        received += piece.len();
    }
    assert!(
        (64 << 10..64 << 10 | 4096).contains(&received),
        "{received}"
    );
    server.respond(serial, "200", &[], "ok");
    while received > 0 {
        server.ok();
        received -= GET.len();
    }
    assert!(server.http.wants_input());
    assert!(server.events().is_empty());
}

#[test]
fn a_request_waits_while_the_client_does_not_read() {
    let mut server = server();
    server.receive(GET);
    let (serial, _) = server.request();
    server.http.set_writable(false, server.now);
    server.respond(serial, "204", &[], "");
    server.http.done(serial, server.now);
    server.receive([GET, &POST[..40]].concat());
    server.tick(60 * SECOND, 1);
    assert!(server.events().is_empty());
    // The connection is not read without end.
    while server.http.wants_input() {
        server.receive(GET.repeat(100));
    }
    assert!(server.http.held_bytes() < 2 * (64 << 10));
    server.http.set_writable(true, server.now);
    assert_eq!(server.ok(), seen("GET /a", ""));
    assert_eq!(server.closing, None);
}

#[test]
fn a_request_waits_while_too_many_applications_of_answered_ones_run() {
    let mut server = Server::new(Limits {
        running_applications: 2,
        ..Limits::default()
    });
    server.receive(GET.repeat(3));
    for serial in 1..=2 {
        assert_eq!(server.request().0, serial);
        server.respond(serial, "200", &[], "ok");
    }
    assert!(server.events().is_empty());
    server.http.done(1, server.now);
    assert_eq!(server.request().0, 3);
}

#[test]
fn malformed_requests_are_refused_and_end_the_connection() {
    let host = "GET / HTTP/1.1\r\nHost: a\r\n";
    let post = "POST / HTTP/1.1\r\nHost: a\r\n";
    // The modules `header_section_parser`, `message_body_length` and `chunked_decoder` test all cases. Here a
    // connection gets one case of each kind.
    for (input, status) in [
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n".to_owned(), 400),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        (
            "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            400,
        ),
        ("\x16\x03\x01\x02\x00\x01".to_owned(), 400),
        (" GET".to_owned(), 400),
        ("\0".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (format!("{host}X: 1\r\n 2\r\n\r\n"), 400),
        (format!("{host}Content-Length : 5\r\n\r\n"), 400),
        (
            format!("{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (
            format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (
            format!("{post}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
            400,
        ),
        (
            format!("{post}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
            400,
        ),
        (format!("{post}Content-Length: 5, 5\r\n\r\nhello"), 400),
        (format!("{post}Content-Length: +5\r\n\r\nhello"), 400),
        (format!("{post}Content-Length: -1\r\n\r\n"), 400),
        (format!("{post}Content-Length: 0x5\r\n\r\nhello"), 400),
        (
            format!("{post}Transfer-Encoding: chunked, gzip\r\n\r\n"),
            400,
        ),
        (format!("{post}Transfer-Encoding: gzip\r\n\r\n"), 501),
        (format!("{post}Transfer-Encoding: xchunked\r\n\r\n"), 501),
        (
            format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400,
        ),
        (
            format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"),
            400,
        ),
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            400,
        ),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(70_000)), 414),
        (format!("{host}X: {}", "a".repeat(70_000)), 431),
        (format!("{host}{}\r\n", "X: a\r\n".repeat(256)), 431),
    ] {
        let shown = &input[..input.len().min(100)];
        let whole = {
            let mut server = server();
            server.receive(&input);
            server.receive(GET);
            let seen = server.ok();
            assert_eq!(seen.refused, Some(status), "{shown:?}");
            assert!(server.sent.contains("connection: close\r\n"), "{shown:?}");
            assert_eq!(server.closing, Some(Closing::Sending), "{shown:?}");
            // Bytes behind the refused message are not read as a request.
            server.receive(GET);
            assert!(server.events().is_empty(), "{shown:?}");
            server.sent
        };
        let mut single = server();
        for byte in input.as_bytes() {
            if !single.http.has_events() {
                single.receive([*byte]);
            }
        }
        assert_eq!(single.ok().refused, Some(status), "byte by byte: {shown:?}");
        assert_eq!(single.sent, whole, "byte by byte: {shown:?}");
    }
}

#[test]
fn malformed_content_is_refused_or_ends_the_response() {
    for content in [
        "g\r\n",
        "5\r\nhello!\r\n",
        "5 \r\nhello\r\n",
        "5\nhello\r\n",
        "0\r\nA : b\r\n\r\n",
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut early = server();
        early.receive(format!("{head}{content}{GET}"));
        let (serial, seen) = early.request();
        assert_eq!(
            (seen.refused, seen.ended),
            (Some(400), false),
            "{content:?}"
        );
        early.respond(serial, "400", &[], "ok");
        assert!(early.sent.contains("connection: close\r\n"));
        assert_eq!(early.closing, Some(Closing::Sending));
        // The response has begun, so no other response can be sent.
        let mut late = server();
        late.receive(head);
        let (serial, _) = late.request();
        late.try_respond(serial, "200", &[], "part", false).unwrap();
        late.receive(content);
        assert!(matches!(
            late.events().pop(),
            Some(Event::ContentRefused(_))
        ));
        late.http.abandon(serial, late.now);
        late.write();
        assert_eq!(late.closing, Some(Closing::Sending));
        assert!(!late.sent.contains("0\r\n\r\n"));
    }
}

#[test]
fn the_rest_of_a_large_piece_does_not_keep_the_piece() {
    let mut server = server();
    let content = "a".repeat(40_000);
    server.receive(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n{content}GET / HTTP/1.1\r\nHo"
    ));
    let mut events = server.events();
    let Some(Event::Body { pieces, .. }) = events.pop() else {
        panic!("no content: {events:?}");
    };
    drop(events);
    let [piece] = &pieces[..] else {
        panic!("{} pieces", pieces.len());
    };
    assert!(piece.len() == 40_000 && piece.is_unique());
    server.respond(1, "200", &[], "");
    server.receive("st: a\r\n\r\n");
    assert_eq!(server.request().1, seen("GET /", ""));
}

#[test]
fn a_body_ends_by_its_length_and_the_next_request_follows() {
    let mut server = server();
    // The content looks like a request.
    server.receive(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{GET}{GET}",
        GET.len()
    ));
    assert_eq!(server.ok().content, GET);
    assert_eq!(server.ok(), seen("GET /a", ""));
}

#[test]
fn the_framing_of_a_response_fits_its_request_and_status() {
    let get = |version: &str, more: &str| format!("GET / HTTP/{version}\r\nHost: a\r\n{more}\r\n");
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let length: &[(&str, &str)] = &[("content-length", "2")];
    for (request, status, fields, end, expected) in [
        (get("1.1", ""), "200", length, true, OK),
        (get("1.1", ""), "200", length, false, OK),
        (get("1.1", ""), "200", &[][..], true, OK),
        (
            get("1.1", ""),
            "200",
            &[],
            false,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        (get("1.0", ""), "200", &[], true, OK_CLOSE),
        (
            get("1.0", ""),
            "200",
            &[],
            false,
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok",
        ),
        (
            get("1.0", "Connection: keep-alive\r\n"),
            "200",
            &[],
            true,
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nok",
        ),
        (
            get("1.0", "Connection: keep-alive\r\n"),
            "200",
            &[],
            false,
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok",
        ),
        (
            get("1.1", "Connection: close\r\n"),
            "200",
            &[],
            true,
            OK_CLOSE,
        ),
        (
            get("1.1", ""),
            "200",
            &[("connection", "close"), ("content-length", "2")],
            true,
            OK_CLOSE,
        ),
        (
            get("1.1", ""),
            "200",
            &[
                ("connection", "keep-alive"),
                ("transfer-encoding", "chunked"),
            ],
            true,
            OK,
        ),
        // These responses have no content, even if the application sends some.
        (
            head.to_owned(),
            "200",
            length,
            true,
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
        ),
        (
            head.to_owned(),
            "200",
            &[],
            false,
            "HTTP/1.1 200 OK\r\n\r\n",
        ),
        (
            get("1.1", ""),
            "204",
            length,
            true,
            "HTTP/1.1 204 No Content\r\n\r\n",
        ),
        (
            get("1.1", ""),
            "304",
            length,
            true,
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n",
        ),
        (
            get("1.1", ""),
            "304",
            &[],
            false,
            "HTTP/1.1 304 Not Modified\r\n\r\n",
        ),
        // For the client the method is not HEAD, and for the application it is.
        (
            "head / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "200",
            length,
            true,
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        let mut server = server();
        server.receive(&request);
        let (serial, _) = server.request();
        server
            .try_respond(serial, status, fields, "ok", end)
            .unwrap();
        if !end {
            server.content(serial, "", true).unwrap();
        }
        assert_eq!(server.sent, expected, "{request:?}");
        let closes = expected.contains("connection: close");
        assert_eq!(server.closing.is_some(), closes, "{request:?}");
        server.receive(GET);
        assert_eq!(server.events().len(), usize::from(!closes), "{request:?}");
    }
}

#[test]
fn large_content_is_passed_on_without_a_copy_and_chunks_have_their_sizes() {
    let mut server = server();
    server.receive(GET);
    let (serial, _) = server.request();
    let content = Bytes::from(vec![b'x'; 100_000]);
    let fields = [(&b":status"[..], &b"200"[..])];
    server
        .http
        .respond(serial, &fields, content.clone(), false, server.now)
        .unwrap();
    let kept = server.http.output().pieces().find_map(|piece| match piece {
        Piece::Kept(kept) => Some(kept.as_ptr()),
        Piece::Copied(_) => None,
    });
    assert_eq!(kept, Some(content.as_ptr()));
    server
        .http
        .send_data(serial, Bytes::from_static(b"end"), true, server.now)
        .unwrap();
    server.write();
    let mut expected = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    write!(
        expected,
        "186a0\r\n{}\r\n3\r\nend\r\n0\r\n\r\n",
        "x".repeat(100_000)
    )
    .unwrap();
    assert_eq!(server.sent, expected);
}

#[test]
fn trailers_follow_chunks_and_are_left_out_elsewhere() {
    let trailers = [(&b"grpc-status"[..], &b"0"[..])];
    for (fields, expected) in [
        (&[][..], "2\r\nok\r\n0\r\ngrpc-status: 0\r\n\r\n"),
        (&[("content-length", "2")], "\r\n\r\nok"),
    ] {
        let mut server = server();
        server.receive(GET);
        let (serial, _) = server.request();
        server
            .try_respond(serial, "200", fields, "ok", false)
            .unwrap();
        server
            .http
            .send_headers(serial, &trailers, true, server.now)
            .unwrap();
        server.write();
        assert!(server.sent.ends_with(expected), "{}", server.sent);
        assert_eq!(server.closing, None);
    }
}

#[test]
fn an_interim_response_precedes_the_final_one_but_not_for_http_1_0() {
    for (version, expected) in [
        ("1.1", "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n"),
        ("1.0", ""),
    ] {
        let mut server = server();
        server.receive(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n"));
        let (serial, _) = server.request();
        let fields = [(&b":status"[..], &b"103"[..]), (b"link", b"<a>")];
        server
            .http
            .send_headers(serial, &fields, false, server.now)
            .unwrap();
        server.write();
        assert_eq!(server.take_sent(), expected);
        server.respond(serial, "200", &[], "ok");
        let late = server.http.send_headers(serial, &fields, false, server.now);
        assert_eq!(late, Err(SendError::Gone));
    }
}

#[test]
fn an_applications_mistake_sends_nothing() {
    let mut server = server();
    server.receive(GET);
    let (serial, _) = server.request();
    for (status, fields) in [
        ("200", &[("a", "b\r\nc: d")][..]),
        ("200", &[("a\r\nb", "c")]),
        ("200", &[("content-length", "x")]),
        ("200", &[("content-length", "2"), ("content-length", "2")]),
        ("20", &[]),
        ("101", &[]),
    ] {
        let sent = server.try_respond(serial, status, fields, "ok", true);
        assert!(matches!(sent, Err(SendError::Invalid(_))), "{fields:?}");
        assert_eq!(server.sent, "");
    }
    // The host can still send a response of its own.
    server.respond(serial, "500", &[], "ok");
    assert!(
        server
            .sent
            .starts_with("HTTP/1.1 500 Internal Server Error\r\n")
    );
}

#[test]
fn content_has_the_length_that_was_announced() {
    let mut server = server();
    server.receive(GET);
    let (serial, _) = server.request();
    server
        .try_respond(serial, "200", &[("content-length", "5")], "hel", false)
        .unwrap();
    assert!(matches!(
        server.content(serial, "lo!", true),
        Err(SendError::Invalid(_))
    ));
    assert!(matches!(
        server.content(serial, "l", true),
        Err(SendError::Invalid(_))
    ));
    server.http.abandon(serial, server.now);
    server.write();
    assert_eq!(server.closing, Some(Closing::Gracefully));
}

#[test]
fn a_client_that_waits_for_100_gets_it_once_or_the_connection_ends() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let interim = [(&b":status"[..], &b"100"[..])];
    let mut server = server();
    server.receive(post);
    assert!(matches!(
        server.events()[..],
        [Event::Request {
            expects_continue: true,
            ended: false,
            ..
        }]
    ));
    server
        .http
        .send_headers(1, &interim, false, server.now)
        .unwrap();
    server.write();
    assert_eq!(server.take_sent(), "HTTP/1.1 100 Continue\r\n\r\n");
    server.receive("hello");
    server.events();
    server.respond(1, "200", &[], "ok");
    assert_eq!(server.take_sent(), OK);
    // The client may send its content now or never, so the position of the next request is unknown.
    server.receive(post);
    server.respond(2, "413", &[], "ok");
    assert!(server.sent.contains("connection: close\r\n"));
    assert_eq!(server.closing, Some(Closing::Sending));
}

#[test]
fn the_rest_of_a_request_that_was_answered_early_is_dropped() {
    let mut server = server();
    server.receive("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    let (serial, _) = server.request();
    server.respond(serial, "200", &[], "ok");
    assert_eq!(server.take_sent(), OK);
    server.receive(format!("12345{GET}"));
    assert_eq!(server.ok(), seen("GET /a", ""));
    assert_eq!(server.closing, None);
}

#[test]
fn a_long_rest_ends_the_connection_instead() {
    // The length of the content is known, so the response announces the end of the connection.
    let mut known = server();
    known.receive("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\nhello");
    let (serial, _) = known.request();
    known.respond(serial, "200", &[], "ok");
    assert_eq!(known.sent, OK_CLOSE);
    assert_eq!(known.closing, Some(Closing::Sending));
    // The length of chunked content is not known, so the end of the connection is not announced.
    let mut chunks = server();
    chunks.receive("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (serial, _) = chunks.request();
    chunks.respond(serial, "200", &[], "ok");
    assert_eq!(chunks.sent, OK);
    let chunk = format!("2710\r\n{}\r\n", "x".repeat(10_000));
    let mut count = 0;
    while chunks.closing.is_none() {
        chunks.receive(&chunk);
        count += 1;
    }
    assert_eq!((count, chunks.closing), (27, Some(Closing::Sending)));
}

#[test]
fn a_lingering_connection_drops_a_bounded_number_of_bytes_for_a_while() {
    let ends = |act: &dyn Fn(&mut Server)| {
        let mut server = server();
        server.receive("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
        let (serial, _) = server.request();
        server.respond(serial, "200", &[], "ok");
        assert_eq!(server.closing.take(), Some(Closing::Sending));
        act(&mut server);
        assert!(server.events().is_empty());
        server.closing
    };
    assert_eq!(ends(&|server| server.receive("x")), None);
    let ticks = |seconds: &[u32], unsent: usize| {
        ends(&|server| {
            seconds
                .iter()
                .for_each(|&second| server.tick(second * SECOND, unsent))
        })
    };
    assert_eq!(ticks(&[1, 5], 0), None);
    assert_eq!(ticks(&[1, 60], 1), None);
    let closes = Some(Closing::Gracefully);
    assert_eq!(ticks(&[1, 5, 1], 0), closes);
    assert_eq!(
        ends(&|server| (0..11).for_each(|_| server.receive("x".repeat(100_000)))),
        closes
    );
    assert_eq!(
        ends(&|server| {
            server.http.end();
            server.write();
        }),
        closes
    );
}

#[test]
fn a_client_that_goes_aborts_its_request() {
    for (input, is_aborted) in [
        (GET, true),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel",
            true,
        ),
    ] {
        let mut server = server();
        server.receive(input);
        server.events();
        server.http.end();
        server.write();
        assert_eq!(server.events(), [Event::Aborted]);
        assert_eq!(
            (is_aborted, server.closing),
            (true, Some(Closing::Gracefully))
        );
        assert_eq!(
            server.try_respond(1, "200", &[], "ok", true),
            Err(SendError::Gone)
        );
        server.http.end();
        assert!(server.events().is_empty());
    }
    for input in ["", "GET / HT", GET] {
        let mut server = server();
        server.receive(input);
        if input == GET {
            server.ok();
        }
        server.http.end();
        server.write();
        assert!(server.events().is_empty());
        assert_eq!(server.closing, Some(Closing::Gracefully));
    }
}

#[test]
fn a_websocket_gets_the_stream_if_the_application_accepts() {
    let handshake = "GET /w HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut server = server();
    server.receive(format!("{handshake}early"));
    let events = server.events();
    assert!(matches!(&events[0], Event::Request { head, ended: false, .. } if head.is_websocket));
    assert!(
        matches!(&events[1], Event::Body { pieces, ended: false } if pieces.concat() == b"early")
    );
    server
        .try_respond(1, "200", &[("sec-websocket-protocol", "chat")], "", false)
        .unwrap();
    assert_eq!(
        server.take_sent(),
        "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-protocol: chat\r\nupgrade: websocket\r\n\
         connection: Upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    );
    server.content(1, "frames", false).unwrap();
    assert_eq!(server.take_sent(), "frames");
    server.receive("more");
    assert!(
        matches!(&server.events()[..], [Event::Body { pieces, .. }] if pieces.concat() == b"more")
    );
    server.content(1, "close", true).unwrap();
    assert_eq!(
        (server.take_sent().as_str(), server.closing),
        ("close", Some(Closing::Sending))
    );
    // If the application refuses, the connection ends, because the client may have sent frames behind its request.
    let mut refused = self::server();
    refused.receive(handshake);
    refused.respond(1, "403", &[], "no");
    assert!(
        refused
            .sent
            .starts_with("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n")
    );
    assert_eq!(refused.closing, Some(Closing::Sending));
    let mut old = self::server();
    old.receive(handshake.replace("13", "8"));
    old.ok();
    assert!(old.sent.starts_with(
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    ));
    assert!(old.sent.contains("connection: close, upgrade\r\n"));
    // If WebSocket is off, the field `upgrade` is ignored (RFC 9110 section 7.8).
    let mut without = Server::new(Limits {
        websockets: false,
        ..Limits::default()
    });
    without.receive(handshake);
    assert_eq!(without.ok(), seen("GET /w", ""));
    assert_eq!(without.sent, OK);
}

#[test]
fn a_stopping_server_answers_the_current_request_and_closes() {
    let mut busy = server();
    busy.receive(GET);
    let (serial, _) = busy.request();
    busy.http.stop(busy.now);
    busy.write();
    assert_eq!(busy.closing, None);
    busy.respond(serial, "200", &[], "ok");
    assert_eq!(
        (busy.sent.as_str(), busy.closing),
        (OK_CLOSE, Some(Closing::Gracefully))
    );
    // A response that had begun before the stop did not announce the end, so the client has sent another request.
    let mut begun = server();
    begun.receive(GET.repeat(2));
    let (serial, _) = begun.request();
    begun.try_respond(serial, "200", &[], "ok", false).unwrap();
    begun.http.stop(begun.now);
    begun.content(serial, "", true).unwrap();
    assert_eq!(begun.closing, None);
    begun.http.done(serial, begun.now);
    begun.take_sent();
    begun.ok();
    assert_eq!(begun.take_sent(), OK_CLOSE);
    assert!(begun.closing.is_some() && begun.events().is_empty());
}

#[test]
fn a_stopping_server_closes_idle_connections() {
    let mut idle = server();
    idle.now += LAST_REQUEST_TIME;
    idle.http.stop(idle.now);
    idle.write();
    assert_eq!(idle.closing, Some(Closing::Gracefully));
    // A client that has just been served may be sending its next request.
    let mut recent = server();
    recent.receive(GET);
    recent.ok();
    assert_eq!(recent.take_sent(), OK);
    recent.http.stop(recent.now);
    recent.tick(LAST_REQUEST_TIME / 2, 0);
    assert_eq!(recent.closing, None);
    let mut other = server();
    other.http.stop(other.now);
    other.receive(GET);
    other.ok();
    assert_eq!(
        (other.take_sent().as_str(), other.closing),
        (OK_CLOSE, Some(Closing::Gracefully))
    );
    recent.tick(LAST_REQUEST_TIME / 2, 0);
    assert_eq!(recent.closing, Some(Closing::Gracefully));
    // An incomplete header section has that time as well, from the stop on.
    let mut slow = server();
    slow.receive("GET /");
    slow.tick(LAST_REQUEST_TIME, 0);
    slow.http.stop(slow.now);
    slow.tick(LAST_REQUEST_TIME / 2, 0);
    assert_eq!(slow.closing, None);
    slow.tick(LAST_REQUEST_TIME / 2, 0);
    assert_eq!(slow.closing, Some(Closing::Gracefully));
}

#[test]
fn a_stop_drops_no_request_behind_an_application_that_still_runs() {
    let mut server = Server::new(Limits {
        running_applications: 1,
        ..Limits::default()
    });
    server.receive(GET.repeat(2));
    let (serial, _) = server.request();
    server.respond(serial, "200", &[], "ok");
    server.http.stop(server.now);
    server.tick(2 * LAST_REQUEST_TIME, 0);
    assert_eq!(server.closing, None);
    server.http.done(serial, server.now);
    server.ok();
    assert_eq!(server.closing, Some(Closing::Gracefully));
}

#[test]
fn a_stop_that_is_announced_ends_no_idle_connection() {
    let mut server = server();
    server.http.announce_stop();
    server.tick(LAST_REQUEST_TIME, 0);
    assert_eq!(server.closing, None);
    server.receive(GET);
    server.ok();
    assert_eq!(
        (server.take_sent().as_str(), server.closing),
        (OK_CLOSE, Some(Closing::Gracefully))
    );
}

#[test]
fn the_last_of_the_allowed_requests_closes() {
    let mut server = Server::new(Limits {
        requests: Some(2),
        ..Limits::default()
    });
    server.receive(GET.repeat(3));
    server.ok();
    assert_eq!(server.take_sent(), OK);
    server.ok();
    assert_eq!(server.take_sent(), OK_CLOSE);
    assert!(server.events().is_empty() && server.closing.is_some());
}

#[test]
fn a_head_has_one_time_from_its_first_byte_on() {
    let mut server = server();
    server.receive("GET /");
    for byte in b"abcdefghij" {
        server.tick(SECOND, 0);
        server.receive([*byte]);
        assert!(server.events().is_empty());
    }
    server.tick(SECOND, 0);
    let seen = server.ok();
    assert_eq!(seen.refused, Some(408));
    assert!(server.sent.starts_with("HTTP/1.1 408 Request Timeout\r\n"));
    assert!(server.closing.is_some());
}

#[test]
fn a_connection_without_a_request_is_closed_in_time() {
    let mut new = server();
    new.tick(10 * SECOND, 0);
    assert_eq!(new.closing, None);
    new.tick(SECOND, 0);
    assert_eq!(
        (new.closing, new.sent.as_str()),
        (Some(Closing::Gracefully), "")
    );
    let mut used = server();
    used.receive(GET);
    used.ok();
    used.take_sent();
    // The client is still reading its response, so the connection is not idle.
    used.tick(60 * SECOND, 1);
    used.tick(5 * SECOND, 0);
    assert_eq!(used.closing, None);
    used.tick(SECOND, 0);
    assert_eq!(
        (used.closing, used.sent.as_str()),
        (Some(Closing::Gracefully), "")
    );
    // The time of the application does not count.
    let mut slow = server();
    slow.receive(GET);
    slow.tick(1000 * SECOND, 0);
    assert_eq!((slow.events().len(), slow.closing), (1, None));
}

#[test]
fn content_that_the_application_waits_for_has_a_time() {
    let mut server = server();
    server.receive("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    let (serial, _) = server.request();
    server.tick(1000 * SECOND, 0);
    assert!(server.events().is_empty());
    server.http.wait_for_body(serial, server.now);
    server.tick(60 * SECOND, 0);
    assert!(server.events().is_empty());
    server.tick(SECOND, 0);
    assert!(
        matches!(server.events()[..], [Event::ContentRefused(refusal)] if refusal.status == 408)
    );
    server.respond(serial, "408", &[], "ok");
    assert!(server.sent.contains("connection: close\r\n"));
}

#[test]
fn a_response_that_its_client_does_not_read_is_abandoned() {
    let mut server = server();
    server.receive(GET);
    let (serial, _) = server.request();
    server
        .try_respond(serial, "200", &[], &"x".repeat(1000), false)
        .unwrap();
    server.tick(SECOND, 500);
    server.tick(600 * SECOND, 500);
    assert!(server.events().is_empty());
    server.tick(SECOND, 500);
    assert_eq!(
        server.events(),
        [Event::TooSlow(TooSlow::Nothing), Event::Aborted]
    );
    assert_eq!(server.closing, Some(Closing::AtOnce));
}

#[test]
fn paused_content_waits_in_the_socket() {
    let mut server = server();
    server.receive("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nh");
    let (serial, _) = server.request();
    assert!(server.http.wants_input());
    server.http.set_paused(serial, true);
    assert!(!server.http.wants_input());
    server.http.set_paused(serial, false);
    assert!(server.http.wants_input());
    server.http.set_paused(serial, true);
    // After the response, the rest of the content is read and dropped.
    server.respond(serial, "200", &[], "ok");
    assert!(server.http.wants_input());
    server.receive(format!("ello{GET}"));
    assert_eq!(server.ok(), seen("GET /a", ""));
}
