//! Clients that violate the protocol, or reach the limits.

use super::*;

fn raw(site: &mut Site, uni: bool, bytes: &[u8], fin: bool) -> u64 {
    let bytes = Bytes::copy_from_slice(bytes);
    let quic = site.quic(Ours);
    let stream = quic.open_stream(uni).unwrap();
    quic.send_stream(stream, bytes, fin).unwrap();
    stream
}

/// Sends capsules, valid or not, in a DATA frame on the CONNECT stream.
fn say(site: &mut Site, session: u64, capsules: &[u8], fin: bool) {
    let frame = [
        &[
            0x00,
            0x40 | (capsules.len() >> 8) as u8,
            capsules.len() as u8,
        ][..],
        capsules,
    ]
    .concat();
    let quic = site.quic(Ours);
    quic.send_stream(session, frame.into(), fin).unwrap();
    site.run();
}

fn reset_with(site: &Site, stream_id: u64, error_code: u64) -> bool {
    use quic::Event::{StopSending, StreamReset};
    let expected = (stream_id, error_code);
    let is_it = |event: &quic::Event| match event {
        StreamReset {
            stream_id,
            error_code,
        }
        | StopSending {
            stream_id,
            error_code,
            ..
        } => (*stream_id, *error_code) == expected,
        _ => false,
    };
    site.pair.client.has(site.keys[0], is_it)
}

#[test]
fn an_impossible_session_identifier_closes_the_connection() {
    // Identifiers of a server's stream, of a unidirectional stream, and of a stream that QUIC does not allow the
    // client yet.
    for id in [&b"\x01"[..], b"\x02", b"\x80\x10\x00\x00"] {
        for uni in [false, true] {
            let mut site = Site::new();
            let signal = if uni { b"\x40\x54" } else { b"\x40\x41" };
            raw(&mut site, uni, &[signal, id].concat(), false);
            site.run();
            assert_eq!(site.closed_with(Ours), Some(Code::H3_ID_ERROR.0));
        }
    }
}

#[test]
fn a_servers_stream_without_a_session_closes_the_connection() {
    let mut site = Site::new();
    let quic = site.quic(Theirs);
    let stream = quic.open_stream(false).unwrap();
    quic.send_stream(stream, Bytes::from_static(b"\x40\x41\x40\x40"), false)
        .unwrap();
    site.run();
    assert_eq!(site.closed_with(Theirs), Some(Code::H3_ID_ERROR.0));
}

#[test]
fn streams_without_a_session_wait_within_a_bound_and_a_time() {
    let limits = Limits {
        early_streams: 3,
        ..Limits::default()
    };
    let mut site = Site::with(Limits::default(), limits);
    let streams: Vec<u64> = (0..5)
        .map(|_| raw(&mut site, true, b"\x40\x54\x10data", false))
        .collect();
    site.run();
    let rejected = |site: &Site| -> Vec<bool> {
        let rejected = |stream: &u64| reset_with(site, *stream, 0x3994_bd84);
        streams.iter().map(rejected).collect()
    };
    assert_eq!(rejected(&site), [false, false, false, true, true]);
    assert_eq!(site.on(Theirs, |handle, _, _| handle.streams()), 3);
    site.pair.run_for(Duration::from_secs(11));
    let now = site.pair.now;
    let quic = site.pair.server.endpoint.connection(site.keys[1]).unwrap();
    site.http.tick(quic, now);
    site.run();
    assert_eq!(rejected(&site), [true; 5]);
    site.check_nothing_is_left();
}

#[test]
fn an_incomplete_stream_header_is_abandoned_after_a_time() {
    let mut site = Site::new();
    let streams = [
        raw(&mut site, true, b"\x40", false),
        raw(&mut site, false, b"\x40\x41\x80", false),
    ];
    site.run();
    site.pair.run_for(Duration::from_secs(11));
    let now = site.pair.now;
    let quic = site.pair.server.endpoint.connection(site.keys[1]).unwrap();
    site.http.tick(quic, now);
    site.run();
    for stream in streams {
        assert!(reset_with(&site, stream, Code::H3_REQUEST_REJECTED.0));
    }
    site.check_nothing_is_left_at(Theirs);
}

