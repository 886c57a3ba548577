//! One datagram socket: its send queue with watermarks, its reading state, its way to the end.
//!
//! Not here: QUIC's socket (`quic_endpoint`), which wants GRO, GSO and its own batching.
//!
//! **Invariants.** Datagrams leave in the order in which they were sent: one SENDMSG is in flight at
//! most, because the kernel lets a later one overtake a send that waits for room, and a burst goes
//! out in one `sendmmsg`, which stops at the first that does not go. Unix sockets send so always. A
//! producer is asked to pause only where the socket has no room. Datagrams that arrive while the
//! reader is paused are kept and delivered first on resume. The way to the end is that of `stream`:
//! first quiet, then released.

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};

use uringcore_io::{Completion, Driver, Errno, Interest, OpId, Outcome, SendMsg, net};

use crate::backlog::Backlog;
use crate::event::{CopiedDatagram, Event, Received};
use crate::gauge::Gauge;
use crate::queue::Queue;
use crate::stream::CloseOutcome;
use crate::table::Key;
use crate::token::{Kind, Route};

/// What the caller of [`DatagramSocket::send`] has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    Queued,
    /// The queue rose above the high-water mark: tell the producer to pause.
    PauseWriting,
    Lost,
}

/// How large the datagrams of a socket may be, which decides how they are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramSize {
    /// They fit the ring's buffers of 64 KiB: UDP.
    Buffer,
    /// They may be larger (Unix sockets): received by a system call each, when readable.
    Large,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// `close` was called: the queue is still to be sent.
    Flushing,
    /// Nothing is sent or received any more; the descriptor is still open.
    Quiet,
    /// The descriptor was given up; the last completions are to come.
    Releasing,
    Ended,
}

pub struct DatagramSocket {
    raw_fd: RawFd,
    key: Key,
    size: DatagramSize,
    phase: Phase,
    /// Everything that was sent before `close` is with the kernel.
    flushed: bool,
    /// A send failed, after `close` or untold before it: who waits for the end hears of that first, from
    /// the events.
    failed: bool,
    /// Errors whose events wait in the queue.
    errors_untold: u32,
    recv_op: Option<OpId>,
    reading: bool,
    held: Backlog<Box<CopiedDatagram>>,
    /// Where a large datagram is received before its size is known.
    large: Vec<u8>,
    queue: VecDeque<SendMsg>,
    /// The send in flight and what it counts, or the wait for room.
    sending: Option<(OpId, usize)>,
    queued: Gauge,
    high_water: usize,
    low_water: usize,
    above_high: bool,
    closing_op: bool,
    in_dirty_list: bool,
}

const SUB_RECV: u8 = 0;
const SUB_SEND: u8 = 1;
const SUB_CLOSE: u8 = 2;

impl DatagramSocket {
    pub(crate) fn new(raw_fd: RawFd, size: DatagramSize, key: Key) -> Self {
        Self {
            raw_fd,
            key,
            size,
            phase: Phase::Open,
            flushed: false,
            failed: false,
            errors_untold: 0,
            recv_op: None,
            reading: false,
            held: Backlog::default(),
            large: Vec::new(),
            queue: VecDeque::new(),
            sending: None,
            queued: Gauge::default(),
            high_water: HIGH_WATER_BYTES,
            low_water: HIGH_WATER_BYTES / 4,
            above_high: false,
            closing_op: false,
            in_dirty_list: false,
        }
    }

    pub fn raw_fd(&self) -> RawFd {
        self.raw_fd
    }

    pub fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// It was closed, and everything sent before is with the kernel, which took all of it.
    pub fn is_flushed(&self) -> bool {
        self.flushed
    }

    pub fn write_queue_bytes(&self) -> usize {
        self.queued.get()
    }

    /// The same number, for reading while the engine is in use elsewhere.
    pub fn write_queue_gauge(&self) -> Gauge {
        self.queued.clone()
    }

    /// `(low, high)` in bytes.
    pub fn watermarks(&self) -> (usize, usize) {
        (self.low_water, self.high_water)
    }

    // Commands -----------------------------------------------------------------------------------

