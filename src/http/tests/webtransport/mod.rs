//! WebTransport sessions between a client and a server on the simulated link.

use std::time::{Duration, Instant};

use bytes::Bytes;
use uringcore_h3::{self as h3, Code};
use uringcore_http::http3 as http;
use uringcore_http::webtransport::{
    Client, Draft, Error, Event, EventKind, Limits, NO_CODE, Request, SessionCommands,
};
use uringcore_quic::{self as quic, ConnectionKey, StreamEnd};

use crate::support::{Pair, with_transport};

mod flow_control;
mod hostile_clients;
mod session_ends;
mod session_limit;

type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

/// The client or the server, as the one that gives a command or gets an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}
use Side::{Client as Ours, Server as Theirs};

const BOTH: [Side; 2] = [Ours, Theirs];

/// A client and a server with WebTransport, and the events of both.
struct Site {
    pair: Pair,
    keys: [ConnectionKey; 2],
    client: Client,
    http: http::Connection,
    seen: [usize; 2],
    reported: [Vec<Event>; 2],
    http_events: Vec<http::Event>,
}

impl Site {
    fn new() -> Self {
        Self::with(Limits::default(), Limits::default())
    }

    fn speaking(draft: Draft) -> Self {
        let limits = Limits {
            drafts: vec![draft],
            ..Limits::default()
        };
        Self::with(Limits::default(), limits)
    }

    fn with(client_limits: Limits, server_limits: Limits) -> Self {
        Self::limited(http::Limits::default(), client_limits, server_limits)
    }

    fn limited(limits: http::Limits, client_limits: Limits, server_limits: Limits) -> Self {
        let mut site = Self::before_settings(limits, client_limits, server_limits);
        site.run();
        site
    }

    /// Makes the client and the server. Neither of them has received the other's SETTINGS yet.
    fn before_settings(limits: http::Limits, client_limits: Limits, server_limits: Limits) -> Self {
        let (client, server) = with_transport(|transport| {
            transport.datagram_recv_bytes = Some(1 << 16);
        });
        let mut pair = Pair::new(client, server);
        let (client_key, server_key) = pair.establish();
        let now = pair.now;
        let seen = [pair.client.events.len(), pair.server.events.len()];
        let quic = pair.client.endpoint.connection(client_key).unwrap();
        let client = Client::new(quic, client_limits, now);
        let quic = pair.server.endpoint.connection(server_key).unwrap();
        let settings = h3::Settings {
            max_requests: Some(128),
            ..h3::Settings::default()
        };
        let http = http::Connection::with_webtransport(quic, settings, limits, server_limits, now);
        Self {
            pair,
            keys: [client_key, server_key],
            client,
            http,
            seen,
            reported: Default::default(),
            http_events: Vec::new(),
        }
    }

    /// Lets one second pass in steps. In each step the client and the server receive packets.
    fn run(&mut self) {
        for _ in 0..20 {
            self.pair.run_for(Duration::from_millis(50));
            self.handle();
        }
    }