#[test]
fn streams_that_end_or_are_reset_inside_their_header_leave_no_state() {
    let mut site = Site::new();
    raw(&mut site, true, b"\x40", true);
    for uni in [false, true] {
        let stream = raw(&mut site, uni, b"\x40", false);
        site.run();
        site.quic(Ours).reset_stream(stream, 1).unwrap();
        site.run();
    }
    assert_eq!(site.closed_with(Ours), None);
    assert_eq!(site.on(Theirs, |handle, _, _| handle.streams()), 0);
}

#[test]
fn streams_reset_before_their_session_is_known_are_not_counted_as_requests() {
    for is_stopped in [false, true] {
        let mut site = Site::new();
        site.open();
        // The client resets more streams than the number of requests that it may abandon.
        for _ in 0..15 {
            for _ in 0..100 {
                let quic = site.quic(Ours);
                let stream = quic.open_stream(false).unwrap();
                match is_stopped {
                    true => quic.stop_stream(stream, 7).unwrap(),
                    false => quic.send_stream(stream, b"\x40"[..].into(), false).unwrap(),
                }
                quic.reset_stream(stream, 7).unwrap();
            }
            site.pair.run_for(Duration::from_millis(100));
            site.handle();
        }
        assert_eq!(site.closed_with(Ours), None);
        assert_eq!(site.on(Theirs, |handle, _, _| handle.streams()), 0);
        assert!(site.http_events.is_empty());
        let stats = site.on(Theirs, |_, quic, _| quic.stats());
        // These are the CONNECT stream, and the critical streams of client and server.
        assert_eq!(stats.streams_open, 7);
    }
}

#[test]
fn stop_sending_before_the_first_bytes_is_reported_after_them() {
    let mut site = Site::new();
    let session = site.open();
    let mut stopped = || {
        let quic = site.quic(Ours);
        let stream = quic.open_stream(false).unwrap();
        let code = 0x52e4_a40f_a8db + 9;
        quic.stop_stream(stream, code).unwrap();
        site.run();
        assert_eq!(
            (&site.take(Theirs)[..], &site.http_events[..]),
            (&[][..], &[][..])
        );
        stream
    };
    let (of_session, of_request) = (stopped(), stopped());
    let header = [&b"\x40\x41"[..], &[session as u8]].concat();
    let get = Bytes::from_static(b"\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01a");
    let quic = site.quic(Ours);
    quic.send_stream(of_session, header.into(), true).unwrap();
    quic.send_stream(of_request, get, true).unwrap();
    site.run();
    let reported = site.take(Theirs);
    let stop = EventKind::Quic(quic::Event::StopSending {
        stream_id: of_session,
        error_code: 9,
        unsent: 0,
    });
    assert_eq!(
        (opened(&reported), reported.last()),
        (vec![of_session], Some(&stop))
    );
    let aborted = http::Event::Aborted {
        stream_id: of_request,
    };
    assert_eq!(
        (site.http_events.len(), site.http_events.last()),
        (2, Some(&aborted))
    );
}

#[test]
fn early_streams_beyond_the_credit_are_all_ended() {
    let limits = Limits {
        streams_uni: 1,
        ..Limits::default()
    };
    let mut site = Site::with(Limits::default(), limits);
    let session = site.connect(request()).unwrap();
    let header = [&b"\x40\x54"[..], &[session as u8]].concat();
    let streams = [0; 3].map(|_| raw(&mut site, true, &header, false));
    site.run();
    site.accept(session, &[], None).unwrap();
    site.run();
    assert!(reset_with(&site, session, 0x045d_4487));
    for stream in streams {
        assert!(reset_with(&site, stream, 0x170d_7b68), "{stream}");
    }
    site.check_nothing_is_left_at(Theirs);
}

#[test]
fn an_early_stream_that_is_reset_after_its_data_is_incomplete() {
    let mut site = Site::new();
    let session = site.connect(request()).unwrap();
    let header = [&b"\x40\x54"[..], &[session as u8]].concat();
    let stream_id = raw(&mut site, true, &header, false);
    site.run();
    let pushed = quic::Event::StreamData {
        stream_id,
        data: Bytes::from_static(b"half").into(),
        fin: false,
    };
    let reset = |error_code| quic::Event::StreamReset {
        stream_id,
        error_code,
    };
    let now = site.pair.now;
    for event in [pushed.clone(), reset(0x52e4_a40f_a8db + 9)] {
        let quic = site.pair.server.endpoint.connection(site.keys[1]).unwrap();
        site.http.handle(quic, event, now);
    }
    site.accept(session, &[], None).unwrap();
    let reported = site.take(Theirs);
    assert_eq!(
        reported[1..],
        [EventKind::Quic(pushed), EventKind::Quic(reset(9))]
    );
}

