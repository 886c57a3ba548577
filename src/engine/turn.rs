//! The turn: one [`Engine`] owns a driver and the tables, and routes completions to their owners.
//!
//! The host's loop is `flush`, `enter`, `process`, then `next_event` until it is empty. Commands
//! between turns only change state and list their owner as dirty; `flush` turns that into queued
//! operations, and `enter` submits them with the same system call that waits.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use bytes::Bytes;
use uringcore_io::{
    Backend, Completion, Driver, DriverConfig, DriverStats, Entered, SendMsg, SetupError, Waker,
};

use crate::datagram::{DatagramSize, DatagramSocket, SendOutcome};
use crate::endpoints::Endpoints;
use crate::event::{Event, StreamBytes};
use crate::listener::Listener;
use crate::ops::Ops;
use crate::poll::{Direction, Watchers};
use crate::queue::{Queue, Queued};
use crate::quic_endpoint::QuicEndpoint;
use crate::stream::{CloseOutcome, Stream, WriteOutcome};
use crate::table::{Key, Table};
use crate::token::{Kind, Route};

pub struct Engine {
    pub(crate) driver: Driver,
    streams: Table<Stream>,
    listeners: Table<Listener>,
    datagrams: Table<DatagramSocket>,
    quic: Endpoints,
    watchers: Watchers,
    pub(crate) ops: Ops,
    /// Descriptors that a stream or datagram transport drives.
    transport_fds: HashMap<RawFd, Key>,
    dirty_streams: Vec<Key>,
    dirty_datagrams: Vec<Key>,
    batch: VecDeque<Completion>,
    pub(crate) events: Queue,
    turns: u64,
    /// When a busy loop last asked epoll.
    looked: Instant,
    /// System calls of streams that did not go through the driver.
    direct_sends: u64,
    /// Bytes that arrived for readers that had paused.
    bytes_held: u64,
    /// The same in datagrams.
    datagrams_held: u64,
}

/// Counters and gauges for `loop.stats()`.
#[derive(Clone, Copy, Debug)]
pub struct EngineStats {
    pub driver: DriverStats,
    pub turns: u64,
    /// System calls besides the driver's.
    pub direct_sends: u64,
    pub streams: usize,
    pub listeners: usize,
    pub datagrams: usize,
    pub readers: usize,
    pub writers: usize,
    pub ops: usize,
    pub quic_endpoints: usize,
    pub quic_connections: usize,
    /// Since the engine was made, of endpoints that are gone too.
    pub quic: uringcore_proto::quic::EndpointStats,
    pub events_queued: usize,
    /// Bytes that arrived for streams whose readers had paused, since the engine was made.
    pub bytes_held: u64,
    /// Datagrams that arrived for sockets whose readers had paused.
    pub datagrams_held: u64,
    /// Of the bytes held, those that still wait.
    pub backlog_bytes: usize,
    /// Accepted for sending and not with the kernel yet, streams and datagrams together.
    pub write_queue_bytes: usize,
}

impl Engine {
    pub fn new(config: &DriverConfig) -> Result<Self, SetupError> {
        Ok(Self {
            driver: Driver::new(config)?,
            streams: Table::default(),
            listeners: Table::default(),
            datagrams: Table::default(),
            quic: Endpoints::default(),
            watchers: Watchers::default(),
            ops: Ops::default(),
            transport_fds: HashMap::new(),
            dirty_streams: Vec::new(),
            dirty_datagrams: Vec::new(),
            batch: VecDeque::new(),
            events: Queue::default(),
            turns: 0,
            looked: Instant::now(),
            direct_sends: 0,
            bytes_held: 0,
            datagrams_held: 0,
        })
    }

    pub fn backend(&self) -> Backend {
        self.driver.backend()
    }