    /// Lets `time` pass, in steps in which each packet is delivered separately.
    fn run_closely(&mut self, time: Duration) {
        let step = Duration::from_millis(2);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.pair.run_for(step);
            self.handle();
        }
    }

    fn handle(&mut self) {
        self.client_handles();
        let now = self.pair.now;
        let events = self.pair.server.events[self.seen[1]..].to_vec();
        self.seen[1] += events.len();
        for (_, event) in events.into_iter().filter(|it| it.1.is_about_streams()) {
            if let Some(quic) = self.pair.server.endpoint.connection(self.keys[1]) {
                self.http.handle(quic, event, now);
            }
        }
        self.take_events();
    }

    fn client_handles(&mut self) {
        let now = self.pair.now;
        let events = self.pair.client.events[self.seen[0]..].to_vec();
        self.seen[0] += events.len();
        for (_, event) in events.into_iter().filter(|it| it.1.is_about_streams()) {
            if let Some(quic) = self.pair.client.endpoint.connection(self.keys[0]) {
                self.client.handle(quic, event, now);
            }
        }
        self.take_events();
    }

    /// The server sends GOAWAY: it accepts no further requests.
    fn go_away(&mut self) {
        let now = self.pair.now;
        let quic = self.pair.server.endpoint.connection(self.keys[1]).unwrap();
        self.http.go_away(quic, now);
        self.take_events();
    }

    /// The client and the server handle their time-outs.
    fn tick(&mut self) {
        let now = self.pair.now;
        let quic = self.pair.client.endpoint.connection(self.keys[0]).unwrap();
        self.client.tick(quic, now);
        let quic = self.pair.server.endpoint.connection(self.keys[1]).unwrap();
        self.http.tick(quic, now);
    }

    fn take_events(&mut self) {
        let mut client = self.client.webtransport();
        self.reported[0].extend(std::iter::from_fn(|| client.poll_event()));
        let mut server = self.http.webtransport().unwrap();
        self.reported[1].extend(std::iter::from_fn(|| server.poll_event()));
        self.http_events
            .extend(std::iter::from_fn(|| self.http.poll_event()));
    }

    /// Runs a command on one side.
    fn on<R>(
        &mut self,
        side: Side,
        run: impl FnOnce(&mut SessionCommands<'_>, &mut quic::Connection, Instant) -> R,
    ) -> R {
        let now = self.pair.now;
        let key = self.keys[side as usize];
        let result = match side {
            Ours => {
                let quic = self.pair.client.endpoint.connection(key).unwrap();
                run(&mut self.client.webtransport(), quic, now)
            }
            Theirs => {
                let quic = self.pair.server.endpoint.connection(key).unwrap();
                run(&mut self.http.webtransport().unwrap(), quic, now)
            }
        };
        self.take_events();
        result
    }

    fn quic(&mut self, side: Side) -> &mut quic::Connection {
        let key = self.keys[side as usize];
        let peer = match side {
            Ours => &mut self.pair.client,
            Theirs => &mut self.pair.server,
        };
        peer.endpoint.connection(key).unwrap()
    }

    fn connect(&mut self, request: Request) -> Result<u64, Error> {
        let now = self.pair.now;
        let quic = self.pair.client.endpoint.connection(self.keys[0]).unwrap();
        let session = self.client.connect(quic, request, now);
        self.take_events();
        session
    }

    /// Opens a session between the client and the server. The events until then are dropped.
    fn open(&mut self) -> u64 {
        let session = self.connect(request()).unwrap();
        self.run();
        self.accept(session, &[], None).unwrap();
        self.run();
        let accepted = |event: &Event| matches!(event.what, EventKind::Accepted { .. });
        assert!(self.reported[0].iter().any(accepted), "{:?}", self.reported);
        self.forget();
        session
    }

    fn accept(&mut self, id: u64, fields: Fields<'_>, taken: Option<&str>) -> Result<(), Error> {
        self.on(Theirs, |handle, quic, now| {
            handle.accept(quic, id, fields, taken, now)
        })
    }

    fn forget(&mut self) {
        self.reported = Default::default();
        self.http_events.clear();
    }

    fn take(&mut self, side: Side) -> Vec<EventKind> {
        let reported = std::mem::take(&mut self.reported[side as usize]);
        reported.into_iter().map(|event| event.what).collect()
    }

    fn open_stream(&mut self, side: Side, session: u64, uni: bool) -> u64 {
        let opened = self.on(side, |handle, quic, now| {
            handle.open_stream(quic, session, uni, now)
        });
        opened.unwrap().expect("there is credit")
    }

    fn send(&mut self, side: Side, stream: u64, data: &[u8], fin: bool) {
        let data = Bytes::copy_from_slice(data);
        self.on(side, |handle, quic, now| {
            handle.send_stream(quic, stream, data, fin, now)
        })
        .unwrap();
    }

    fn read(&mut self, side: Side, stream: u64) -> (Vec<u8>, Option<StreamEnd>) {
        let received = self.on(side, |handle, quic, now| {
            handle.read_stream(quic, stream, usize::MAX, now)
        });
        (received.data.to_vec(), received.end)
    }

    fn forget_stream(&mut self, side: Side, stream: u64) {
        self.on(side, |handle, quic, now| {
            handle.forget_stream(quic, stream, now);
        });
    }

    fn close(&mut self, side: Side, session: u64, code: u32, reason: &str) {
        self.on(side, |handle, quic, now| {
            handle.close(quic, session, code, reason, now);
        });
    }

    /// The code with which the connection was closed; `None` if it is open.
    fn closed_with(&self, side: Side) -> Option<u64> {
        let peer = match side {
            Ours => &self.pair.client,
            Theirs => &self.pair.server,
        };
        peer.closed(self.keys[side as usize]).map(|it| it.0)
    }

    /// Checks that neither the client nor the server keeps any state of a session, in QUIC either.
    fn check_nothing_is_left(&mut self) {
        for side in BOTH {
            self.check_nothing_is_left_at(side);
        }
    }

    fn check_nothing_is_left_at(&mut self, side: Side) {
        let counts = self.on(side, |handle, quic, _| {
            let stats = quic.stats();
            (
                handle.sessions(),
                handle.streams(),
                handle.is_drained(),
                stats.streams_open,
            )
        });
        // Only the three critical streams of each side remain.
        assert_eq!(counts, (0, 0, true, 6), "{side:?}");
    }
}