/// A client whose bytes the test writes itself, and a server with HTTP/3.
struct Raw {
    pair: Pair,
    keys: [ConnectionKey; 2],
    http: http::Connection,
    seen: usize,
}

impl Raw {
    /// Makes the client and the server. The client sends the SETTINGS `settings`, and also those of the newest draft
    /// and of datagrams.
    fn new(settings: &[u8]) -> Self {
        let (client, server) = with_transport(|transport| {
            transport.datagram_recv_bytes = Some(1 << 16);
        });
        let mut pair = Pair::new(client, server);
        let (client, server) = pair.establish();
        let (now, seen) = (pair.now, pair.server.events.len());
        let quic = pair.server.endpoint.connection(server).unwrap();
        let http = http::Connection::with_webtransport(
            quic,
            h3::Settings::default(),
            http::Limits::default(),
            Limits::default(),
            now,
        );
        let mut raw = Self {
            pair,
            keys: [client, server],
            http,
            seen,
        };
        let settings = [&b"\xac\x7c\xf0\x00\x01\x33\x01"[..], settings].concat();
        let frame = [&[0x00, 0x04, settings.len() as u8][..], &settings].concat();
        raw.send(2, &frame);
        raw
    }

    fn send(&mut self, stream_id: u64, bytes: &[u8]) {
        let quic = self.pair.client.endpoint.connection(self.keys[0]).unwrap();
        let bytes = Bytes::copy_from_slice(bytes);
        quic.send_stream(stream_id, bytes, false).unwrap();
    }

    fn run(&mut self) {
        for _ in 0..10 {
            self.pair.run_for(Duration::from_millis(50));
            let (now, events) = (self.pair.now, &self.pair.server.events[self.seen..]);
            let events: Vec<_> = events.iter().map(|(_, event)| event.clone()).collect();
            self.seen += events.len();
            for event in events.into_iter().filter(quic::Event::is_about_streams) {
                let quic = self.pair.server.endpoint.connection(self.keys[1]).unwrap();
                self.http.handle(quic, event, now);
            }
        }
    }

