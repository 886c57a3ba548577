//! The HTTP/3 of a server's QUIC connection, tested with a client made of `h3` and `quic`.

use std::time::Duration;

use bytes::Bytes;
use uringcore_h3::{self as h3, Code, HeadersKind, Output, Role};
use uringcore_http::http3::{Connection, Event, Limits};
use uringcore_http::response_errors::SendError;
use uringcore_quic::{self as quic, CloseKind, ConnectionKey};

use crate::h3_common::headers_frame;
use crate::support::{Pair, with_transport};

mod allocations;
mod client_disconnects;
mod critical_stream_credit;
mod http_datagrams;
mod memory_budget;
mod minimum_read_rate;
mod priority;

type Lines<'a> = &'a [(&'a str, &'a str)];

const GET: Lines<'_> = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.org"),
    (":path", "/a?b"),
];
const POST: Lines<'_> = &[
    (":method", "POST"),
    (":scheme", "https"),
    (":authority", "example.org"),
    (":path", "/"),
];
const OK: &[(&[u8], &[u8])] = &[(b":status", b"200"), (b"server", b"ours")];

/// A server with HTTP/3, and a client.
struct Site {
    pair: Pair,
    client: ConnectionKey,
    server: ConnectionKey,
    browser: h3::QueuedConnection,
    http: Connection,
    /// The number of events that were handled on each side.
    seen: [usize; 2],
    reported: Vec<Event>,
    heard: Vec<h3::Event>,
}

impl Site {
    fn new(limits: Limits) -> Self {
        Self::with(limits, |_| {})
    }

    fn with(limits: Limits, transport: impl Fn(&mut quic::TransportSettings)) -> Self {
        Self::between(h3::Settings::default(), limits, transport)
    }

    fn between(
        client_says: h3::Settings,
        limits: Limits,
        transport: impl Fn(&mut quic::TransportSettings),
    ) -> Self {
        let (client, server) = with_transport(transport);
        Self::over(Pair::new(client, server), client_says, limits)
    }

    /// Makes the client and the server. The server's endpoint has the settings `endpoint`.
    fn at(endpoint: quic::EndpointSettings) -> Self {
        let (client, server) = with_transport(|_| {});
        let pair = Pair::with(client, server, endpoint);
        Self::over(pair, h3::Settings::default(), Limits::default())
    }

    fn over(mut pair: Pair, client_says: h3::Settings, limits: Limits) -> Self {
        let (client, server) = pair.establish();
        let now = pair.now;
        let quic = pair.server.endpoint.connection(server).unwrap();
        let settings = h3::Settings {
            enable_connect_protocol: true,
            h3_datagram: quic.max_datagram_size().is_some(),
            ..h3::Settings::default()
        };
        let http = Connection::new(quic, settings, limits, now);
        let browser = h3::QueuedConnection::new(Role::Client, client_says, [2, 6, 10]);
        let mut site = Self {
            pair,
            client,
            server,
            browser,
            http,
            seen: [0; 2],
            reported: Vec::new(),
            heard: Vec::new(),
        };
        site.run();
        site
    }

    /// Lets half a second pass, in which all packets arrive and are acknowledged.
    fn run(&mut self) {
        for _ in 0..10 {
            self.perform();
            self.pair.run_for(Duration::from_millis(50));
            self.handle();
        }
    }

    fn wait(&mut self, time: Duration) {
        self.pair.run_for(time);
        self.handle();
    }