fn request() -> Request {
    Request {
        authority: "example.org".into(),
        path: "/chat?room=1".into(),
        origin: Some("https://example.org".into()),
        ..Request::default()
    }
}

/// The streams that the peer has opened.
fn opened(reported: &[EventKind]) -> Vec<u64> {
    let opened = |what: &EventKind| match what {
        EventKind::Opened { stream_id, .. } => Some(*stream_id),
        _ => None,
    };
    reported.iter().filter_map(opened).collect()
}

fn datagrams(reported: &[EventKind]) -> Vec<Bytes> {
    let datagram = |what: &EventKind| match what {
        EventKind::Quic(quic::Event::Datagram { data, .. }) => Some(data.clone()),
        _ => None,
    };
    reported.iter().filter_map(datagram).collect()
}

/// The code, reason and cleanness with which a session has ended. Only `Released` may follow after the end.
fn ended(reported: &[EventKind]) -> Option<(u32, &str, bool)> {
    let reported = reported
        .strip_suffix(&[EventKind::Released])
        .unwrap_or(reported);
    match reported.last()? {
        EventKind::Ended {
            code,
            reason,
            is_clean,
            ..
        } => Some((*code, reason, *is_clean)),
        _ => None,
    }
}

#[test]
fn the_newest_common_draft_is_used() {
    for draft in Draft::ALL {
        let mut site = Site::speaking(draft);
        let session = site.connect(request()).unwrap();
        site.run();
        let reported = std::mem::take(&mut site.http_events);
        let [
            http::Event::Session {
                session_id,
                head,
                protocols,
                draft: spoken,
            },
        ] = &reported[..]
        else {
            panic!("{reported:?}")
        };
        assert_eq!((*session_id, *spoken), (session, draft));
        assert!(head.is_webtransport && protocols.is_empty());
        assert_eq!(&*head.target, b"/chat?room=1");
        let field = |name: &[u8]| head.field(name).map(|value| value.to_vec());
        assert_eq!(field(b"host"), Some(b"example.org".to_vec()));
        assert_eq!(field(b"origin"), Some(b"https://example.org".to_vec()));
        assert!(site.take(Ours).is_empty());
        site.accept(session, &[(b"x-room", b"1")], None).unwrap();
        site.run();
        let reported = site.take(Ours);
        let [
            EventKind::Accepted {
                fields,
                protocol: None,
                draft: spoken,
            },
        ] = &reported[..]
        else {
            panic!("{reported:?}")
        };
        assert_eq!(*spoken, draft);
        assert!(fields.contains(&("x-room".into(), "1".into())));
        let word = (
            "sec-webtransport-http3-draft".into(),
            Bytes::from("draft02"),
        );
        assert_eq!(fields.contains(&word), draft == Draft::Two);
        for side in BOTH {
            let spoken = site.on(side, |handle, _, _| handle.draft(session));
            assert_eq!(spoken, Some(draft));
        }
        use_each_kind_of_stream_and_datagrams(&mut site, session);
    }
}

