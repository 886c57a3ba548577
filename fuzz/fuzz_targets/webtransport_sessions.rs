//! Invariant: for any order in which a client opens streams, requests sessions, sends capsules and
//! ends them, sessions on a server's connection do not panic and keep no more state than their
//! bounds. A session's first event is its only start, its streams arrive while it is open, and its
//! only end is last. Once the host has closed all sessions and the client has disconnected, no
//! state is left.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3 as h3;
use uringcore_http::http3::{self, Connection};
use uringcore_http::webtransport::{Event, EventKind, Limits, SessionCommands};
use uringcore_quic as quic;

use crate::wire::Wire;

mod wire;

fuzz_target!(|data: &[u8]| {
    let [options, script @ ..] = data else { return };
    let mut site = Site::new(*options);
    let mut script = script;
    while let [kind, a, b, rest @ ..] = script {
        script = rest;
        let length = usize::from(*b & 0x3f).min(rest.len());
        if site.step(*kind, *a, *b, &rest[..length]) {
            script = &rest[length..];
        }
        site.check();
    }
    site.end();
});

/// A server with WebTransport, its host, and a client that sends arbitrary data.
struct Site {
    wire: Wire,
    http: Connection,
    sessions: BTreeMap<u64, Session>,
}

/// One session, as the host sees it.
#[derive(Debug, Default)]
struct Session {
    answered: bool,
    open: bool,
    ended: bool,
    /// Set if an event reported the end, and not if a call of the host was rejected.
    reported_ended: bool,
    streams: BTreeSet<u64>,
}

impl Site {
    fn new(options: u8) -> Self {
        let mut wire = Wire::new(8 << 10);
        let settings = h3::Settings {
            max_requests: Some(12),
            ..h3::Settings::default()
        };
        let limits = Limits {
            sessions: 3,
            streams_bidi: 4,
            streams_uni: 3,
            window: 1_000,
            early_streams: 2,
            early_datagram_bytes: 100,
            early_capsule_bytes: 50,
            ..Limits::default()
        };
        let (quic, now) = wire.server().expect("it is open");
        let http =
            Connection::with_webtransport(quic, settings, http3::Limits::default(), limits, now);
        let mut site = Self {
            wire,
            http,
            sessions: BTreeMap::new(),
        };
        // SETTINGS of each draft, with H3_DATAGRAM; flow control with some credit, or none.
        let announced: &[u8] = match options & 3 {
            0 => b"\x33\x01\xab\x60\x37\x42\x01",
            1 => b"\x33\x01\xc0\x00\x00\x00\xc6\x71\x70\x6a\x05",
            2 => b"\x33\x01\xac\x7c\xf0\x00\x01\x6b\x61\x40\x64\x6b\x64\x02\x6b\x65\x02",
            _ => b"\x33\x01\xac\x7c\xf0\x00\x01",
        };
        if options & 4 == 0 {
            let frame = [&[0x00, 0x04, announced.len() as u8][..], announced].concat();
            site.wire.write(2, &frame, false);
        }
        site.pass(Duration::from_millis(100));
        site
    }

    /// Performs one action of one side. Returns true if it consumed the bytes.
    fn step(&mut self, kind: u8, a: u8, b: u8, bytes: &[u8]) -> bool {
        let stream_id = match a & 0x20 {
            0 => u64::from(a & 0x1f) * 4,
            _ => u64::from(a % 8) * 4 + 2,
        };
        let session_id = u64::from(b & 7) * 4;
        let ends = a & 0x40 != 0;
        match kind % 19 {
            0 => {
                self.wire.write(stream_id, bytes, ends);
                return true;
            }
            // The header of a session's stream.
            1 | 2 => {
                let signal = if stream_id & 2 == 0 { 0x41 } else { 0x54 };
                self.wire
                    .write(stream_id, &[0x40, signal, session_id as u8], ends);
            }
            3 => self.wire.write(stream_id, CONNECT, ends),
            4 | 5 => self
                .wire
                .write(session_id, CAPSULES[usize::from(a) % CAPSULES.len()], ends),
            6 => {
                let datagram = [&[b][..], bytes].concat();
                let _ = self.wire.client(|quic| quic.send_datagram(datagram.into()));
                return true;
            }
            7 => drop(
                self.wire
                    .client(|quic| quic.reset_stream(stream_id, u64::from(b))),
            ),
            8 => drop(
                self.wire
                    .client(|quic| quic.stop_stream(stream_id | u64::from(b & 1), 7)),
            ),
            9 => self.pass(Duration::from_millis(u64::from(b) * 4)),
            10 => self.tick(Duration::from_millis(u64::from(b) * 100)),
            11 | 12 => self.answer(session_id, a),
            13 => self.read(stream_id | u64::from(b & 1), usize::from(b)),
            14 => self.send(stream_id | u64::from(b & 1), usize::from(b) * 16, ends),
            15 => self.open(session_id, a & 1 != 0),
            16 => self.finish(session_id, a),
            17 => self.reset(stream_id | u64::from(b & 1), u32::from(a)),
            _ => self.forget(stream_id | u64::from(b & 1)),
        }
        false
    }

