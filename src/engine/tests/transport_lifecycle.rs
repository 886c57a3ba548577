//! How streams and datagram sockets end, and the events that report it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use crate::common::{BACKENDS, engine, iterate, iterate_until};
use bytes::Bytes;
use uringcore_engine::{DatagramSize, Engine, EngineEvent, Key, SharedState, WriteOutcome};
use uringcore_io::SendMsg;

/// One end of a socket pair, on the engine. Nothing is read from the other end unless a test does it.
struct Case {
    engine: Engine,
    is_stream: bool,
    name: String,
    key: Key,
    shared: SharedState,
    fd: OwnedFd,
    peer: OwnedFd,
}

impl Case {
    /// One case for each kind of transport and each backend.
    fn all() -> impl Iterator<Item = Case> {
        let kinds = BACKENDS.map(|backend| [true, false].map(|is_stream| (backend, is_stream)));
        kinds.into_iter().flatten().map(|(backend, is_stream)| {
            let mut engine = engine(backend);
            let (fd, peer): (OwnedFd, OwnedFd) = if is_stream {
                let (one, other) = UnixStream::pair().expect("pair");
                one.set_nonblocking(true).expect("nonblocking");
                (one.into(), other.into())
            } else {
                let (one, other) = UnixDatagram::pair().expect("pair");
                one.set_nonblocking(true).expect("nonblocking");
                (one.into(), other.into())
            };
            let shared = SharedState::default();
            let key = if is_stream {
                engine
                    .transports()
                    .open_stream(fd.as_raw_fd(), shared.clone())
            } else {
                engine.transports().open_datagram(
                    fd.as_raw_fd(),
                    DatagramSize::Large,
                    shared.clone(),
                )
            };
            engine.transports().start(key);
            iterate(&mut engine, Duration::ZERO, |_, _| {});
            let name = format!("{} stream: {is_stream}", backend.as_str());
            Case {
                engine,
                is_stream,
                name,
                key,
                shared,
                fd,
                peer,
            }
        })
    }

    fn write(&mut self, size: usize) -> WriteOutcome {
        let data = Bytes::from(vec![7; size]);
        if self.is_stream {
            return self.engine.transports().write(self.key, data);
        }
        let message = SendMsg {
            data,
            to: None,
            segment_size: None,
            ecn: None,
            src_ip: None,
        };
        self.engine.transports().send_datagram(self.key, message)
    }

    /// Writes until the socket is full and data is queued.
    fn fill(&mut self) {
        while self.write(1000) == WriteOutcome::Queued {}
        assert!(self.shared.queued() > 0, "{}", self.name);
    }

    /// Runs a loop iteration. Returns the names of the transport's events.
    fn reported(&mut self) -> Vec<&'static str> {
        let mut reported = Vec::new();
        iterate(&mut self.engine, Duration::from_millis(5), |_, event| {
            reported.push(name(&event));
        });
        reported
    }

    fn ends(mut self) {
        if !self.engine.transports().release(self.key, Some(self.fd)) {
            let mut reported = Vec::new();
            iterate_until(
                &mut self.engine,
                |_, event| reported.push(name(&event)),
                |engine| engine.stats().streams + engine.stats().datagrams == 0,
            );
            assert_eq!(reported, ["closed"], "{}", self.name);
        }
        assert_eq!(self.engine.stats().driver.in_flight, 0, "{}", self.name);
    }
}

fn name(event: &EngineEvent) -> &'static str {
    match event {
        EngineEvent::Writable { .. } => "writable",
        EngineEvent::Flushed { .. } => "flushed",
        EngineEvent::Failed { .. } | EngineEvent::DatagramError { .. } => "failed",
        EngineEvent::Lost { .. } => "lost",
        EngineEvent::Closed { .. } => "closed",
        _ => "data",
    }
}

#[test]
fn a_close_with_an_empty_queue_queues_its_event_at_once() {
    for mut case in Case::all() {
        case.write(10);
        case.engine.transports().close(case.key);
        assert!(
            case.shared.is_closing() && case.shared.is_quiet(),
            "{}",
            case.name
        );
        // The event is queued without a loop iteration.
        assert_eq!(case.engine.events_ready(), 1, "{}", case.name);
        assert_eq!(case.reported(), ["lost"], "{}", case.name);
        assert_eq!(case.reported(), Vec::<&str>::new(), "{}", case.name);
        case.ends();
    }
}