    fn handle(&mut self) {
        let now = self.pair.now;
        let events: Vec<_> = self.pair.server.events[self.seen[0]..].to_vec();
        self.seen[0] += events.len();
        for (_, event) in events
            .into_iter()
            .filter(|(_, event)| event.is_about_streams())
        {
            if let Some(quic) = self.pair.server.endpoint.connection(self.server) {
                self.http.handle(quic, event, now);
            }
        }
        self.reported
            .extend(std::iter::from_fn(|| self.http.poll_event()));
        let events: Vec<_> = self.pair.client.events[self.seen[1]..].to_vec();
        self.seen[1] += events.len();
        for (_, event) in events {
            match event {
                quic::Event::StreamData {
                    stream_id,
                    data,
                    fin,
                } => self
                    .browser
                    .handle_stream_data(stream_id, data.to_vec().into(), fin),
                quic::Event::StreamReset {
                    stream_id,
                    error_code,
                } => self.browser.handle_stream_reset(stream_id, error_code),
                quic::Event::StopSending {
                    stream_id,
                    error_code,
                    ..
                } => self.browser.handle_stop_sending(stream_id, error_code),
                quic::Event::Datagram { data, .. } => self.browser.handle_datagram(data),
                _ => {}
            }
        }
        self.heard
            .extend(std::iter::from_fn(|| self.browser.poll_event()));
        self.perform();
    }

    /// Carries out the client's queued commands.
    fn perform(&mut self) {
        while let Some(output) = self.browser.poll_output() {
            let Some(quic) = self.pair.client.endpoint.connection(self.client) else {
                return;
            };
            let _ = match output {
                Output::Datagram { data } => {
                    quic.send_datagram(data).unwrap();
                    Ok(())
                }
                Output::Write {
                    stream_id,
                    data,
                    fin,
                } => quic.send_stream(stream_id, data, fin),
                Output::ResetStream { stream_id, code } => quic.reset_stream(stream_id, code.0),
                Output::StopSending { stream_id, code } => quic.stop_stream(stream_id, code.0),
                other => panic!("{other:?}"),
            };
        }
    }

    fn ask(&mut self, stream_id: u64, lines: Lines<'_>, fin: bool) {
        self.browser.send_headers(stream_id, lines, fin).unwrap();
        self.run();
    }

    fn raw(&mut self, stream_id: u64, data: &[u8], fin: bool) {
        let quic = self.pair.client.endpoint.connection(self.client).unwrap();
        let data = Bytes::copy_from_slice(data);
        quic.send_stream(stream_id, data, fin).unwrap();
        self.run();
    }

    fn command<R>(
        &mut self,
        run: impl FnOnce(&mut Connection, &mut quic::Connection, std::time::Instant) -> R,
    ) -> R {
        let now = self.pair.now;
        let quic = self.pair.server.endpoint.connection(self.server).unwrap();
        run(&mut self.http, quic, now)
    }

    fn respond(&mut self, stream_id: u64, content: &[u8], fin: bool) -> Result<(), SendError> {
        let content = Bytes::copy_from_slice(content);
        self.command(|http, quic, now| http.respond(quic, stream_id, OK, content, fin, now))
    }

    fn done(&mut self, stream_id: u64) {
        self.command(|http, _, now| http.done(stream_id, now));
    }

    fn tick(&mut self, after: Duration) {
        self.wait(after);
        self.command(|http, quic, now| http.tick(quic, now));
        self.run();
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.reported)
    }

    /// (stream, error code) for each reset of a stream by the server.
    fn resets(&self) -> Vec<(u64, u64)> {
        let reset = |event: &h3::Event| match event {
            h3::Event::Reset {
                stream_id, code, ..
            } => Some((*stream_id, *code)),
            _ => None,
        };
        self.heard.iter().filter_map(reset).collect()
    }

    fn closed_with(&self) -> Option<u64> {
        let closed = self.pair.client.closed(self.client)?;
        assert_eq!(closed.3, CloseKind::PeerApplication);
        Some(closed.0)
    }
}

fn requests(reported: &[Event]) -> Vec<u64> {
    let request = |event: &Event| match event {
        Event::Request { stream_id, .. } => Some(*stream_id),
        _ => None,
    };
    reported.iter().filter_map(request).collect()
}

fn aborted(reported: &[Event]) -> Vec<u64> {
    let aborted = |event: &Event| match event {
        Event::Aborted { stream_id } => Some(*stream_id),
        _ => None,
    };
    reported.iter().filter_map(aborted).collect()
}