    // The host's side

    fn with_server<R>(
        &mut self,
        run: impl FnOnce(&mut SessionCommands<'_>, &mut quic::Connection, Instant) -> R,
    ) -> Option<R> {
        let (quic, now) = self.wire.server()?;
        let mut handle = self.http.webtransport().expect("it is attached");
        let result = run(&mut handle, quic, now);
        self.take_events();
        Some(result)
    }

    fn answer(&mut self, session_id: u64, how: u8) {
        let Some(session) = self.sessions.get_mut(&session_id) else {
            return;
        };
        let may = !session.answered && !session.ended;
        let accepts = how & 3 != 0;
        session.answered = true;
        session.open |= may && accepts;
        session.ended |= may && !accepts;
        let done = self.with_server(|handle, quic, now| match accepts {
            true => handle.accept(quic, session_id, &[], None, now),
            false => handle.refuse(quic, session_id, 404, &[], now),
        });
        let is_done = done.is_some_and(|done| done.is_ok());
        assert!(may || !is_done);
        // HTTP/3 may have ended before its host received the event, or the client may have stopped
        // the response.
        if let Some(session) = self
            .sessions
            .get_mut(&session_id)
            .filter(|_| may && !is_done)
        {
            session.open = false;
            (session.answered, session.ended) = (session.reported_ended, session.reported_ended);
        }
    }

    fn read(&mut self, stream_id: u64, max: usize) {
        self.with_server(|handle, quic, now| handle.read_stream(quic, stream_id, max, now));
    }

    fn send(&mut self, stream_id: u64, size: usize, ends: bool) {
        self.with_server(|handle, quic, now| {
            if !handle.is_stream_full(quic, stream_id) {
                let data = Bytes::from(vec![b'y'; size]);
                let _ = handle.send_stream(quic, stream_id, data, ends, now);
            }
        });
    }

    fn open(&mut self, session_id: u64, uni: bool) {
        let opened =
            self.with_server(|handle, quic, now| handle.open_stream(quic, session_id, uni, now));
        if let Some(Ok(Some(stream_id))) = opened {
            let session = self.sessions.get_mut(&session_id).expect("it was reported");
            assert!(session.open && session.streams.insert(stream_id));
        }
    }

    fn finish(&mut self, session_id: u64, how: u8) {
        self.with_server(|handle, quic, now| match how % 4 {
            0 => handle.close(quic, session_id, 7, "why", now),
            1 => handle.abort(quic, session_id, h3::Code::H3_INTERNAL_ERROR, now),
            2 => handle.drain(quic, session_id, now),
            _ => {
                let _ = handle.send_datagram(quic, session_id, b"datagram");
            }
        });
    }

    fn reset(&mut self, stream_id: u64, code: u32) {
        self.with_server(|handle, quic, now| handle.reset_stream(quic, stream_id, code, now));
    }

    fn forget(&mut self, stream_id: u64) {
        for session in self.sessions.values_mut() {
            session.streams.remove(&stream_id);
        }
        self.with_server(|handle, quic, now| handle.forget_stream(quic, stream_id, now));
    }

    fn tick(&mut self, after: Duration) {
        self.pass(after);
        if let Some((quic, now)) = self.wire.server() {
            self.http.tick(quic, now);
        }
        self.take_events();
    }

    /// Advances time, and processes the resulting events.
    fn pass(&mut self, time: Duration) {
        for event in self.wire.pass(time) {
            if event.is_about_streams()
                && let Some((quic, now)) = self.wire.server()
            {
                self.http.handle(quic, event, now);
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.http.poll_event() {
            match event {
                http3::Event::Session { session_id, .. } => {
                    let known = self.sessions.insert(session_id, Session::default());
                    assert!(known.is_none(), "{session_id} is reported again");
                }
                http3::Event::Request { stream_id, .. } => self.refuse(stream_id),
                _ => {}
            }
        }
        let mut handle = self.http.webtransport().expect("it is attached");
        let reported: Vec<Event> = std::iter::from_fn(|| handle.poll_event()).collect();
        reported.into_iter().for_each(|event| self.reported(event));
    }

    /// Rejects a request that opens no session.
    fn refuse(&mut self, stream_id: u64) {
        if let Some((quic, now)) = self.wire.server() {
            let lines: [(&[u8], &[u8]); 1] = [(b":status", b"404")];
            let _ = self.http.send_headers(quic, stream_id, &lines, true, now);
        }
        self.http.done(stream_id, self.wire.pair.now);
    }

    fn reported(&mut self, event: Event) {
        let session = self.sessions.get_mut(&event.session_id);
        let session = session.unwrap_or_else(|| panic!("{event:?} before its request"));
        assert_eq!(
            session.ended,
            event.what == EventKind::Released,
            "{event:?}"
        );
        match event.what {
            EventKind::Opened { stream_id, .. } => {
                assert!(session.open && session.streams.insert(stream_id));
            }
            EventKind::Ended { .. } => {
                (session.ended, session.reported_ended) = (true, true);
                session.open = false;
                session.streams.clear();
            }
            EventKind::Quic(quic::Event::StreamReadable { stream_id }) => {
                assert!(session.streams.contains(&stream_id));
            }
            EventKind::Quic(_) => assert!(session.open),
            EventKind::Draining | EventKind::Released => {}
            other => panic!("{other:?} at a server"),
        }
    }

    // Invariants

    fn check(&mut self) {
        let open = self.sessions.values().filter(|session| !session.ended);
        let open = open.count();
        let mut handle = self.http.webtransport().expect("it is attached");
        assert!(handle.poll_event().is_none());
        // A session whose request is not yet reported does not exist for the host.
        assert!(
            (open..=3).contains(&handle.sessions()),
            "{:?}",
            self.sessions
        );
        assert!(handle.streams() < 200);
    }

    /// The host ends all sessions, and the client disconnects.
    fn end(&mut self) {
        let now = self.wire.pair.now;
        let ids: Vec<u64> = self.sessions.keys().copied().collect();
        for session_id in ids {
            self.with_server(|handle, quic, now| handle.close(quic, session_id, 0, "", now));
        }
        self.wire.client(|quic| quic.close(now, 0x100, None, b""));
        self.pass(Duration::from_secs(1));
        self.http
            .webtransport()
            .expect("it is attached")
            .connection_lost();
        self.take_events();
        let handle = self.http.webtransport().expect("it is attached");
        assert_eq!((handle.sessions(), handle.streams()), (0, 0));
        assert!(self.sessions.values().all(|session| session.ended));
    }
}

/// HEADERS of an extended CONNECT for "webtransport" of "/" at "a".
const CONNECT: &[u8] = b"\x01\x20\x00\x00\xcf\xd7\xc1\x50\x01a\
    \x27\x02:protocol\x0cwebtransport";

/// DATA frames with content that is valid on a CONNECT stream.
const CAPSULES: &[&[u8]] = &[
    b"\x00\x08\x68\x43\x05\x00\x00\x00\x05x",
    b"\x00\x05\x80\x00\x78\xae\x00",
    b"\x00\x06\x99\x0b\x4d\x3d\x01\x3f",
    b"\x00\x07\x99\x0b\x4d\x3d\x02\x44\x00",
    b"\x00\x06\x99\x0b\x4d\x3f\x01\x08",
    b"\x00\x06\x99\x0b\x4d\x40\x01\x08",
    b"\x00\x06\x99\x0b\x4d\x43\x01\x08",
    b"\x00\x06\x99\x0b\x4d\x3e\x01\x08",
    b"\x00\x04\x17\x02ab",
    b"\x00\x02\x68\x43",
    b"\x00\x03\x17\x20a",
    b"\x00\x00",
];