/// Uses each kind of stream, and datagrams, in both directions.
fn use_each_kind_of_stream_and_datagrams(site: &mut Site, session: u64) {
    for (side, other) in [(Ours, Theirs), (Theirs, Ours)] {
        for uni in [false, true] {
            let stream = site.open_stream(side, session, uni);
            site.send(side, stream, b"hello", true);
            site.run();
            let reported = site.take(other);
            assert_eq!(
                reported,
                [
                    EventKind::Opened {
                        stream_id: stream,
                        unidirectional: uni
                    },
                    EventKind::Quic(quic::Event::StreamReadable { stream_id: stream }),
                ]
            );
            let whole = (b"hello".to_vec(), Some(StreamEnd::Finished));
            assert_eq!(site.read(other, stream), whole);
            if !uni {
                site.send(other, stream, b"and back", true);
                site.run();
                let readable = EventKind::Quic(quic::Event::StreamReadable { stream_id: stream });
                assert!(site.take(side).contains(&readable));
                let whole = (b"and back".to_vec(), Some(StreamEnd::Finished));
                assert_eq!(site.read(side, stream), whole);
                site.run();
            }
            site.forget_stream(side, stream);
            site.forget_stream(other, stream);
            site.forget();
        }
        let sent = site.on(side, |handle, quic, _| {
            handle.send_datagram(quic, session, b"quick")
        });
        sent.unwrap();
        site.run();
        assert_eq!(datagrams(&site.take(other)), [Bytes::from("quick")]);
    }
    for side in BOTH {
        let stats = site.on(side, |handle, _, _| handle.stats(session)).unwrap();
        assert_eq!(stats.streams_opened, [1, 1]);
        assert_eq!(stats.streams_accepted, [1, 1]);
        assert_eq!(stats.streams_open, 0);
        // Two streams that this side has opened, and an answer on a stream of the peer.
        assert_eq!((stats.bytes_sent, stats.bytes_received), (18, 18));
        assert_eq!((stats.datagrams_sent, stats.datagrams_received), (1, 1));
    }
    assert_eq!(site.on(Theirs, |handle, _, _| handle.streams()), 0);
    site.close(Ours, session, 7, "done");
    assert_eq!(ended(&site.take(Ours)), Some((7, "done", true)));
    site.run();
    assert_eq!(ended(&site.take(Theirs)), Some((7, "done", true)));
    site.check_nothing_is_left();
}

#[test]
fn a_request_is_refused_with_a_status() {
    let mut site = Site::new();
    let session = site.connect(request()).unwrap();
    site.run();
    site.on(Theirs, |handle, quic, now| {
        handle.refuse(quic, session, 403, &[(b"x-why", b"origin")], now)
    })
    .unwrap();
    site.run();
    let fields = vec![("x-why".into(), "origin".into())];
    let refused = EventKind::Refused {
        status: 403,
        fields,
    };
    assert_eq!(site.take(Ours), [refused]);
    assert_eq!(site.accept(session, &[], None), Err(Error::Gone));
    site.check_nothing_is_left();
}

#[test]
fn one_of_the_offered_protocols_is_chosen() {
    let mut site = Site::new();
    let mut offering = request();
    offering.protocols = vec!["chat-2".into(), "chat-1".into()];
    let session = site.connect(offering).unwrap();
    site.run();
    let [http::Event::Session { protocols, .. }] = &site.http_events[..] else {
        panic!("{:?}", site.http_events)
    };
    assert_eq!(protocols[..], ["chat-2", "chat-1"]);
    let other = site.accept(session, &[], Some("other"));
    assert!(matches!(other, Err(Error::Invalid(_))));
    site.accept(session, &[], Some("chat-1")).unwrap();
    site.run();
    let reported = site.take(Ours);
    let [EventKind::Accepted { protocol, .. }] = &reported[..] else {
        panic!("{reported:?}")
    };
    assert_eq!(protocol.as_deref(), Some("chat-1"));
}