#[test]
fn a_close_with_unsent_bytes_is_reported_when_they_are_sent() {
    for mut case in Case::all() {
        case.fill();
        case.engine.transports().close(case.key);
        assert!(
            case.shared.is_closing() && !case.shared.is_quiet(),
            "{}",
            case.name
        );
        assert_eq!(case.write(1), WriteOutcome::Lost, "{}", case.name);
        assert_eq!(case.reported(), Vec::<&str>::new(), "{}", case.name);
        drain(&case.peer);
        let mut reported = Vec::new();
        let end = Instant::now() + Duration::from_secs(10);
        while !reported.contains(&"lost") {
            assert!(Instant::now() < end, "{}: {reported:?}", case.name);
            drain(&case.peer);
            reported.extend(case.reported());
        }
        assert_eq!(reported, ["writable", "lost"], "{}", case.name);
        assert_eq!(case.shared.queued(), 0, "{}", case.name);
        case.ends();
    }
}

#[test]
fn an_abort_drops_the_queue_of_a_closing_transport_and_is_reported_once() {
    for mut case in Case::all() {
        case.fill();
        case.engine.transports().close(case.key);
        case.engine.transports().abort(case.key);
        case.engine.transports().abort(case.key);
        assert!(
            case.shared.is_quiet() && case.shared.queued() == 0,
            "{}",
            case.name
        );
        assert_eq!(case.reported(), ["lost"], "{}", case.name);
        assert_eq!(case.reported(), Vec::<&str>::new(), "{}", case.name);
        case.ends();
    }
}

/// The kernel takes the rest of the queue before the host takes the event that `close` has queued.
#[test]
fn a_queue_sent_before_the_close_event_is_taken_is_reported_in_order() {
    for mut case in Case::all() {
        case.fill();
        case.engine.transports().close(case.key);
        let end = Instant::now() + Duration::from_secs(10);
        while !case.shared.is_quiet() {
            assert!(Instant::now() < end, "{}", case.name);
            drain(&case.peer);
            case.engine.flush(Instant::now());
            case.engine
                .enter(Some(Duration::from_millis(5)))
                .expect("enter");
            case.engine.process(Instant::now());
        }
        // Three entries are queued: that of `close`, then `Writable`, then the entry for the empty queue.
        let entries = case.engine.events_ready();
        let reported: Vec<_> = (0..entries)
            .map(|_| case.engine.take_event().map(|event| name(&event)))
            .collect();
        assert_eq!(
            reported,
            [Some("lost"), Some("writable"), None],
            "{}",
            case.name
        );
        case.ends();
    }
}

#[test]
fn a_failure_is_reported_before_the_end() {
    for mut case in Case::all() {
        let gone = std::mem::replace(
            &mut case.peer,
            OwnedFd::from(UnixDatagram::unbound().expect("any")),
        );
        case.engine.transports().pause_reading(case.key);
        drop(gone);
        case.write(10);
        case.engine.transports().close(case.key);
        let mut reported = Vec::new();
        let end = Instant::now() + Duration::from_secs(10);
        while !reported.contains(&"lost") {
            assert!(Instant::now() < end, "{}: {reported:?}", case.name);
            reported.extend(case.reported());
        }
        assert_eq!(reported, ["failed", "lost"], "{}", case.name);
        case.ends();
    }
}

#[test]
fn a_requested_flush_event_comes_when_the_queue_is_empty() {
    for mut case in Case::all() {
        assert!(
            case.engine.transports().notify_when_flushed(case.key),
            "{}",
            case.name
        );
        case.fill();
        assert!(
            !case.engine.transports().notify_when_flushed(case.key),
            "{}",
            case.name
        );
        let mut reported = Vec::new();
        let end = Instant::now() + Duration::from_secs(10);
        while !reported.contains(&"flushed") {
            assert!(Instant::now() < end, "{}: {reported:?}", case.name);
            drain(&case.peer);
            reported.extend(case.reported());
        }
        assert_eq!(reported, ["writable", "flushed"], "{}", case.name);
    }
}

/// Reads all data that is available.
fn drain(fd: &OwnedFd) {
    let socket = socket2::SockRef::from(fd);
    socket.set_nonblocking(true).expect("nonblocking");
    let mut room = [std::mem::MaybeUninit::uninit(); 65536];
    while socket.recv(&mut room).is_ok_and(|count| count > 0) {}
}