#[test]
fn a_request_is_reported_without_http3s_pseudo_fields_and_answered() {
    let mut site = Site::new(Limits::default());
    let mut lines = GET.to_vec();
    lines.extend([("cookie", "a=1"), ("x-other", "x"), ("cookie", "b=2")]);
    site.ask(0, &lines, true);
    let reported = site.take_events();
    let [
        Event::Request {
            stream_id: 0,
            head,
            refusal: None,
            ended: true,
        },
    ] = &reported[..]
    else {
        panic!("{reported:?}")
    };
    assert_eq!((&*head.method, &*head.target), (&b"GET"[..], &b"/a?b"[..]));
    let fields: Vec<_> = head.fields.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert_eq!(
        fields,
        [
            (&b"host"[..], &b"example.org"[..]),
            (b"x-other", b"x"),
            (b"cookie", b"a=1; b=2"),
        ]
    );
    assert_eq!(site.http.open_requests(), 1);
    site.respond(0, b"hello", true).unwrap();
    site.done(0);
    assert!(!site.http.is_drained(), "nothing was acknowledged yet");
    site.run();
    let ours = |kind| h3::Event::Headers {
        stream_id: 0,
        fields: vec![
            (":status".into(), "200".into()),
            ("server".into(), "ours".into()),
        ],
        kind,
        fin: false,
    };
    let data = h3::Event::Data {
        stream_id: 0,
        data: "hello".into(),
        fin: true,
    };
    let settings = h3::Event::SettingsReceived;
    assert_eq!(site.heard, [settings, ours(HeadersKind::Response), data]);
    assert!(site.http.is_drained());
    assert_eq!(site.take_events(), [Event::Drained]);
}

#[test]
fn requests_that_no_application_can_handle_have_a_refusal() {
    let with = |name: &'static str, value: &'static str| {
        let line = |&(known, old)| (known, if known == name { value } else { old });
        GET.iter().map(line).collect::<Vec<_>>()
    };
    let connect = vec![(":method", "CONNECT"), (":authority", "example.org:443")];
    for (lines, status) in [
        (connect, 501),
        (with(":scheme", "ftp"), 400),
        (with(":scheme", "http"), 0),
        (with(":path", "*"), 0),
    ] {
        let mut site = Site::new(Limits::default());
        let lines: Vec<_> = match lines.contains(&(":path", "*")) {
            true => lines
                .iter()
                .map(|&(n, v)| (n, if n == ":method" { "OPTIONS" } else { v }))
                .collect(),
            false => lines,
        };
        site.ask(0, &lines, true);
        let reported = site.take_events();
        let [Event::Request { refusal, .. }] = &reported[..] else {
            panic!("{reported:?}")
        };
        assert_eq!(refusal.map_or(0, |refusal| refusal.status), status);
    }
}

#[test]
fn a_session_request_is_refused_if_webtransport_is_disabled() {
    for token in ["webtransport", "webtransport-h3"] {
        let mut site = Site::new(Limits::default());
        let mut lines = GET.to_vec();
        lines[0] = (":method", "CONNECT");
        lines.insert(1, (":protocol", token));
        site.ask(0, &lines, false);
        let reported = site.take_events();
        let [Event::Request { refusal, head, .. }] = &reported[..] else {
            panic!("{reported:?}")
        };
        assert!(head.is_webtransport);
        assert_eq!(refusal.map(|refusal| refusal.status), Some(501));
    }
}

#[test]
fn repeated_early_data_fields_become_a_single_1() {
    let mut site = Site::new(Limits::default());
    let mut lines = GET.to_vec();
    lines.extend([
        ("early-data", "0"),
        ("early-data", "1"),
        ("early-data", "x"),
    ]);
    site.ask(0, &lines, true);
    let reported = site.take_events();
    let [Event::Request { head, .. }] = &reported[..] else {
        panic!("{reported:?}")
    };
    let said = head.fields.iter().filter(|(name, _)| name == "early-data");
    assert_eq!(said.map(|(_, value)| value).collect::<Vec<_>>(), ["1"]);
    assert!(!head.is_early);
}