#[test]
fn a_protocol_that_was_not_offered_ends_the_session() {
    let mut site = Site::new();
    let session = site.connect(request()).unwrap();
    site.run();
    let fields: Fields<'_> = &[(b"wt-protocol", b"\"other\"")];
    site.accept(session, fields, None).unwrap();
    site.run();
    let reported = site.take(Ours);
    assert!(
        matches!(ended(&reported), Some((0, _, false))),
        "{reported:?}"
    );
    assert_eq!(ended(&site.take(Theirs)), Some((0, "", false)));
    site.check_nothing_is_left();
}

#[test]
fn a_request_beside_sessions_is_answered() {
    let mut site = Site::new();
    let session = site.open();
    let body = site.open_stream(Ours, session, false);
    site.send(Ours, body, b"stream", false);
    // The header section is written by hand: a GET of "/".
    let stream = site.quic(Ours).next_stream_id(false);
    let get = b"\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01a";
    let quic = site.quic(Ours);
    quic.send_stream(stream, Bytes::from_static(get), true)
        .unwrap();
    quic.deliver_stream(stream);
    site.run();
    let reported = std::mem::take(&mut site.http_events);
    let [http::Event::Request { stream_id, .. }] = &reported[..] else {
        panic!("{reported:?}")
    };
    assert_eq!(*stream_id, stream);
    let now = site.pair.now;
    let quic = site.pair.server.endpoint.connection(site.keys[1]).unwrap();
    let lines: Fields<'_> = &[(b":status", b"200")];
    let content = Bytes::from_static(b"content");
    site.http
        .respond(quic, stream, lines, content, true, now)
        .unwrap();
    site.http.done(stream, now);
    site.run();
    assert!(site.pair.client.finished(site.keys[0], stream));
    assert!(!site.http.is_drained(), "there is a session");
    assert_eq!(site.read(Theirs, body).0, b"stream");
    site.close(Ours, session, 0, "");
    site.run();
    assert!(site.http.is_drained());
}

#[test]
fn one_connection_carries_many_sessions() {
    let mut site = Site::new();
    let mut open = Vec::new();
    while open.len() < 1_000 {
        // The limit is the number of streams that QUIC allows the client at a time.
        let sessions: Vec<u64> = (0..100).map(|_| site.connect(request()).unwrap()).collect();
        site.run();
        for session in &sessions {
            site.accept(*session, &[], None).unwrap();
        }
        site.run();
        open.extend(sessions);
    }
    site.forget();
    assert_eq!(site.on(Theirs, |handle, _, _| handle.sessions()), 1_000);
    let streams: Vec<u64> = open[..150]
        .iter()
        .map(|session| site.open_stream(Ours, *session, true))
        .collect();
    for stream in &streams {
        site.send(Ours, *stream, &stream.to_be_bytes(), true);
    }
    site.run();
    let reported = std::mem::take(&mut site.reported[1]);
    let reported = reported.iter().filter_map(|event| match event.what {
        EventKind::Opened { stream_id, .. } => Some((event.session_id, stream_id)),
        _ => None,
    });
    let mut reported: Vec<(u64, u64)> = reported.collect();
    reported.sort_unstable();
    let expected: Vec<(u64, u64)> = open.iter().copied().zip(streams.clone()).collect();
    assert_eq!(reported, expected);
    for stream in streams {
        let data = site.read(Theirs, stream).0;
        assert_eq!(data, stream.to_be_bytes());
    }
    for session in open {
        site.close(Theirs, session, 1, "enough");
    }
    site.run();
    site.check_nothing_is_left();
}

#[test]
fn streams_and_datagrams_before_the_response_wait_for_it() {
    let mut site = Site::new();
    let session = site.connect(request()).unwrap();
    // The stream is written by hand, because the client's side would wait for the response.
    let header = [&b"\x40\x54"[..], &[session as u8], b"early"].concat();
    let quic = site.quic(Ours);
    let stream = quic.open_stream(true).unwrap();
    quic.send_stream(stream, header.into(), true).unwrap();
    let datagram = Bytes::from(vec![(session / 4) as u8, b'd']);
    quic.send_datagram(datagram).unwrap();
    site.run();
    assert!(site.take(Theirs).is_empty());
    site.accept(session, &[], None).unwrap();
    let reported = site.take(Theirs);
    assert_eq!(opened(&reported), [stream]);
    assert_eq!(datagrams(&reported), [Bytes::from("d")]);
    let whole = (b"early".to_vec(), Some(StreamEnd::Finished));
    assert_eq!(site.read(Theirs, stream), whole);
}