    fn on_server<R>(
        &mut self,
        run: impl FnOnce(&mut SessionCommands<'_>, &mut quic::Connection, Instant) -> R,
    ) -> R {
        let now = self.pair.now;
        let quic = self.pair.server.endpoint.connection(self.keys[1]).unwrap();
        run(&mut self.http.webtransport().unwrap(), quic, now)
    }

    fn reported(&mut self) -> Vec<EventKind> {
        self.on_server(|handle, _, _| {
            std::iter::from_fn(|| handle.poll_event().map(|event| event.what)).collect()
        })
    }

    /// Returns the session requests that the server's host has to answer.
    fn asked(&mut self) -> Vec<u64> {
        let events = std::iter::from_fn(|| self.http.poll_event());
        let session = |event| match event {
            http::Event::Session { session_id, .. } => Some(session_id),
            _ => None,
        };
        events.filter_map(session).collect()
    }

    fn reset_with(&self, stream_id: u64, error_code: u64) -> bool {
        let reset = quic::Event::StreamReset {
            stream_id,
            error_code,
        };
        self.pair.client.has(self.keys[0], |event| *event == reset)
    }
}

/// A HEADERS frame: an extended CONNECT for "webtransport", path "/", authority "a".
const CONNECT: &[u8] = b"\x01\x20\x00\x00\xcf\xd7\xc1\x50\x01a\
    \x27\x02:protocol\x0cwebtransport";

#[test]
fn a_response_above_the_clients_limit_is_shortened() {
    let long: Fields<'_> = &[(b"x-why", &[b'x'; 100])];
    // A section with only ":status" counts 42 bytes (RFC 9114 section 4.2.2).
    for (max, is_said) in [(b'\x3c', true), (b'\x0a', false)] {
        let mut raw = Raw::new(&[0x06, max]);
        raw.send(0, CONNECT);
        raw.run();
        assert_eq!(raw.asked(), [0]);
        let malformed: Fields<'_> = &[(b"a b", b"")];
        let refused = raw.on_server(|handle, quic, now| {
            let refused = handle.refuse(quic, 0, 403, malformed, now);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            handle.refuse(quic, 0, 403, long, now)
        });
        assert_eq!(refused, Ok(()));
        raw.run();
        assert_eq!(raw.reported(), [EventKind::Released]);
        assert_eq!(raw.pair.client.finished(raw.keys[0], 0), is_said);
        assert_eq!(raw.reset_with(0, Code::H3_REQUEST_REJECTED.0), !is_said);
        assert!(raw.on_server(|handle, _, _| handle.is_drained()));
    }
}

#[test]
fn a_session_whose_client_accepts_no_response_cannot_be_accepted() {
    let mut raw = Raw::new(&[0x06, 0x0a]);
    raw.send(0, CONNECT);
    raw.run();
    let accepted = raw.on_server(|handle, quic, now| handle.accept(quic, 0, &[], None, now));
    assert_eq!(accepted, Err(Error::Gone));
    assert!(ended(&raw.reported()).is_some());
    raw.run();
    assert!(raw.reset_with(0, Code::H3_REQUEST_REJECTED.0));
    assert!(raw.on_server(|handle, _, _| handle.is_drained()));
}

#[test]
fn without_session_flow_control_only_the_first_request_is_accepted() {
    let mut raw = Raw::new(&[]);
    raw.send(0, CONNECT);
    raw.send(4, CONNECT);
    raw.run();
    assert_eq!(raw.asked(), [0]);
    assert!(raw.reset_with(4, Code::H3_REQUEST_REJECTED.0));
}

#[test]
fn a_server_with_an_invalid_webtransport_setting_is_closed() {
    let mut site = Site::before_settings(
        http::Limits::default(),
        Limits::default(),
        Limits::default(),
    );
    // The server's own HTTP/3 sends nothing. The test sends SETTINGS instead, in which WT_ENABLED is 2.
    let (client, server) = with_transport(|_| {});
    site.pair = Pair::new(client, server);
    let (client, server) = site.pair.establish();
    let now = site.pair.now;
    (site.keys, site.seen) = ([client, server], [0, 0]);
    let quic = site.pair.client.endpoint.connection(client).unwrap();
    site.client = Client::new(quic, Limits::default(), now);
    let settings = Bytes::from_static(b"\x00\x04\x05\xac\x7c\xf0\x00\x02");
    let quic = site.quic(Theirs);
    quic.send_stream(3, settings, false).unwrap();
    site.pair.run_for(Duration::from_millis(100));
    site.client_handles();
    site.pair.run_for(Duration::from_millis(100));
    assert_eq!(site.closed_with(Ours), Some(Code::H3_SETTINGS_ERROR.0));
}

#[test]
fn sessions_above_the_limit_are_rejected() {
    let limits = Limits {
        sessions: 2,
        drafts: vec![Draft::Two],
        ..Limits::default()
    };
    let mut site = Site::with(Limits::default(), limits);
    let sessions = [0; 3].map(|_| site.connect(request()).unwrap());
    site.run();
    let [_, _, third] = sessions;
    assert!(reset_with(&site, third, Code::H3_REQUEST_REJECTED.0));
    let reported = site.take(Ours);
    let (code, reason, is_clean) = ended(&reported).unwrap();
    assert!(reason.contains("rejected"), "{reason}");
    assert_eq!((code, is_clean), (0, false));
    site.accept(sessions[0], &[], None).unwrap();
    site.accept(sessions[1], &[], None).unwrap();
    site.run();
    assert_eq!(site.take(Ours).len(), 2);
}

#[test]
fn sessions_count_as_requests_of_their_connection() {
    let limits = http::Limits {
        requests: Some(2),
        ..http::Limits::default()
    };
    let mut site = Site::limited(limits, Limits::default(), Limits::default());
    for _ in 0..3 {
        site.connect(request()).unwrap();
        site.run();
    }
    let reported = std::mem::take(&mut site.http_events);
    let at = reported
        .iter()
        .position(|event| *event == http::Event::UsedUp);
    assert_eq!((reported.len(), at), (4, Some(1)), "{reported:?}");
}

#[test]
fn malformed_capsules_end_the_session() {
    let malformed = Code::H3_MESSAGE_ERROR.0;
    for (capsules, fin, code) in [
        // WT_CLOSE_SESSION: with an incomplete code, too long, and with a reason that is not UTF-8.
        (&b"\x68\x43\x03abc"[..], false, malformed),
        (b"\x68\x43\x80\x01\x00\x00", false, malformed),
        (b"\x68\x43\x05\0\0\0\0\xff", false, malformed),
        // WT_DRAIN_SESSION with a value, which must be empty.
        (b"\x80\x00\x78\xae\x01x", false, malformed),
        // The stream ends inside a capsule, of a known and of an unknown type.
        (b"\x17\x05abc", true, malformed),
        (b"\x17", true, malformed),
        // A capsule after WT_CLOSE_SESSION.
        (b"\x68\x43\x04\0\0\0\0\x17\x00", false, malformed),
        // WT_MAX_DATA with a value below the one before; WT_MAX_STREAM_DATA, which is an error over HTTP/3.
        (b"\x99\x0b\x4d\x3d\x01\x01", false, 0x045d_4487),
        (b"\x99\x0b\x4d\x3e\x02\x01\x01", false, 0x045d_4487),
        // WT_MAX_STREAMS and WT_STREAMS_BLOCKED with values above the maximum.
        (
            b"\x99\x0b\x4d\x3f\x08\xd0\0\0\0\0\0\0\x01",
            false,
            0x045d_4487,
        ),
        (
            b"\x99\x0b\x4d\x43\x08\xd0\0\0\0\0\0\0\x01",
            false,
            0x045d_4487,
        ),
    ] {
        let mut site = Site::new();
        let session = site.open();
        say(&mut site, session, capsules, fin);
        assert!(reset_with(&site, session, code), "{capsules:x?}");
        assert!(ended(&site.take(Theirs)).is_some());
        assert_eq!(site.closed_with(Ours), None);
        site.check_nothing_is_left();
    }
}

#[test]
fn unknown_capsules_are_ignored_whatever_their_size() {
    let mut site = Site::new();
    let session = site.open();
    let long = [&b"\x17\x43\xe8"[..], &[0; 1000], b"\x00\x01x"].concat();
    say(&mut site, session, &long, false);
    say(&mut site, session, b"\x68\x43\x06\0\0\0\x05hi", false);
    assert_eq!(ended(&site.take(Theirs)), Some((5, "hi", true)));
}

#[test]
fn too_much_data_before_the_response_ends_the_session() {
    let mut site = Site::new();
    let session = site.connect(request()).unwrap();
    site.run();
    for _ in 0..5 {
        say(&mut site, session, &[0; 1_000], false);
    }
    assert!(ended(&site.take(Theirs)).is_some());
    assert!(reset_with(&site, session, Code::H3_EXCESSIVE_LOAD.0));
    site.check_nothing_is_left();
}

#[test]
fn capsules_before_the_response_are_read_after_it() {
    let mut site = Site::new();
    let session = site.connect(request()).unwrap();
    site.run();
    say(&mut site, session, b"\x68\x43\x06\0\0\0\x05hi", false);
    assert!(site.take(Theirs).is_empty());
    site.accept(session, &[], None).unwrap();
    assert_eq!(ended(&site.take(Theirs)), Some((5, "hi", true)));
}

#[test]
fn thousands_of_abandoned_session_requests_close_the_connection() {
    let mut site = Site::new();
    for _ in 0..30 {
        if site.closed_with(Ours).is_some() {
            break;
        }
        let sessions: Vec<u64> = (0..100)
            .filter_map(|_| site.connect(request()).ok())
            .collect();
        site.run();
        for session in sessions {
            if site.closed_with(Ours).is_none() {
                site.close(Ours, session, 0, "");
            }
        }
        site.pair.run_for(Duration::from_millis(100));
        site.handle_all_but_the_closed();
    }
    assert_eq!(site.closed_with(Ours), Some(Code::H3_EXCESSIVE_LOAD.0));
}

impl Site {
    fn handle_all_but_the_closed(&mut self) {
        if self.closed_with(Ours).is_none() {
            self.handle();
        }
    }
}

#[test]
fn a_wt_stream_frame_inside_a_request_closes_the_connection() {
    let mut site = Site::new();
    let get = b"\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01a";
    raw(
        &mut site,
        false,
        &[&get[..], b"\x40\x41\x00"].concat(),
        false,
    );
    site.run();
    assert_eq!(site.closed_with(Ours), Some(Code::H3_FRAME_ERROR.0));
}