#[test]
fn a_too_large_header_section_is_answered_with_431() {
    let long = "x".repeat(70_000);
    for more in [vec![("x-large", &*long)], vec![("x", ""); 3_000]] {
        let mut site = Site::new(Limits::default());
        let mut lines = GET.to_vec();
        lines.extend(more);
        site.raw(0, &headers_frame(&lines), true);
        let reported = site.take_events();
        let [Event::Request { refusal, ended, .. }] = &reported[..] else {
            panic!("{reported:?}")
        };
        assert_eq!(refusal.map(|refusal| refusal.status), Some(431));
        assert!(*ended);
        // The client resets a stream in QUIC on which its HTTP/3 has sent no request.
        site.command(|http, quic, now| {
            http.send_headers(quic, 0, &[(b":status", b"431")], true, now)
        })
        .unwrap();
        site.run();
        assert!(site.pair.client.finished(site.client, 0));
        site.done(0);
        assert!(site.http.is_drained());
    }
}

#[test]
fn content_arrives_in_pieces_and_ends_once() {
    let mut site = Site::new(Limits::default());
    site.ask(0, POST, false);
    site.browser.send_data(0, "one".into(), false).unwrap();
    site.run();
    site.browser.send_data(0, "two".into(), false).unwrap();
    site.browser
        .send_headers(0, &[("x-trailer", "x")], true)
        .unwrap();
    site.run();
    let reported = site.take_events();
    let body = |pieces: &[&'static str], ended| Event::Body {
        stream_id: 0,
        pieces: pieces.iter().map(|&piece| piece.into()).collect(),
        ended,
    };
    assert_eq!(reported[1..], [body(&["one"], false), body(&["two"], true)]);
}

#[test]
fn more_requests_at_once_than_allowed_are_rejected_unprocessed() {
    let limits = Limits {
        open_requests: 2,
        ..Limits::default()
    };
    let mut site = Site::new(limits);
    for stream_id in [0, 4, 8] {
        site.ask(stream_id, GET, true);
    }
    assert_eq!(requests(&site.take_events()), [0, 4]);
    assert_eq!(site.resets(), [(8, Code::H3_REQUEST_REJECTED.0)]);
    site.respond(0, b"x", true).unwrap();
    site.done(0);
    site.ask(12, GET, true);
    assert_eq!(requests(&site.take_events()), [12]);
}

#[test]
fn the_request_limit_of_a_connection_is_reported_and_later_requests_are_refused() {
    let limits = Limits {
        requests: Some(2),
        ..Limits::default()
    };
    let mut site = Site::new(limits);
    site.ask(0, GET, true);
    assert!(!site.take_events().contains(&Event::UsedUp));
    site.ask(4, GET, true);
    assert!(site.take_events().contains(&Event::UsedUp));
    site.command(|http, quic, now| http.go_away(quic, now));
    site.run();
    assert!(site.browser.is_peer_going_away());
    // RFC 9114 section 5.2: after GOAWAY the client must not use this stream. A request that it sent before would be
    // rejected.
    assert!(site.browser.send_headers(8, GET, true).is_err());
    assert_eq!(site.http.open_requests(), 2);
}

#[test]
fn requests_that_cross_the_first_goaway_are_served() {
    let mut site = Site::new(Limits::default());
    site.ask(0, GET, true);
    site.take_events();
    // The client sends both requests before the server's GOAWAY reaches it.
    site.browser.send_headers(4, GET, true).unwrap();
    site.command(|http, quic, now| http.announce_end(quic, now));
    site.run();
    assert_eq!(requests(&site.take_events()), [4]);
    assert!(site.browser.send_headers(8, GET, true).is_err());
    site.command(|http, quic, now| http.go_away(quic, now));
    // GOAWAY is sent once, however often `announce_end` is called.
    site.command(|http, quic, now| http.announce_end(quic, now));
    site.run();
    let goaway = |event: &h3::Event| match event {
        h3::Event::GoAway { id } => Some(*id),
        _ => None,
    };
    let said: Vec<u64> = site.heard.iter().filter_map(goaway).collect();
    assert_eq!(said, [(1 << 62) - 4, 8]);
    assert_eq!(site.resets(), []);
    for stream_id in [0, 4] {
        site.respond(stream_id, b"", true).unwrap();
        site.done(stream_id);
    }
    site.run();
    assert!(site.http.is_drained());
}