    pub fn fallback_reason(&self) -> Option<&str> {
        self.driver.fallback_reason()
    }

    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    pub fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// How many turns there have been.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    pub fn stats(&self) -> EngineStats {
        let streams: usize = self
            .streams
            .iter()
            .map(|(_, s)| s.write_queue_bytes())
            .sum();
        let datagrams = self.datagrams.iter().map(|(_, s)| s.write_queue_bytes());
        let datagrams: usize = datagrams.sum();
        EngineStats {
            driver: self.driver.stats(),
            turns: self.turns,
            direct_sends: self.direct_sends,
            streams: self.streams.len(),
            listeners: self.listeners.len(),
            datagrams: self.datagrams.len(),
            readers: self.watchers.count(Direction::Read),
            writers: self.watchers.count(Direction::Write),
            ops: self.ops.len(),
            quic_endpoints: self.quic.len(),
            quic_connections: self.quic.connections(),
            quic: self.quic.totals(),
            events_queued: self.events.len(),
            bytes_held: self.bytes_held,
            datagrams_held: self.datagrams_held,
            backlog_bytes: self.streams.iter().map(|(_, s)| s.backlog_bytes()).sum(),
            write_queue_bytes: streams + datagrams,
        }
    }

    /// True when a transport of this engine drives `fd` and is not closing, so that a watcher on it
    /// would steal its bytes.
    pub fn has_transport(&self, fd: RawFd) -> bool {
        self.transport_fds.get(&fd).is_some_and(|&key| {
            let stream = self.streams.get(key).filter(|s| s.raw_fd() == fd);
            let datagram = self.datagrams.get(key).filter(|s| s.raw_fd() == fd);
            stream.is_some_and(|s| !s.is_closing()) || datagram.is_some_and(|s| !s.is_closing())
        })
    }

    // The turn -----------------------------------------------------------------------------------

    /// Turns what was commanded since the last flush into queued operations. No system call.
    pub fn flush(&mut self, now: Instant) {
        // The lists keep their memory: they are needed again in the next turn.
        let alone = self.dirty_streams.len() == 1;
        for key in self.dirty_streams.drain(..) {
            if let Some(stream) = self.streams.get_mut(key) {
                if alone {
                    stream.send_alone();
                }
                self.direct_sends += stream.take_direct_sends();
                stream.flush(&mut self.driver, &mut self.events);
            }
        }
        for key in self.dirty_datagrams.drain(..) {
            if let Some(socket) = self.datagrams.get_mut(key) {
                socket.flush(&mut self.driver, &mut self.events);
            }
        }
        if self.watchers.needs_flush() {
            self.watchers.flush(&mut self.driver);
        }
        if self.quic.needs_flush() {
            self.quic.flush(&mut self.driver, now, &mut self.events);
        }
    }

    /// True if a turn that must not wait would do nothing at all; it is counted as one.
    ///
    /// With epoll the kernel cannot be asked for nothing. A host that watches but one descriptor, which
    /// is its way of being woken, asks it now and then (`is_time_to_look`).
    pub fn skip_turn(&mut self) -> bool {
        let is_quiet = self.events.len() == 0
            && self.dirty_streams.is_empty()
            && self.dirty_datagrams.is_empty()
            && !self.watchers.needs_flush()
            && self.quic.is_empty()
            && match self.driver.backend() {
                Backend::Uring => !self.driver.needs_enter(),
                Backend::Epoll => self.driver.waits_for_one_at_most() && !self.is_time_to_look(),
            };
        self.turns += u64::from(is_quiet);
        is_quiet
    }

    /// Whether epoll has not been asked for a while: the clock is read once in so many turns.
    fn is_time_to_look(&mut self) -> bool {
        if !self.turns.is_multiple_of(TURNS_WITHOUT_THE_CLOCK) {
            return false;
        }
        let now = Instant::now();
        let is_time = now.saturating_duration_since(self.looked) >= TIME_WITHOUT_A_LOOK;
        if is_time {
            self.looked = now;
        }
        is_time
    }

    /// True when a turn that must not wait still needs the system call.
    pub fn needs_enter(&self) -> bool {
        self.driver.needs_enter()
    }

    /// How many events are ready: at most as many `next_event` gives.
    pub fn events_ready(&self) -> usize {
        self.events.len()
    }

    /// Submits what is queued and waits for at most `timeout` (`None`: until something happens), or
    /// less when an endpoint's timer is due. The host may release its interpreter lock around this.
    pub fn enter(&mut self, timeout: Option<Duration>) -> io::Result<Entered> {
        self.driver.enter(timeout)
    }

    /// True when somebody here goes by the clock: the times that `flush` and `process` are told matter.
    pub fn has_endpoints(&self) -> bool {
        !self.quic.is_empty()
    }

    /// The earliest timer of an endpoint, as of the last flush.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.quic.next_deadline()
    }

    /// Routes all ready completions and due timers. What the host is to hear is in `next_event`.
    pub fn process(&mut self, now: Instant) {
        self.turns += 1;
        let mut batch = std::mem::take(&mut self.batch);
        self.driver.reap(&mut batch);
        for completion in batch.drain(..) {
            self.route(completion, now);
        }
        self.batch = batch;
        if !self.quic.is_empty() {
            self.quic.handle_timeouts(now, &mut self.events);
        }
    }

    /// The next thing that the host is to hear of.
    pub fn next_event(&mut self) -> Option<Event> {
        while let Some(queued) = self.events.pop() {
            let event = match queued {
                Queued::Event(event) => self.unless_held(event),
                Queued::HeldStream(key) => self.held_data(key),
                Queued::HeldDatagram(key) => self.held_datagram(key),
            };
            if let Some(event) = event {
                self.note_told(&event);
                return Some(event);
            }
        }
        None
    }

    /// Whether the next event is data of this stream: a host that gathers waits for it.
    pub fn next_is_data_of(&self, key: Key) -> bool {
        matches!(
            self.events.front(),
            Some(Queued::Event(Event::StreamData { stream, .. })) if *stream == key
        )
    }

    /// `event`, unless its transport was paused or closed since it was queued.
    fn unless_held(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::DatagramReceived { socket, datagram } => {
                let Some(datagram) = self.datagrams.get_mut(socket)?.deliver(datagram) else {
                    self.datagrams_held += 1;
                    return None;
                };
                Some(Event::DatagramReceived { socket, datagram })
            }
            Event::DatagramError { socket, .. } => {
                if let Some(socket) = self.datagrams.get_mut(socket) {
                    socket.error_told();
                }
                Some(event)
            }
            Event::StreamData { stream, data } => {
                let size = data.len();
                let reader = self.streams.get_mut(stream)?;
                let Some(data) = reader.deliver(data) else {
                    self.bytes_held += size as u64;
                    return None;
                };
                if reader.awaits_flush() && reader.mark_dirty() {
                    self.dirty_streams.push(stream);
                }
                Some(Event::StreamData { stream, data })
            }
            Event::StreamEof { stream } => {
                let held = self.streams.get_mut(stream)?.hold_end_if_paused(None);
                (!held).then_some(event)
            }
            Event::StreamReadFailed { stream, error } => {
                let held = self
                    .streams
                    .get_mut(stream)?
                    .hold_end_if_paused(Some(error));
                (!held).then_some(event)
            }
            _ => Some(event),
        }
    }

    /// A piece of what the stream held. The next turn has the next one, or a receive.
    fn held_data(&mut self, stream: Key) -> Option<Event> {
        let data = self.command(stream, |stream, _| stream.deliver_held())??;
        Some(Event::StreamData { stream, data })
    }

    /// The same of a datagram socket.
    fn held_datagram(&mut self, socket: Key) -> Option<Event> {
        let datagram = self.datagram_command(socket, |socket, _, _| socket.deliver_held())??;
        Some(Event::DatagramReceived { socket, datagram })
    }

    /// What is over, or can go on, now that the host hears of it. A closed transport's index is free for
    /// another one no sooner: a host that finds its own things by index may meet the successor in an
    /// event before this one.
    fn note_told(&mut self, event: &Event) {
        match event {
            Event::StreamClosed { stream, .. } => {
                self.streams.remove(*stream);
            }
            Event::DatagramClosed { socket, .. } => {
                self.datagrams.remove(*socket);
            }
            Event::OpDone { op, .. } => self.ops.release(*op),
            Event::PollReady(ready) => self.watchers.told(*ready),
            _ => {}
        }
    }

    /// Whether [`rest`](Self::rest) is no more than a note: nothing has to be sent or taken back.
    pub fn rests_at_once(&self) -> bool {
        self.driver.parks_at_once()
    }

    /// The host stops running turns for an unknown time: what it commanded last is sent, and all that
    /// waits is taken back from the kernel, so that the next turn may run on any thread.
    pub fn rest(&mut self, limit: Duration) {
        self.driver.park(limit);
    }

    /// Cancels everything and waits up to `limit` for the kernel to let go. What was accepted for
    /// sending is sent, as far as the sockets take it without waiting.
    pub fn shutdown(&mut self, limit: Duration) {
        self.flush(Instant::now());
        self.events.clear();
        self.driver.shutdown(limit);
    }

    /// In a forked child: leaves the parent's kernel state alone, and what it has begun to it: connections
    /// that were accepted and not told yet, QUIC endpoints, and what was commanded since the last flush
    /// where the host did not rest before, because another thread forked.
    pub fn after_fork_in_child(&mut self) {
        self.driver.after_fork_in_child();
        self.events.retain_mut(|event| {
            if let Event::OpDone { outcome, .. } = event {
                outcome.leave_connection_to_parent();
            }
            !matches!(event, Event::Accepted { .. })
        });
        for &key in &self.dirty_streams {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.leave_queue_to_parent(&mut self.driver, &mut self.events);
            }
        }
        for &key in &self.dirty_datagrams {
            if let Some(socket) = self.datagrams.get_mut(key) {
                socket.leave_queue_to_parent(&mut self.events);
            }
        }
        self.quic.leave_to_parent();
    }

    fn route(&mut self, completion: Completion, now: Instant) {
        let Some(Route { kind, sub, key }) = Route::parse(completion.token) else {
            debug_assert!(false, "a completion with a token that no route made");
            return;
        };
        let (driver, events) = (&mut self.driver, &mut self.events);
        match kind {
            Kind::Stream => {
                if let Some(stream) = self.streams.get_mut(key) {
                    stream.handle_completion(sub, completion, driver, events);
                }
            }
            Kind::Listener => {
                if let Some(listener) = self.listeners.get_mut(key) {
                    listener.handle_completion(completion, driver, events);
                    if listener.has_ended() {
                        self.listeners.remove(key);
                    }
                }
            }
            Kind::Datagram => {
                if let Some(socket) = self.datagrams.get_mut(key) {
                    socket.handle_completion(sub, completion, driver, events);
                }
            }
            Kind::Poll => {
                let fired = self
                    .watchers
                    .handle_completion(sub, key, &completion.outcome);
                if let Some(ready) = fired {
                    events.push(Event::PollReady(ready));
                }
            }
            Kind::Op => {
                if self.ops.handle_completion(key) {
                    events.push(Event::OpDone {
                        op: key,
                        outcome: completion.outcome,
                    });
                }
            }
            Kind::Quic => {
                self.quic.handle_completion(key, completion, driver, now);
            }
        }
    }

    // Streams ------------------------------------------------------------------------------------

    /// Puts a connected, non-blocking socket on the engine; nothing is read before `resume_reading`. The
    /// host keeps the descriptor open until it has released the stream and heard of its end.
    pub fn open_stream(&mut self, fd: RawFd) -> Key {
        let key = self.streams.insert_with(|key| Stream::new(fd, key));
        self.transport_fds.insert(fd, key);
        key
    }

    pub fn stream(&self, key: Key) -> Option<&Stream> {
        self.streams.get(key)
    }

    /// Accepts bytes for sending at the next flush.
    pub fn write(&mut self, key: Key, data: Bytes) -> WriteOutcome {
        self.command(key, |stream, _| stream.write(data))
            .unwrap_or(WriteOutcome::Lost)
    }

    /// Half-closes after the queue; fails if the queue is empty and `shutdown` fails.
    pub fn finish_writing(&mut self, key: Key) -> io::Result<()> {
        self.command(key, |stream, _| stream.finish_writing())
            .unwrap_or(Ok(()))
    }

    pub fn resume_reading(&mut self, key: Key) {
        self.command(key, |stream, _| stream.resume_reading());
    }

    pub fn pause_reading(&mut self, key: Key) {
        self.command(key, Stream::pause_reading);
    }

    pub fn set_stream_watermarks(&mut self, key: Key, low: usize, high: usize) -> WriteOutcome {
        self.command(key, |s, _| s.set_watermarks(low, high))
            .unwrap_or(WriteOutcome::Lost)
    }

    /// Keeps the rest of received bytes for a reader that paused in the middle of them.
    pub fn hold_back(&mut self, key: Key, rest: Bytes) {
        self.command(key, |stream, _| stream.hold_back(rest));
    }

    /// Takes what was held back again, or what a nested turn of the host left of it. None: the reader has
    /// paused, or the stream is closed.
    pub fn take_back(&mut self, key: Key) -> Option<StreamBytes> {
        self.streams.get_mut(key)?.take_back()
    }

    /// Asks for [`Event::StreamDrained`]. True: everything is with the kernel, and none follows.
    pub fn notify_when_drained(&mut self, key: Key) -> bool {
        self.command(key, |stream, _| stream.notify_when_drained())
            .unwrap_or(true)
    }

    /// Ends reading now and the stream after its queue; then the host releases it.
    pub fn close_stream(&mut self, key: Key) -> CloseOutcome {
        self.command(key, Stream::close)
            .unwrap_or(CloseOutcome::Quiet)
    }

    /// Drops what is queued; then the host releases the stream.
    pub fn abort_stream(&mut self, key: Key) {
        self.command(key, Stream::abort);
    }

    /// The last command. With `fd` the engine closes the descriptor, without it the host does: after
    /// [`Event::StreamClosed`], or now when this answers true, for then no event follows.
    pub fn release_stream(&mut self, key: Key, fd: Option<OwnedFd>) -> bool {
        let Some(stream) = self.streams.get_mut(key) else {
            return true;
        };
        let raw_fd = stream.raw_fd();
        let ended = stream.release(&mut self.driver, fd);
        self.forget_transport_fd(raw_fd, key);
        if ended {
            self.streams.remove(key);
        }
        ended
    }

    fn command<T>(
        &mut self,
        key: Key,
        run: impl FnOnce(&mut Stream, &mut Driver) -> T,
    ) -> Option<T> {
        let stream = self.streams.get_mut(key)?;
        let value = run(stream, &mut self.driver);
        if stream.mark_dirty() {
            self.dirty_streams.push(key);
        }
        Some(value)
    }

    /// The kernel may have given the number to a new connection before the old one's last completion.
    fn forget_transport_fd(&mut self, fd: RawFd, key: Key) {
        if self.transport_fds.get(&fd) == Some(&key) {
            self.transport_fds.remove(&fd);
        }
    }

    // Listeners ----------------------------------------------------------------------------------

    /// Accepts on a listening socket that stays the host's.
    pub fn listen(&mut self, fd: RawFd) -> Key {
        let key = self.listeners.insert_with(|key| Listener::new(fd, key));
        self.resume_listener(key);
        key
    }

    /// Arms a listener again after [`Event::AcceptFailed`].
    pub fn resume_listener(&mut self, key: Key) {
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.arm(&mut self.driver);
        }
    }

    /// Stops accepting and lets go of the socket before returning, so that the host can close it and
    /// the address is free. One system call.
    pub fn stop_listener(&mut self, key: Key) -> io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.stop(&mut self.driver);
            if listener.has_ended() {
                self.listeners.remove(key);
                return Ok(());
            }
            if !self.driver.is_parked() {
                self.driver.enter(Some(Duration::ZERO))?;
            }
        }
        Ok(())
    }

    // Datagram sockets ---------------------------------------------------------------------------

    /// Puts a non-blocking socket on the engine; the descriptor stays the host's, as a stream's does.
    pub fn open_datagram(&mut self, fd: RawFd, size: DatagramSize) -> Key {
        let key = self
            .datagrams
            .insert_with(|key| DatagramSocket::new(fd, size, key));
        self.transport_fds.insert(fd, key);
        key
    }

    pub fn datagram(&self, key: Key) -> Option<&DatagramSocket> {
        self.datagrams.get(key)
    }

    pub fn resume_datagrams(&mut self, key: Key) {
        self.datagram_command(key, |s, _, _| s.resume_reading());
    }

    pub fn pause_datagrams(&mut self, key: Key) {
        self.datagram_command(key, |s, driver, _| s.pause_reading(driver));
    }

    pub fn send_datagram(&mut self, key: Key, message: SendMsg) -> SendOutcome {
        self.datagram_command(key, |s, _, events| s.send(message, events))
            .unwrap_or(SendOutcome::Lost)
    }

    pub fn set_datagram_watermarks(&mut self, key: Key, low: usize, high: usize) -> SendOutcome {
        self.datagram_command(key, |s, _, events| s.set_watermarks(low, high, events))
            .unwrap_or(SendOutcome::Lost)
    }

    /// Ends reading now and the socket after its queue; then the host releases it.
    pub fn close_datagram(&mut self, key: Key) -> CloseOutcome {
        self.datagram_command(key, |s, driver, _| s.close(driver))
            .unwrap_or(CloseOutcome::Quiet)
    }

    /// Drops what is queued; then the host releases the socket.
    pub fn abort_datagram(&mut self, key: Key) {
        self.datagram_command(key, |s, driver, _| s.abort(driver));
    }

    /// The last command, as [`release_stream`](Engine::release_stream).
    pub fn release_datagram(&mut self, key: Key, fd: Option<OwnedFd>) -> bool {
        let Some(socket) = self.datagrams.get_mut(key) else {
            return true;
        };
        let raw_fd = socket.raw_fd();
        let ended = socket.release(&mut self.driver, fd);
        self.forget_transport_fd(raw_fd, key);
        if ended {
            self.datagrams.remove(key);
        }
        ended
    }

    fn datagram_command<T>(
        &mut self,
        key: Key,
        run: impl FnOnce(&mut DatagramSocket, &mut Driver, &mut Queue) -> T,
    ) -> Option<T> {
        let socket = self.datagrams.get_mut(key)?;
        let value = run(socket, &mut self.driver, &mut self.events);
        if socket.mark_dirty() {
            self.dirty_datagrams.push(key);
        }
        Some(value)
    }

    // Watchers -----------------------------------------------------------------------------------

    /// Watches `fd`, anew if it was watched already. The serial is in this registration's events.
    pub fn watch(&mut self, fd: RawFd, direction: Direction) -> u64 {
        self.watchers.add(fd, direction, &mut self.driver)
    }

    /// True when `fd` was watched. Nothing holds its file afterwards: once the caller closes it, its peer
    /// hears of the end and its address is free. A poll in the ring would hold it until the next enter,
    /// so there is one here, where epoll has its `epoll_ctl`.
    pub fn unwatch(&mut self, fd: RawFd, direction: Direction) -> io::Result<bool> {
        let driver = &mut self.driver;
        let waiting = self.watchers.remove(fd, direction, driver);
        if waiting == Some(true) && driver.backend() == Backend::Uring && !driver.is_parked() {
            driver.enter(Some(Duration::ZERO))?;
        }
        Ok(waiting.is_some())
    }

    // QUIC endpoints -----------------------------------------------------------------------------

    /// Puts an endpoint on the engine; `make` is told the token that its operations have to carry
    /// (its `sub` byte is the endpoint's own).
    pub fn open_quic(
        &mut self,
        make: impl FnOnce(&mut Driver, uringcore_io::Token) -> io::Result<QuicEndpoint>,
    ) -> io::Result<Key> {
        let driver = &mut self.driver;
        self.quic
            .open(|key| make(driver, Route::new(Kind::Quic, 0, key).token()))
    }

    /// The endpoint for commands; it is flushed at the end of the turn.
    pub fn quic(&mut self, key: Key) -> Option<&mut QuicEndpoint> {
        self.quic.get(key)
    }

    /// The endpoint for its driver as well (closing, rebinding).
    pub fn quic_with_driver(&mut self, key: Key) -> Option<(&mut QuicEndpoint, &mut Driver)> {
        Some((self.quic.get(key)?, &mut self.driver))
    }
}

const TURNS_WITHOUT_THE_CLOCK: u64 = 16;
const TIME_WITHOUT_A_LOOK: Duration = Duration::from_micros(50);