#[test]
fn a_stream_that_arrives_before_its_session_request_loses_no_data() {
    for length in [1, 1_000, 5_000] {
        let mut site = Site::new();
        let session = site.quic(Ours).next_stream_id(false);
        let data = vec![7; length];
        let bytes = [&b"\x40\x54"[..], &[session as u8], &data].concat();
        let quic = site.quic(Ours);
        let stream_id = quic.open_stream(true).unwrap();
        quic.send_stream(stream_id, bytes.into(), false).unwrap();
        site.run();
        assert_eq!(site.connect(request()).unwrap(), session);
        site.run();
        site.accept(session, &[], None).unwrap();
        let reported = site.take(Theirs);
        assert_eq!(opened(&reported), [stream_id]);
        let mut read = Vec::new();
        for what in reported {
            if let EventKind::Quic(quic::Event::StreamData { data, .. }) = what {
                read.extend(data.to_vec());
            }
        }
        read.extend(site.read(Theirs, stream_id).0);
        assert_eq!(read, data);
        let rest = Bytes::from_static(b"rest");
        site.quic(Ours).send_stream(stream_id, rest, true).unwrap();
        site.run();
        let end = (b"rest".to_vec(), Some(StreamEnd::Finished));
        assert_eq!(site.read(Theirs, stream_id), end);
    }
}

#[test]
fn stream_codes_are_those_of_the_application() {
    let mut site = Site::new();
    let session = site.open();
    let stream = site.open_stream(Ours, session, false);
    site.send(Ours, stream, b"x", false);
    site.run();
    site.on(Theirs, |handle, quic, now| {
        handle.stop_stream(quic, stream, 0x1234_5678, now).unwrap();
        handle.reset_stream(quic, stream, u32::MAX, now).unwrap();
    });
    site.run();
    let stopped = EventKind::Quic(quic::Event::StopSending {
        stream_id: stream,
        error_code: 0x1234_5678,
        unsent: 0,
    });
    assert!(site.take(Ours).contains(&stopped));
    let reset = StreamEnd::Reset {
        error_code: u64::from(u32::MAX),
    };
    assert_eq!(site.read(Ours, stream), (Vec::new(), Some(reset)));
    // The code is outside the applications' range.
    let stream = site.open_stream(Ours, session, true);
    site.run();
    site.quic(Ours).reset_stream(stream, 0x10c).unwrap();
    site.run();
    let reset = StreamEnd::Reset {
        error_code: NO_CODE,
    };
    assert_eq!(site.read(Theirs, stream), (Vec::new(), Some(reset)));
}

#[test]
fn a_stream_header_is_read_in_pieces_of_any_size() {
    let mut site = Site::new();
    let session = site.open();
    for uni in [false, true] {
        let signal = if uni { b"\x40\x54" } else { b"\x40\x41" };
        let quic = site.quic(Ours);
        let stream = quic.open_stream(uni).unwrap();
        let bytes = [&signal[..], &[session as u8], b"data"].concat();
        for byte in bytes {
            let byte = Bytes::copy_from_slice(&[byte]);
            site.quic(Ours).send_stream(stream, byte, false).unwrap();
            site.pair.run_for(Duration::from_millis(50));
            site.handle();
        }
        assert_eq!(opened(&site.take(Theirs)), [stream]);
        assert_eq!(site.read(Theirs, stream), (b"data".to_vec(), None));
    }
}

#[test]
fn either_side_can_drain_a_session() {
    let mut site = Site::new();
    let session = site.open();
    // Each side calls `drain` once, also after the other side has called it, and each gets the event once.
    for (side, other) in [(Theirs, Ours), (Ours, Theirs)] {
        for _ in 0..2 {
            site.on(side, |handle, quic, now| handle.drain(quic, session, now));
            site.run();
        }
        assert_eq!(site.take(side), []);
        assert_eq!(site.take(other), [EventKind::Draining]);
    }
    // The session still works after both sides have called `drain`.
    all_but_the_end(&mut site, session);
}