#[test]
fn many_early_resets_close_the_connection() {
    let limits = Limits {
        early_resets: 3,
        early_resets_per_second: 1.0,
        ..Limits::default()
    };
    let mut site = Site::new(limits);
    for turn in 0..3 {
        let stream_id = turn * 4;
        site.ask(stream_id, GET, true);
        site.browser
            .cancel_request(stream_id, Code::H3_REQUEST_CANCELLED.0);
        site.run();
        assert_eq!(aborted(&site.take_events()), [stream_id]);
        site.done(stream_id);
    }
    assert_eq!(site.closed_with(), None);
    // The token bucket has been refilled meanwhile, but not for this number of resets.
    for turn in 3..20 {
        let stream_id = turn * 4;
        site.browser.send_headers(stream_id, GET, true).unwrap();
        site.browser
            .cancel_request(stream_id, Code::H3_REQUEST_CANCELLED.0);
    }
    site.run();
    assert_eq!(site.closed_with(), Some(Code::H3_EXCESSIVE_LOAD.0));
}

#[test]
fn applications_that_run_on_after_their_response_are_bounded_without_closing_the_connection() {
    let limits = Limits {
        open_requests: 2,
        early_resets: 1,
        early_resets_per_second: 0.001,
        ..Limits::default()
    };
    let mut site = Site::new(limits);
    for turn in 0..18 {
        // The applications send their responses and do not return.
        site.ask(turn * 4, GET, true);
        if turn < 16 {
            site.respond(turn * 4, b"x", true).unwrap();
        }
        site.run();
    }
    assert_eq!(requests(&site.take_events()).len(), 16);
    let rejected = Code::H3_REQUEST_REJECTED.0;
    assert_eq!(site.resets(), [(64, rejected), (68, rejected)]);
    assert_eq!(site.closed_with(), None);
    for turn in 0..16 {
        site.done(turn * 4);
    }
    site.ask(72, GET, true);
    assert_eq!(requests(&site.take_events()), [72]);
}

#[test]
fn a_stream_that_its_client_reads_becomes_writable_beside_unread_ones() {
    let mut site = Site::with(Limits::default(), |transport| {
        transport.max_stream_data = 20_000;
    });
    let streams: Vec<u64> = (0..40).map(|index| index * 4).collect();
    for stream_id in &streams {
        site.ask(*stream_id, GET, true);
        if *stream_id > 0 {
            let quic = site.pair.client.endpoint.connection(site.client).unwrap();
            quic.pause_stream(*stream_id);
            site.respond(*stream_id, &vec![0; 200_000], false).unwrap();
        }
    }
    // The queue of the stream is not nearly empty, and is below the limit of one stream.
    site.respond(0, &vec![0; 60_000 + 20_000], false).unwrap();
    assert!(site.command(|http, quic, now| http.is_held_up(quic, 0, now)));
    site.take_events();
    site.run();
    assert_eq!(site.take_events(), [Event::Writable { stream_id: 0 }]);
}

#[test]
fn a_connection_is_not_drained_while_a_request_is_arriving() {
    let mut site = Site::new(Limits::default());
    site.raw(0, &[1, 30, 0, 0], false);
    assert!(
        !site.http.is_drained(),
        "a GOAWAY would say that it is processed"
    );
    site.tick(Duration::from_secs(11));
    assert!(site.http.is_drained());
    assert!(site.take_events().contains(&Event::Drained));
}

#[test]
fn late_content_of_a_finished_request_does_not_delay_draining() {
    let mut site = Site::new(Limits::default());
    site.ask(0, POST, false);
    site.respond(0, b"no more, please", true).unwrap();
    site.done(0);
    site.run();
    assert!(site.http.is_drained());
    site.browser.send_data(0, "more".into(), false).unwrap();
    site.run();
    assert!(site.http.is_drained());
}