    pub(crate) fn set_watermarks(
        &mut self,
        low: usize,
        high: usize,
        events: &mut Queue,
    ) -> SendOutcome {
        (self.low_water, self.high_water) = (low, high);
        self.rise(events)
    }

    /// Arms the receive and releases what was held.
    pub fn resume_reading(&mut self) {
        self.reading = true;
    }

    /// Stops delivery at once; datagrams that the kernel hands over meanwhile are kept.
    pub fn pause_reading(&mut self, driver: &mut Driver) {
        self.reading = false;
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    pub(crate) fn send(&mut self, message: SendMsg, events: &mut Queue) -> SendOutcome {
        if self.phase != Phase::Open {
            return SendOutcome::Lost;
        }
        self.queued.add(cost(&message));
        self.queue.push_back(message);
        self.rise(events)
    }

    /// Closes after the queue is sent; reading ends now.
    pub fn close(&mut self, driver: &mut Driver) -> CloseOutcome {
        if self.phase == Phase::Open {
            self.failed = self.errors_untold > 0;
            self.flushed = self.is_drained() && !self.failed;
            self.phase = if self.flushed {
                Phase::Quiet
            } else {
                Phase::Flushing
            };
            self.stop_reading(driver);
        }
        match self.phase {
            Phase::Flushing => CloseOutcome::Flushing,
            _ => CloseOutcome::Quiet,
        }
    }

    /// Drops the queue: the socket is quiet.
    pub fn abort(&mut self, driver: &mut Driver) {
        if matches!(self.phase, Phase::Open | Phase::Flushing) {
            self.phase = Phase::Quiet;
            self.stop_reading(driver);
            // As for a stream: what was never tried is tried now.
            while self.sending.is_none()
                && !self.queue.is_empty()
                && let Ok(count) = net::send_many(self.raw_fd, self.queue.iter())
            {
                self.queue.drain(..count);
            }
            self.queue.clear();
            self.queued.clear();
            if let Some((op, _)) = self.sending {
                driver.cancel(op);
            }
        }
    }

    /// Gives the descriptor up, as a stream does: true when nothing is in flight and no event follows.
    pub fn release(&mut self, driver: &mut Driver, fd: Option<OwnedFd>) -> bool {
        self.abort(driver);
        if self.phase == Phase::Quiet {
            self.phase = Phase::Releasing;
            if let Some(fd) = fd {
                self.closing_op = true;
                driver.close(fd, Route::new(Kind::Datagram, SUB_CLOSE, self.key).token());
            }
            if self.is_idle() {
                self.phase = Phase::Ended;
            }
        }
        self.phase == Phase::Ended
    }

    pub(crate) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.in_dirty_list, true)
    }

    // The turn -----------------------------------------------------------------------------------

    pub(crate) fn flush(&mut self, driver: &mut Driver, events: &mut Queue) {
        self.in_dirty_list = false;
        self.read(driver, events);
        if matches!(self.phase, Phase::Open | Phase::Flushing) {
            self.send_queue(driver, events);
        }
    }

    /// In a forked child, of a socket that is not flushed: the parent sends what is queued.
    pub(crate) fn leave_queue_to_parent(&mut self, events: &mut Queue) {
        if matches!(self.phase, Phase::Open | Phase::Flushing) && !self.queue.is_empty() {
            let bytes = self.queue.drain(..).map(|message| cost(&message)).sum();
            self.handle_sent(bytes, Some(Errno::CANCELED), events);
        }
    }

    pub(crate) fn handle_completion(
        &mut self,
        sub: u8,
        completion: Completion,
        driver: &mut Driver,
        events: &mut Queue,
    ) {
        let more = completion.more();
        match (sub, completion.outcome) {
            (SUB_RECV, outcome) => {
                if !more {
                    self.recv_op = None;
                }
                self.handle_received(outcome, events);
                self.read(driver, events);
            }
            (SUB_SEND, Outcome::Done(result)) => {
                let (_, mut bytes) = self.sending.take().unwrap_or((OpId::NONE, 0));
                if result.is_err() && self.size == DatagramSize::Large {
                    // No waiting for room on this socket: the first is lost, not the loop.
                    bytes = self.queue.pop_front().map_or(0, |first| cost(&first));
                }
                if !matches!(self.phase, Phase::Open | Phase::Flushing) {
                    // Aborted: the queue and its size are gone.
                } else {
                    self.handle_sent(bytes, result.err(), events);
                    self.send_queue(driver, events);
                }
            }
            (SUB_CLOSE, _) => self.closing_op = false,
            _ => debug_assert!(
                false,
                "a completion of a kind that no datagram socket starts"
            ),
        }
        if self.phase == Phase::Releasing && self.is_idle() {
            self.phase = Phase::Ended;
            events.push(Event::DatagramClosed { socket: self.key });
        }
    }

    /// Called by the engine when the host hears of an error.
    pub(crate) fn error_told(&mut self) {
        self.errors_untold -= 1;
    }

    /// Called by the engine for a datagram whose event is due: gives back what is to be delivered now, and
    /// keeps it when the reader paused since the event was queued.
    pub(crate) fn deliver(&mut self, datagram: Received) -> Option<Received> {
        match self.phase {
            Phase::Open if self.reading && self.held.is_empty() => Some(datagram),
            Phase::Open => {
                self.held.push(datagram.into_copied());
                None
            }
            // After close() nothing is delivered.
            _ => None,
        }
    }

    /// Called by the engine when one of the datagrams that are held is due.
    pub(crate) fn deliver_held(&mut self) -> Option<Received> {
        self.held.next(self.reading).map(Received::Copied)
    }

    /// While something is held nothing more is asked for: it can wait in the socket.
    fn read(&mut self, driver: &mut Driver, events: &mut Queue) {
        if self.phase != Phase::Open || !self.reading {
            return;
        }
        if self.held.note() {
            events.push_held_datagram(self.key);
        }
        if self.recv_op.is_none() && self.held.is_empty() {
            let token = Route::new(Kind::Datagram, SUB_RECV, self.key).token();
            self.recv_op = Some(match self.size {
                DatagramSize::Buffer => driver.recv_msg(self.raw_fd, token),
                DatagramSize::Large => driver.poll(self.raw_fd, Interest::Read, token),
            });
        }
    }

    fn handle_received(&mut self, outcome: Outcome, events: &mut Queue) {
        if self.phase != Phase::Open {
            return;
        }
        match outcome {
            Outcome::Datagram(Ok(datagram)) => {
                self.queue_received(Received::Buffer(datagram), events)
            }
            Outcome::Datagram(Err(Errno::CANCELED)) | Outcome::Done(Err(Errno::CANCELED)) => {}
            // The host's socket was closed: what epoll does, nothing more is told. Asking again would
            // fail for ever.
            Outcome::Datagram(Err(Errno(libc::EBADF))) | Outcome::Done(Err(Errno(libc::EBADF))) => {
                self.reading = false;
            }
            Outcome::Datagram(Err(error)) | Outcome::Done(Err(error)) => self.fail(error, events),
            Outcome::Done(Ok(_)) if self.reading => self.receive_large(events),
            _ => {}
        }
    }

    /// The socket is readable, and its datagrams may be larger than the ring's buffers.
    fn receive_large(&mut self, events: &mut Queue) {
        self.large.reserve_exact(LARGE_BYTES_MAX);
        for _ in 0..LARGE_PER_TURN {
            match net::recv_from(self.raw_fd, &mut self.large) {
                Ok(from) => {
                    let payload = self.large.as_slice().to_vec();
                    let copy = Box::new(CopiedDatagram {
                        payload,
                        remote: None, // only Unix sockets come here
                        from,
                    });
                    self.queue_received(Received::Copied(copy), events);
                }
                Err(error) => {
                    let code = error.raw_os_error().unwrap_or(libc::EIO);
                    if !matches!(code, libc::EAGAIN | libc::EINTR) {
                        self.fail(Errno(code), events);
                    }
                    break;
                }
            }
        }
        self.large.clear();
    }

    /// Whether the reader still wants it is seen when its turn comes.
    fn queue_received(&self, datagram: Received, events: &mut Queue) {
        events.push(Event::DatagramReceived {
            socket: self.key,
            datagram,
        });
    }

    fn fail(&mut self, error: Errno, events: &mut Queue) {
        self.errors_untold += 1;
        events.push(Event::DatagramError {
            socket: self.key,
            error,
        });
    }

    fn send_queue(&mut self, driver: &mut Driver, events: &mut Queue) {
        while self.sending.is_none() && !self.queue.is_empty() {
            let token = Route::new(Kind::Datagram, SUB_SEND, self.key).token();
            // A lone datagram rides on the turn's own system call; so does one that must wait.
            let alone = self.queue.len() == 1 && self.size == DatagramSize::Buffer;
            if !alone && !self.send_burst(events) {
                continue;
            }
            self.sending = match self.size {
                // A Unix socket that found its receiver full has used its message up, and the kernel's
                // retry sends an empty one (Linux 6.18): wait for room, then send again.
                DatagramSize::Large => Some((driver.poll(self.raw_fd, Interest::Write, token), 0)),
                DatagramSize::Buffer => self.queue.pop_front().map(|message| {
                    let bytes = cost(&message);
                    (driver.send_msg(self.raw_fd, message, token), bytes)
                }),
            };
        }
        if self.phase == Phase::Flushing && self.is_drained() {
            self.phase = Phase::Quiet;
            self.flushed = !self.failed;
            events.push(Event::DatagramFlushed { socket: self.key });
        }
    }

    /// True: the socket has no room for the first of the queue.
    fn send_burst(&mut self, events: &mut Queue) -> bool {
        match net::send_many(self.raw_fd, self.queue.iter()) {
            Ok(count) => {
                let bytes = self
                    .queue
                    .drain(..count)
                    .map(|message| cost(&message))
                    .sum();
                self.handle_sent(bytes, None, events);
                false
            }
            Err(Errno(libc::EAGAIN)) => true,
            Err(error) => {
                let bytes = self.queue.pop_front().map_or(0, |message| cost(&message));
                self.handle_sent(bytes, Some(error), events);
                false
            }
        }
    }

    fn handle_sent(&mut self, bytes: usize, error: Option<Errno>, events: &mut Queue) {
        self.queued.sub(bytes);
        if let Some(error) = error {
            self.failed |= self.phase == Phase::Flushing;
            self.fail(error, events);
        }
        if self.above_high && self.queued.get() <= self.low_water {
            self.above_high = false;
            events.push(Event::DatagramResumeWriting { socket: self.key });
        }
    }

    /// Asks for a pause where the queue rose above its mark. What only waited for the end of the turn
    /// is tried first: a pause says that the socket has no room, and a datagram that can never leave
    /// (RFC 768 has 16 bits for its length) or a burst that the kernel takes whole says no such thing.
    fn rise(&mut self, events: &mut Queue) -> SendOutcome {
        if self.above_high || self.queued.get() <= self.high_water {
            return SendOutcome::Queued;
        }
        self.send_at_once(events);
        if self.queued.get() <= self.high_water {
            return SendOutcome::Queued;
        }
        self.above_high = true;
        SendOutcome::PauseWriting
    }

    /// Sends what the socket has room for, in order: nothing while an earlier one waits in the kernel.
    fn send_at_once(&mut self, events: &mut Queue) {
        while self.sending.is_none() && !self.queue.is_empty() && !self.send_burst(events) {}
    }

    fn stop_reading(&mut self, driver: &mut Driver) {
        self.reading = false;
        self.held.clear();
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.sending.is_none()
    }

    fn is_idle(&self) -> bool {
        self.recv_op.is_none() && self.sending.is_none() && !self.closing_op
    }
}

fn cost(message: &SendMsg) -> usize {
    message.data.len() + HEADER_BYTES
}

/// asyncio's default high-water mark; the low one is a quarter of it.
const HIGH_WATER_BYTES: usize = 64 * 1024;
/// What a queued datagram counts beside its payload, so that empty ones are bounded too (as asyncio does).
const HEADER_BYTES: usize = 8;
/// asyncio's `max_size`: what one receive takes at most.
const LARGE_BYTES_MAX: usize = 256 * 1024;
/// Large datagrams taken in one turn, so that one busy socket does not starve the others.
const LARGE_PER_TURN: usize = 16;
