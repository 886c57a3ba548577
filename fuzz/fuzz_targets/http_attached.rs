//! Invariant: for any use of streams by a client, HTTP/3 attached to a server's connection does not
//! panic and keeps no more state than its bounds. A request's first event is its only start, its
//! content ends at most once, it finishes at most once, and no event follows. Once the host has
//! responded and the client has read, no state is left.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::{self as h3, Code};
use uringcore_http::http3::{Connection, Event, Limits};
use uringcore_quic as quic;

use crate::wire::Wire;

mod wire;

fuzz_target!(|data: &[u8]| {
    // Excludes allocations that the process makes once.
    static WARM: OnceLock<()> = OnceLock::new();
    WARM.get_or_init(|| Site::new(0).end());
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

/// A server with HTTP attached, its host, and a client that sends arbitrary data.
struct Site {
    wire: Wire,
    http: Connection,
    requests: BTreeMap<u64, Request>,
    used_up: bool,
    closed: bool,
    allocated_before: isize,
}

/// One request, as the host sees it.
#[derive(Debug, Default)]
struct Request {
    /// All its content was delivered.
    ended: bool,
    aborted: bool,
    timed_out: bool,
    /// The host has responded to it or cancelled it.
    answered: bool,
    /// The host has released it.
    done: bool,
    waits_for_room: bool,
}

impl Site {
    fn new(options: u8) -> Self {
        let mut wire = Wire::new(4096);
        let settings = h3::Settings {
            max_field_section_size: 512,
            max_fields: 12,
            max_unfinished_size: Some(1024),
            max_blocked_size: 2048,
            max_requests: Some(12),
            qpack_max_table_capacity: 256,
            qpack_blocked_streams: 3,
            enable_connect_protocol: true,
            h3_datagram: true,
            ..h3::Settings::default()
        };
        let limits = Limits {
            open_requests: 6,
            requests: Some(20),
            early_resets: if options & 1 == 0 { 4 } else { 1000 },
            protocols: ["chat", "connect-udp"].map(Bytes::from).into(),
            ..Limits::default()
        };
        let (quic, now) = wire.server().expect("it is open");
        let http = Connection::new(quic, settings, limits, now);
        let mut site = Self {
            wire,
            http,
            requests: BTreeMap::new(),
            used_up: false,
            closed: false,
            allocated_before: 0,
        };
        if options & 2 == 0 {
            // A valid start: SETTINGS that allow our encoder a table, and both QPACK streams.
            site.wire
                .write(2, b"\x00\x04\x05\x01\x41\x00\x07\x02", false);
            site.wire.write(6, b"\x02\x3f\xe1\x01", false);
            site.wire.write(10, b"\x03", false);
        }
        site.pass(Duration::from_millis(100));
        site.allocated_before = ALLOCATED.load(Ordering::Relaxed);
        site
    }

    /// Performs one action of one side. Returns true if it consumed the bytes.
    fn step(&mut self, kind: u8, a: u8, b: u8, bytes: &[u8]) -> bool {
        let stream_id = match a & 0x20 {
            0 => u64::from(a & 0x1f) * 4,
            _ => u64::from(a % 6) * 4 + 2,
        };
        let ends = a & 0x40 != 0;
        match kind % 16 {
            0 => {
                self.wire.write(stream_id, bytes, ends);
                return true;
            }
            1..=3 => self
                .wire
                .write(stream_id, PIECES[usize::from(b) % PIECES.len()], ends),
            4 => {
                // Content in a frame of its own.
                let size = usize::from(b) * 8;
                let mut frame = vec![0, 0x40 | (size >> 8) as u8, size as u8];
                frame.resize(3 + size, b'x');
                self.wire.write(stream_id, &frame, ends);
            }
            5 => drop(
                self.wire
                    .client(|quic| quic.reset_stream(stream_id, u64::from(b))),
            ),
            6 => drop(
                self.wire
                    .client(|quic| quic.stop_stream(stream_id, u64::from(b))),
            ),
            // Data on the client's own unidirectional streams, or on the server's.
            7 => drop(
                self.wire
                    .client(|quic| quic.pause_stream(stream_id | u64::from(b & 1))),
            ),
            8 => drop(
                self.wire
                    .client(|quic| quic.resume_stream(stream_id | u64::from(b & 1))),
            ),
            9 => self.pass(Duration::from_millis(u64::from(b) * 4)),
            10 => self.tick(Duration::from_millis(u64::from(b) * 500)),
            11 | 12 => self.answer(stream_id, usize::from(b) * 64, ends),
            13 => self.wait(stream_id, b),
            14 => self.finish(stream_id, b),
            _ => match b {
                0 => drop(self.wire.client(|quic| quic.request_key_update())),
                1 => drop(self.with_server(|http, quic, now| http.go_away(quic, now))),
                2 | 3 => drop(self.with_server(|http, quic, now| http.announce_end(quic, now))),
                4 => {
                    let now = self.wire.pair.now;
                    self.wire.client(|quic| quic.close(now, 0x100, None, b""));
                }
                5..=60 => {
                    let mut datagram = vec![a & 0x1f];
                    datagram.resize(usize::from(b), b'd');
                    // A datagram that finds no room is lost.
                    self.wire.client(|quic| {
                        let _ = quic.send_datagram(datagram.into());
                    });
                }
                61..=120 => {
                    let sent = self.with_server(|http, quic, now| {
                        http.send_datagram(quic, stream_id, &bytes_of(b), now)
                    });
                    let request = self.requests.get(&stream_id);
                    let is_over = request.is_none_or(|request| request.answered || request.aborted);
                    assert!(
                        !is_over || !matches!(sent, Some(Ok(_))),
                        "a datagram after the end"
                    );
                }
                _ => self.pass(Duration::from_millis(20)),
            },
        }
        false
    }

    // The host's side

    fn with_server<R>(
        &mut self,
        run: impl FnOnce(&mut Connection, &mut quic::Connection, std::time::Instant) -> R,
    ) -> Option<R> {
        let (quic, now) = self.wire.server()?;
        Some(run(&mut self.http, quic, now))
    }

    /// Sends a response, or more of it, unless no room is left.
    fn answer(&mut self, stream_id: u64, size: usize, ends: bool) {
        let Some(request) = self.requests.get(&stream_id) else {
            return;
        };
        if request.waits_for_room || request.done {
            return;
        }
        let was_over = request.answered || request.aborted;
        let content = Bytes::from(vec![b'y'; size]);
        let value = [b'v', size as u8];
        let fields: [(&[u8], &[u8]); 2] = [(b":status", b"200"), (b"x-same", &value)];
        let Some((sent, is_held_up)) = self.with_server(|http, quic, now| {
            let sent = match size % 3 {
                0 => http.send_data(quic, stream_id, content, ends, now),
                1 => http.send_headers(quic, stream_id, &fields, ends, now),
                _ => http.respond(quic, stream_id, &fields, content, ends, now),
            };
            let is_held_up = sent.is_ok() && http.is_held_up(quic, stream_id, now);
            (sent, is_held_up)
        }) else {
            return;
        };
        assert!(!was_over || sent.is_err(), "a response after its end");
        if let Some(request) = self.requests.get_mut(&stream_id) {
            request.answered |= ends && sent.is_ok();
            request.waits_for_room = is_held_up;
        }
    }

    fn wait(&mut self, stream_id: u64, how: u8) {
        let asks = |request: &Request| !request.done && !request.timed_out;
        if !self.requests.get(&stream_id).is_some_and(asks) {
            return;
        }
        self.with_server(|http, quic, now| match how % 3 {
            0 => http.wait_for_body(stream_id, now),
            1 => http.pause(quic, stream_id),
            _ => http.resume(quic, stream_id),
        });
    }

    /// Cancels or releases a request.
    fn finish(&mut self, stream_id: u64, how: u8) {
        let Some(request) = self.requests.get_mut(&stream_id) else {
            return;
        };
        if request.done {
            return;
        }
        request.answered = true;
        request.done = how & 1 == 0;
        let is_done = request.done;
        self.with_server(|http, quic, now| {
            http.cancel(quic, stream_id, Code::H3_INTERNAL_ERROR, now);
            if is_done {
                http.resume(quic, stream_id);
            }
        });
        if is_done {
            // Independent of the connection's state.
            self.http.done(stream_id, self.wire.pair.now);
        }
        self.take_events();
    }

    fn tick(&mut self, after: Duration) {
        self.pass(after);
        self.with_server(|http, quic, now| http.tick(quic, now));
        self.take_events();
    }

    /// Advances time, and processes the resulting events.
    fn pass(&mut self, time: Duration) {
        for event in self.wire.pass(time) {
            self.closed |= matches!(event, quic::Event::Closed { .. });
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
            self.reported(&event);
        }
    }

    fn reported(&mut self, event: &Event) {
        let stream_id = match event {
            Event::Request {
                stream_id, ended, ..
            } => {
                let request = Request {
                    ended: *ended,
                    ..Request::default()
                };
                let known = self.requests.insert(*stream_id, request);
                assert!(known.is_none(), "{stream_id} is reported again");
                return;
            }
            Event::Body { stream_id, .. }
            | Event::Datagram { stream_id, .. }
            | Event::BodyTimedOut { stream_id }
            | Event::Aborted { stream_id }
            | Event::Writable { stream_id } => *stream_id,
            Event::UsedUp => {
                assert!(!std::mem::replace(&mut self.used_up, true));
                return;
            }
            Event::Idle => return assert!(self.http.is_drained()),
            Event::Drained | Event::TooSlow(_) => return,
            Event::Session { .. } => unreachable!("WebTransport is not attached"),
        };
        let request = self.requests.get_mut(&stream_id).expect("reported before");
        assert!(!request.done && !request.aborted, "{event:?} after the end");
        match event {
            Event::Body { pieces, ended, .. } => {
                assert!(
                    !request.ended && (*ended || !pieces.is_empty()),
                    "{event:?}"
                );
                request.ended = *ended;
            }
            Event::Datagram { .. } => assert!(!request.answered, "nobody asks any more"),
            Event::BodyTimedOut { .. } => {
                assert!(!request.ended && !std::mem::replace(&mut request.timed_out, true));
            }
            Event::Aborted { .. } => {
                assert!(!request.answered, "nobody has lost anything");
                request.aborted = true;
            }
            _ => assert!(std::mem::take(&mut request.waits_for_room), "{event:?}"),
        }
    }

    // Invariants

    fn check(&mut self) {
        let open = self.requests.values().filter(|request| !request.done);
        assert_eq!(self.http.open_requests(), open.count());
        assert!(self.http.open_requests() <= 6 * 8);
        let queued = |quic: &quic::Connection| [3, 7, 11].map(|id| quic.send_queue_bytes(id));
        if let Some(queued) = self.with_server(|_, quic, _| queued(quic)) {
            assert!(queued.iter().all(|bytes| *bytes < 16 << 10), "{queued:?}");
        }
        let allocated = ALLOCATED.load(Ordering::Relaxed) - self.allocated_before;
        assert!(allocated < HELD_MAX, "{allocated} bytes are held");
    }

    /// The host responds to all requests, the client reads all responses.
    fn end(&mut self) {
        let own = [3, 7, 11];
        for stream_id in (0..32).map(|number| number * 4).chain(own) {
            self.wire.client(|quic| quic.resume_stream(stream_id));
        }
        // Each response may make room for another stream that the client was waiting to open.
        for _ in 0..8 {
            let open: Vec<u64> = self.requests.keys().copied().collect();
            for stream_id in open {
                self.finish(stream_id, 0);
            }
            self.tick(Duration::from_secs(8));
            self.check();
        }
        assert_eq!(self.http.open_requests(), 0, "{:?}", self.requests);
        assert!(self.closed || self.http.is_drained(), "something is left");
    }
}

fn bytes_of(length: u8) -> Vec<u8> {
    vec![b'd'; usize::from(length)]
}

/// Counts what is allocated.
struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator; the counter touches no allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bound of both ends and the link between them. Windows are 64 KiB; the rest is responses of
/// the host: at most the high-water mark of each of twelve streams.
const HELD_MAX: isize = 16 << 20;

/// Inputs that are valid on some stream.
const PIECES: &[&[u8]] = &[
    // HEADERS: a GET of "/", with fields of QPACK's tables, and one with a literal field.
    b"\x01\x08\x00\x00\xd1\xd7\xc1\x50\x01a",
    b"\x01\x0c\x00\x00\xd1\xd7\xc1\x50\x01a\x21x\x01y",
    // A POST, with and without the length of its content.
    b"\x01\x08\x00\x00\xd4\xd7\xc1\x50\x01a",
    b"\x01\x0b\x00\x00\xd4\xd7\xc1\x50\x01a\x54\x013",
    // A request that refers to the table's first entry, and the instruction that inserts it.
    b"\x01\x09\x02\x00\xd1\xd7\xc1\x50\x01a\x80",
    b"\x41x\x01y",
    // A CONNECT, trailers, the beginning of a section that never ends.
    b"\x01\x06\x00\x00\xcf\x50\x01a",
    b"\x01\x05\x00\x00\x21t\x01t",
    b"\x01\x40\xff\x00\x00",
    // Extended CONNECTs of the host's two protocols; capsules: a datagram, an unknown one, and a
    // truncated one.
    b"\x01\x18\x00\x00\xcf\x27\x02:protocol\x04chat\xd7\xc1\x50\x01a",
    b"\x01\x1f\x00\x00\xcf\x27\x02:protocol\x0bconnect-udp\xd7\xc1\x50\x01a",
    b"\x00\x05\x00\x03abc",
    b"\x00\x04\x29\x02xy",
    b"\x00\x02\x00\x09",
    // DATA, DATA without content, DATA longer than what follows.
    b"\x00\x03abc",
    b"\x00\x00",
    b"\x00\x40\xffabc",
    // Unknown frames and streams.
    b"\x21\x02ab",
    b"\x40\x21",
    // Stream types.
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x03",
    // SETTINGS, GOAWAY, MAX_PUSH_ID, PRIORITY_UPDATE, CANCEL_PUSH.
    b"\x04\x02\x01\x40\x40",
    b"\x07\x01\x00",
    b"\x0d\x01\x04",
    b"\x80\x0f\x07\x00\x04\x00u=1",
    b"\x03\x01\x00",
    // The decoder stream: an increment, an acknowledgement, a cancellation.
    b"\x01",
    b"\x80",
    b"\x40",
    // The encoder stream: another capacity, a duplicate.
    b"\x20",
    b"\x00",
];