#[test]
fn a_stream_reset_before_its_first_byte_counts_as_an_early_reset() {
    let limits = Limits {
        early_resets: 3,
        early_resets_per_second: 0.001,
        ..Limits::default()
    };
    let mut site = Site::new(limits);
    for turn in 0..4 {
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        quic.send_stream(turn * 4, Bytes::new(), false).unwrap();
        quic.reset_stream(turn * 4, 0x10c).unwrap();
        site.run();
    }
    assert_eq!(site.closed_with(), Some(Code::H3_EXCESSIVE_LOAD.0));
}

#[test]
fn an_upload_that_was_answered_before_its_end_may_be_reset_any_number_of_times() {
    let limits = Limits {
        early_resets: 1,
        early_resets_per_second: 0.001,
        ..Limits::default()
    };
    let mut site = Site::new(limits);
    for turn in 0..5 {
        let stream_id = turn * 4;
        site.ask(stream_id, POST, false);
        site.respond(stream_id, b"enough", true).unwrap();
        site.command(|http, quic, now| http.cancel(quic, stream_id, Code::H3_NO_ERROR, now));
        site.done(stream_id);
        site.run();
        // RFC 9000 section 3.5: the client answers STOP_SENDING with a reset.
        let stopped = |event: &quic::Event| matches!(event, quic::Event::StopSending { stream_id: id, .. } if *id == stream_id);
        assert!(site.pair.client.has(site.client, stopped));
    }
    assert_eq!(site.closed_with(), None);
    assert_eq!(aborted(&site.take_events()), [0_u64; 0]);
}

#[test]
fn a_header_section_that_never_ends_is_refused_in_time() {
    let mut site = Site::new(Limits::default());
    // The HEADERS frame announces more bytes than arrive.
    site.raw(0, &[1, 30, 0, 0], false);
    site.ask(4, GET, true);
    site.tick(Duration::from_secs(5));
    assert_eq!(site.resets(), []);
    site.tick(Duration::from_secs(6));
    let reset = |event: &quic::Event| matches!(event, quic::Event::StreamReset { stream_id: 0, error_code } if *error_code == Code::H3_REQUEST_REJECTED.0);
    assert!(site.pair.client.has(site.client, reset));
    let stopped = |event: &quic::Event| matches!(event, quic::Event::StopSending { stream_id: 0, error_code, .. } if *error_code == Code::H3_REQUEST_REJECTED.0);
    assert!(site.pair.client.has(site.client, stopped));
    // The complete request has no time-out while its application runs.
    assert_eq!(requests(&site.take_events()), [4]);
    site.respond(4, b"late", true).unwrap();
}

#[test]
fn awaited_content_has_a_time_out_that_slow_content_does_not_extend() {
    let limits = Limits {
        body_timeout: Duration::from_secs(10),
        body_rate: 100,
        ..Limits::default()
    };
    let timed_out = Event::BodyTimedOut { stream_id: 0 };
    for (bytes_a_turn, turns_max) in [(0, 3), (10, 12), (2_000, 1_000)] {
        let mut site = Site::with(limits.clone(), |transport| {
            transport.idle_timeout = Duration::ZERO
        });
        site.ask(0, POST, false);
        let mut turns = 0;
        while turns < 40 && !site.reported.contains(&timed_out) {
            turns += 1;
            site.command(|http, _, now| http.wait_for_body(0, now));
            if bytes_a_turn > 0 {
                let data = vec![0; bytes_a_turn].into();
                site.browser.send_data(0, data, false).unwrap();
            }
            site.tick(Duration::from_secs(4));
        }
        let is_quick = turns_max > 40;
        assert_eq!(
            site.reported.contains(&timed_out),
            !is_quick,
            "{bytes_a_turn}"
        );
        assert!(is_quick || turns <= turns_max, "{bytes_a_turn}: {turns}");
    }
    // The host does not wait for content, so there is no time-out.
    let mut site = Site::with(limits, |transport| transport.idle_timeout = Duration::ZERO);
    site.ask(0, POST, false);
    site.tick(Duration::from_secs(100));
    assert!(!site.reported.contains(&timed_out));
}