#[test]
fn goaway_drains_all_sessions_and_forbids_new_ones() {
    let mut site = Site::new();
    let session = site.open();
    site.go_away();
    site.on(Theirs, |handle, quic, now| handle.drain(quic, session, now));
    site.run();
    assert_eq!(site.take(Theirs), []);
    assert_eq!(site.take(Ours), [EventKind::Draining]);
    // The capsule is sent even though GOAWAY is sent as well, because some clients handle only the capsule.
    let capsules = site.pair.client.received(site.keys[0], session);
    assert!(
        capsules.ends_with(b"\x00\x05\x80\x00\x78\xae\x00"),
        "{capsules:x?}"
    );
    assert_eq!(site.connect(request()), Err(Error::GoingAway));
    all_but_the_end(&mut site, session);
}

#[test]
fn the_end_event_has_the_counters() {
    let mut site = Site::new();
    let session = site.open();
    let stream = site.open_stream(Ours, session, true);
    site.send(Ours, stream, &[0; 1_000], false);
    site.close(Ours, session, 0, "");
    let reported = site.take(Ours);
    let stats = reported.iter().find_map(|what| match what {
        EventKind::Ended { stats, .. } => Some(*stats),
        _ => None,
    });
    let stats = stats.unwrap();
    assert_eq!((stats.streams_opened, stats.bytes_sent), ([0, 1], 1_000));
}

fn all_but_the_end(site: &mut Site, session: u64) {
    let stream = site.open_stream(Ours, session, true);
    site.send(Ours, stream, b"still here", true);
    site.run();
    assert_eq!(site.read(Theirs, stream).0, b"still here");
}

#[test]
fn data_that_arrived_before_the_connections_end_is_reported() {
    let mut site = Site::new();
    let session = site.open();
    let stream = site.open_stream(Ours, session, true);
    site.send(Ours, stream, b"last words", false);
    site.pair.run_for(Duration::from_millis(50));
    let now = site.pair.now;
    site.quic(Ours).close(now, Code::H3_NO_ERROR.0, None, b"");
    site.run();
    let reported = site.take(Theirs);
    let data = reported.iter().find_map(|what| match what {
        EventKind::Quic(quic::Event::StreamData { data, .. }) => Some(data.to_vec()),
        _ => None,
    });
    assert_eq!(data, Some(b"last words".to_vec()), "{reported:?}");
    site.http.webtransport().unwrap().connection_lost();
    site.take_events();
    assert_eq!(ended(&site.take(Theirs)), Some((0, "", false)));
}

#[test]
fn streams_find_their_session_on_a_link_that_loses_and_reorders() {
    for draft in Draft::ALL {
        let mut site = Site::speaking(draft);
        site.pair.link = crate::support::Link {
            loss: 10,
            reorder: 30,
            duplicate: 5,
            ..Default::default()
        };
        let sessions: Vec<u64> = (0..3).map(|_| site.connect(request()).unwrap()).collect();
        for _ in 0..10 {
            site.run();
        }
        for session in &sessions {
            site.accept(*session, &[], None).unwrap();
        }
        for _ in 0..10 {
            site.run();
        }
        let mut expected = Vec::new();
        for (at, session) in (0..90).zip(sessions.iter().cycle()) {
            let stream = site.open_stream(Ours, *session, at % 2 == 0);
            let data = [stream as u8; 3_000];
            site.send(Ours, stream, &data, true);
            expected.push((*session, stream));
        }
        for _ in 0..20 {
            site.run();
        }
        let reported = std::mem::take(&mut site.reported[1]);
        let reported = reported.iter().filter_map(|event| match event.what {
            EventKind::Opened { stream_id, .. } => Some((event.session_id, stream_id)),
            _ => None,
        });
        let mut reported: Vec<(u64, u64)> = reported.collect();
        reported.sort_unstable();
        expected.sort_unstable();
        assert_eq!(reported, expected);
        for (_, stream) in expected {
            let whole = (vec![stream as u8; 3_000], Some(StreamEnd::Finished));
            assert_eq!(site.read(Theirs, stream), whole);
        }
    }
}