#[test]
fn an_unread_response_is_abandoned() {
    let mut site = Site::with(Limits::default(), |transport| {
        transport.idle_timeout = Duration::ZERO;
        transport.max_stream_data = 20_000;
    });
    site.ask(0, GET, true);
    let client = site.client;
    let quic = site.pair.client.endpoint.connection(client).unwrap();
    quic.pause_stream(0);
    site.respond(0, &vec![0; 1 << 20], false).unwrap();
    assert!(site.command(|http, quic, now| http.is_held_up(quic, 0, now)));
    site.tick(Duration::from_secs(300));
    site.tick(Duration::from_secs(301));
    assert_eq!(aborted(&site.take_events()), [] as [u64; 0]);
    site.tick(Duration::from_secs(301));
    assert_eq!(aborted(&site.take_events()), [0]);
    assert_eq!(site.respond(0, b"x", false), Err(SendError::Gone));
}

#[test]
fn an_unread_whole_response_is_abandoned_after_its_host_is_done() {
    let mut site = Site::with(Limits::default(), |transport| {
        transport.idle_timeout = Duration::ZERO;
        transport.max_stream_data = 20_000;
    });
    site.ask(0, GET, true);
    let client = site.client;
    let quic = site.pair.client.endpoint.connection(client).unwrap();
    quic.pause_stream(0);
    site.respond(0, &vec![0; 100_000], true).unwrap();
    site.done(0);
    for seconds in [300, 301] {
        site.tick(Duration::from_secs(seconds));
        assert!(!site.http.is_drained(), "{seconds}");
    }
    let now = site.pair.now;
    assert!(site.http.is_due(now));
    site.tick(Duration::from_secs(301));
    assert!(site.http.is_drained());
    let server = site.server;
    let quic = site.pair.server.endpoint.connection(server).unwrap();
    assert_eq!(quic.send_queue_bytes(0), 0);
}

#[test]
fn a_full_queue_has_room_again_when_the_client_reads() {
    let mut site = Site::new(Limits::default());
    site.ask(0, GET, true);
    site.respond(0, &vec![0; 3 << 20], false).unwrap();
    assert!(site.command(|http, quic, now| http.is_held_up(quic, 0, now)));
    site.take_events();
    site.run();
    assert_eq!(site.take_events(), [Event::Writable { stream_id: 0 }]);
    assert!(!site.command(|http, quic, now| http.is_held_up(quic, 0, now)));
}

#[test]
fn the_unsent_bytes_of_all_responses_of_a_connection_are_bounded() {
    let mut site = Site::with(Limits::default(), |transport| {
        transport.max_stream_data = 20_000;
    });
    let streams: Vec<u64> = (0..40).map(|index| index * 4).collect();
    for stream_id in &streams {
        site.ask(*stream_id, GET, true);
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        quic.pause_stream(*stream_id);
    }
    let mut held = 0;
    for stream_id in &streams {
        // The response stays below the limit of its own stream's queue.
        site.respond(*stream_id, &vec![0; 200_000], false).unwrap();
        held += usize::from(site.command(|http, quic, now| http.is_held_up(quic, *stream_id, now)));
    }
    assert!((15..30).contains(&held), "{held}");
    site.take_events();
    for stream_id in &streams {
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        quic.resume_stream(*stream_id);
    }
    site.run();
    let reported = site.take_events();
    let woken = reported
        .iter()
        .filter(|event| matches!(event, Event::Writable { .. }));
    assert_eq!(woken.count(), held);
}

#[test]
fn sends_after_stop_sending_are_refused_at_once() {
    let mut site = Site::new(Limits::default());
    site.ask(0, GET, true);
    site.respond(0, b"x", false).unwrap();
    site.run();
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    quic.stop_stream(0, Code::H3_REQUEST_CANCELLED.0).unwrap();
    // The QUIC connection has the event, and the host has not polled it yet.
    site.pair.run_for(Duration::from_secs(1));
    let sent = site.command(|http, quic, now| http.send_data(quic, 0, "y".into(), false, now));
    assert_eq!(sent, Err(SendError::Gone));
    site.handle();
    assert_eq!(aborted(&site.take_events()), [0]);
}

#[test]
fn a_reset_request_ends_and_the_others_continue() {
    let mut site = Site::new(Limits::default());
    site.ask(0, POST, false);
    site.browser.send_data(0, "all".into(), false).unwrap();
    site.run();
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    quic.reset_stream(0, Code::H3_NO_ERROR.0).unwrap();
    site.run();
    assert_eq!(aborted(&site.take_events()), [0]);
    site.ask(4, GET, true);
    assert_eq!(requests(&site.take_events()), [4]);
    site.respond(4, b"x", true).unwrap();
}

#[test]
fn a_connection_without_requests_is_reported_as_idle_despite_pings() {
    let mut site = Site::new(Limits::default());
    site.ask(0, GET, true);
    for _ in 0..13 {
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        quic.ping(1);
        site.tick(Duration::from_secs(10));
    }
    assert!(
        !site.reported.contains(&Event::Idle),
        "an application is working"
    );
    site.respond(0, b"x", true).unwrap();
    site.done(0);
    for _ in 0..13 {
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        quic.ping(1);
        site.tick(Duration::from_secs(10));
    }
    assert!(site.reported.contains(&Event::Idle));
}

#[test]
fn a_head_above_the_clients_limit_is_refused_and_nothing_is_sent() {
    let settings = h3::Settings {
        max_field_section_size: 40,
        ..h3::Settings::default()
    };
    let mut site = Site::between(settings, Limits::default(), |_| {});
    site.ask(0, GET, true);
    let refused = site.respond(0, b"x", true);
    assert!(
        matches!(refused, Err(SendError::TooLarge { max: 40, .. })),
        "{refused:?}"
    );
    let invalid = site.command(|http, quic, now| {
        let lines: &[(&[u8], &[u8])] = &[(b":status", b"2")];
        http.send_headers(quic, 0, lines, true, now)
    });
    assert!(matches!(invalid, Err(SendError::Invalid(_))), "{invalid:?}");
    site.command(|http, quic, now| http.cancel(quic, 0, Code::H3_INTERNAL_ERROR, now));
    site.run();
    assert_eq!(site.resets(), [(0, Code::H3_INTERNAL_ERROR.0)]);
}

#[test]
fn a_connection_continues_after_it_has_freed_its_capacity() {
    let mut site = Site::new(Limits::default());
    for turn in 0..4 {
        // The field lines are equal each time, so from the second request on they are in the QPACK tables of client and
        // server.
        for stream_id in [turn * 12, turn * 12 + 4, turn * 12 + 8] {
            let mut lines = GET.to_vec();
            lines.push(("x-same", "the same each time"));
            site.ask(stream_id, &lines, true);
            assert_eq!(requests(&site.take_events()), [stream_id]);
            site.respond(stream_id, b"hello", true).unwrap();
            site.done(stream_id);
            site.run();
        }
        site.take_events();
        let now = site.pair.now;
        assert!(!site.http.is_due(now), "it is quiet, and not for long");
        site.wait(Duration::from_secs(2));
        let now = site.pair.now;
        assert!(site.http.is_due(now), "it may rest");
        site.tick(Duration::ZERO);
        assert!(!site.http.is_due(now), "once");
        assert_eq!(site.take_events(), []);
        assert_eq!(site.closed_with(), None);
    }
}

#[test]
fn content_requested_after_the_end_has_no_time_out() {
    let mut site = Site::with(Limits::default(), |transport| {
        transport.idle_timeout = Duration::ZERO
    });
    for stream_id in [0, 4] {
        site.ask(stream_id, POST, false);
    }
    // One request was abandoned by the client, another by the host.
    site.browser.cancel_request(0, Code::H3_REQUEST_CANCELLED.0);
    site.command(|http, _, now| http.wait_for_body(4, now));
    site.command(|http, quic, now| http.cancel(quic, 4, Code::H3_INTERNAL_ERROR, now));
    site.run();
    assert_eq!(aborted(&site.take_events()), [0]);
    for stream_id in [0, 4] {
        site.command(|http, _, now| http.wait_for_body(stream_id, now));
    }
    site.tick(Duration::from_secs(100));
    assert_eq!(site.take_events(), []);
}
