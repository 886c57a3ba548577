//! One connected stream socket: its write queue with watermarks, its reading state, its way to the end.
//!
//! Not here: connecting, accepting, TLS. asyncio's transport rules that are about Python objects
//! (what raises, what is logged) live in the bindings; those about bytes live here.
//!
//! **Invariants.** At most one SEND is in flight: a short first one would let a second overtake its
//! tail. Bytes accepted by `write` are sent in order unless the stream is aborted or fails. Bytes
//! that arrive while the reader is paused are kept and delivered first on resume.

use std::collections::VecDeque;

use bytes::Bytes;
use uringcore_io::{Completion, Driver, Errno, OpId, Outcome, net};

use crate::event::{Event, StreamBytes};
use crate::socket::SocketFd;
use crate::table::Key;
use crate::token::{Kind, Route};

/// What the caller of [`Stream::write`] has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    Queued,
    /// The queue rose above the high-water mark with this write: tell the producer to pause.
    PauseWriting,
    /// The stream is closed or failed; the bytes went nowhere.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// `close` was called: the queue is still to be sent.
    Flushing,
    /// Operations are being cancelled; the last completion ends the stream.
    Ending,
    Ended,
}

pub struct Stream {
    fd: Option<SocketFd>,
    raw_fd: i32,
    key: Key,
    phase: Phase,
    error: Option<Errno>,

    recv_op: Option<OpId>,
    reading: bool,
    read_eof: bool,
    held: VecDeque<Vec<u8>>,
    /// The peer's FIN came while the reader was paused.
    held_eof: bool,

    send_op: Option<OpId>,
    /// What the operation in flight was given, front first, to requeue the tail of a short send.
    sending: VecDeque<Bytes>,
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    high_water: usize,
    low_water: usize,
    above_high: bool,
    write_eof: bool,
    eof_sent: bool,
    notify_drained: bool,
    closing_op: bool,
    in_dirty_list: bool,
}

pub(crate) const SUB_RECV: u8 = 0;
pub(crate) const SUB_SEND: u8 = 1;
pub(crate) const SUB_CLOSE: u8 = 2;

impl Stream {
    pub(crate) fn new(fd: SocketFd, key: Key) -> Self {
        Self {
            raw_fd: fd.raw(),
            fd: Some(fd),
            key,
            phase: Phase::Open,
            error: None,
            recv_op: None,
            reading: false,
            read_eof: false,
            held: VecDeque::new(),
            held_eof: false,
            send_op: None,
            sending: VecDeque::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            high_water: HIGH_WATER_BYTES,
            low_water: HIGH_WATER_BYTES / 4,
            above_high: false,
            write_eof: false,
            eof_sent: false,
            notify_drained: false,
            closing_op: false,
            in_dirty_list: false,
        }
    }

    pub fn raw_fd(&self) -> i32 {
        self.raw_fd
    }

    pub fn is_reading(&self) -> bool {
        self.reading && !self.read_eof && self.phase == Phase::Open
    }

    pub fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Bytes accepted and not yet taken by the kernel.
    pub fn write_queue_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// `(low, high)` in bytes.
    pub fn watermarks(&self) -> (usize, usize) {
        (self.low_water, self.high_water)
    }

    // Commands -----------------------------------------------------------------------------------

    pub fn set_watermarks(&mut self, low: usize, high: usize) -> WriteOutcome {
        (self.low_water, self.high_water) = (low, high);
        self.rise()
    }

    /// Accepts `data` for sending. The caller lists the stream as dirty.
    pub fn write(&mut self, data: Bytes) -> WriteOutcome {
        if self.phase != Phase::Open || self.write_eof {
            return WriteOutcome::Lost;
        }
        self.queued_bytes += data.len();
        self.queue.push_back(data);
        self.rise()
    }

    /// Half-closes after the queue. Further writes are lost.
    pub fn finish_writing(&mut self) {
        self.write_eof = true;
    }

    /// Arms the receive and releases what was held. The caller lists the stream as dirty.
    pub fn resume_reading(&mut self) {
        self.reading = true;
    }

    /// Stops delivery at once; bytes that the kernel hands over meanwhile are kept.
    pub fn pause_reading(&mut self, driver: &mut Driver) {
        self.reading = false;
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    /// Closes after the queue is sent; reading ends now.
    pub fn close(&mut self, driver: &mut Driver) {
        if self.phase == Phase::Open {
            self.phase = Phase::Flushing;
            self.stop_reading(driver);
        }
    }

    /// Drops the queue and ends the stream with `error`.
    pub fn abort(&mut self, driver: &mut Driver, error: Option<Errno>) {
        if matches!(self.phase, Phase::Open | Phase::Flushing) {
            self.error = self.error.or(error);
            self.queue.clear();
            self.queued_bytes = 0;
            self.stop_reading(driver);
            self.end(driver);
        }
    }

    /// Asks for one [`Event::StreamDrained`] when the queue is empty.
    pub fn notify_when_drained(&mut self) {
        self.notify_drained = true;
    }

    /// True the first time since the last flush: the engine then lists the stream.
    pub(crate) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.in_dirty_list, true)
    }

    // The turn -----------------------------------------------------------------------------------

    /// Puts in flight what the state calls for: the receive, a send, the half-close, the end.
    pub(crate) fn flush(&mut self, driver: &mut Driver, events: &mut VecDeque<Event>) {
        self.in_dirty_list = false;
        if self.phase == Phase::Open && self.reading {
            self.deliver_held(events);
            if self.recv_op.is_none() && !self.read_eof {
                let token = Route::new(Kind::Stream, SUB_RECV, self.key).token();
                self.recv_op = Some(driver.recv(self.raw_fd, token));
            }
        }
        if matches!(self.phase, Phase::Open | Phase::Flushing) && self.send_op.is_none() {
            if self.queue.is_empty() {
                self.drained(driver, events);
            } else {
                self.start_send(driver);
            }
        }
        if self.phase == Phase::Ending {
            self.check_ended(events);
        }
    }

    /// Takes one completion of this stream.
    pub(crate) fn handle_completion(
        &mut self,
        sub: u8,
        completion: Completion,
        driver: &mut Driver,
        events: &mut VecDeque<Event>,
    ) {
        match (sub, completion.outcome) {
            (SUB_RECV, Outcome::Received(result)) => {
                if !completion.more {
                    self.recv_op = None;
                }
                self.handle_received(result, completion.more, driver, events);
            }
            (SUB_RECV, _) => self.recv_op = None, // cancelled before it was ever issued
            (SUB_SEND, Outcome::Done(result)) => {
                self.send_op = None;
                self.handle_sent(result, driver, events);
            }
            (SUB_CLOSE, _) => self.closing_op = false,
            _ => debug_assert!(false, "a completion of a kind that no stream starts"),
        }
        if self.phase == Phase::Ending {
            self.check_ended(events);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Called by the engine for an event that was queued before the reader paused.
    pub(crate) fn hold_if_paused(&mut self, data: &StreamBytes) -> bool {
        match self.phase {
            // What is held goes first, even when reading was resumed since.
            Phase::Open if self.reading && self.held.is_empty() && !self.held_eof => false,
            Phase::Open => {
                self.held.push_back(data.to_vec());
                true
            }
            // What arrived before the connection failed is still delivered; after close() nothing is.
            _ => self.error.is_none(),
        }
    }

    /// The same for an end of file.
    pub(crate) fn hold_eof_if_paused(&mut self) -> bool {
        match self.phase {
            Phase::Open if self.reading && self.held.is_empty() => false,
            Phase::Open => {
                self.held_eof = true;
                true
            }
            _ => true,
        }
    }

    fn handle_received(
        &mut self,
        result: Result<uringcore_io::RecvBuf, Errno>,
        more: bool,
        driver: &mut Driver,
        events: &mut VecDeque<Event>,
    ) {
        if self.phase != Phase::Open {
            return;
        }
        match result {
            Ok(buf) if buf.is_empty() => {
                self.read_eof = true;
                if self.reading {
                    events.push_back(Event::StreamEof { stream: self.key });
                } else {
                    self.held_eof = true;
                }
            }
            Ok(buf) => {
                if self.reading {
                    let data = StreamBytes::Buffer(buf);
                    events.push_back(Event::StreamData {
                        stream: self.key,
                        data,
                    });
                } else {
                    self.held.push_back(buf.to_vec());
                }
                if !more && self.reading {
                    self.rearm(driver);
                }
            }
            Err(Errno(libc::ECANCELED)) => {
                // A pause; a resume that came before this completion still wants its receive.
                if self.reading {
                    self.rearm(driver);
                }
            }
            Err(errno) => self.abort(driver, Some(errno)),
        }
    }

    fn rearm(&mut self, driver: &mut Driver) {
        if self.recv_op.is_none() {
            let token = Route::new(Kind::Stream, SUB_RECV, self.key).token();
            self.recv_op = Some(driver.recv(self.raw_fd, token));
        }
    }

    fn handle_sent(
        &mut self,
        result: Result<u32, Errno>,
        driver: &mut Driver,
        events: &mut VecDeque<Event>,
    ) {
        let mut sending = std::mem::take(&mut self.sending);
        if !matches!(self.phase, Phase::Open | Phase::Flushing) {
            return;
        }
        match result {
            Ok(count) => {
                let mut left = count as usize;
                self.queued_bytes -= left;
                while let Some(mut piece) = sending.pop_front() {
                    if left < piece.len() {
                        let _ = piece.split_to(left);
                        sending.push_front(piece);
                        break;
                    }
                    left -= piece.len();
                }
                while let Some(piece) = sending.pop_back() {
                    self.queue.push_front(piece);
                }
            }
            Err(Errno(libc::EINTR | libc::EAGAIN)) => {
                while let Some(piece) = sending.pop_back() {
                    self.queue.push_front(piece);
                }
            }
            Err(errno) => {
                self.abort(driver, Some(errno));
                return;
            }
        }
        if self.above_high && self.queued_bytes <= self.low_water {
            self.above_high = false;
            events.push_back(Event::StreamResumeWriting { stream: self.key });
        }
        if self.queue.is_empty() {
            self.drained(driver, events);
        } else {
            self.start_send(driver);
        }
    }

    fn start_send(&mut self, driver: &mut Driver) {
        let token = Route::new(Kind::Stream, SUB_SEND, self.key).token();
        let pieces = self.queue.len().min(PIECES_PER_SEND_MAX);
        self.sending.extend(self.queue.drain(..pieces));
        self.send_op = Some(if pieces == 1 {
            driver.send(self.raw_fd, self.sending[0].clone(), token)
        } else {
            driver.send_vectored(self.raw_fd, self.sending.iter().cloned().collect(), token)
        });
    }

    fn drained(&mut self, driver: &mut Driver, events: &mut VecDeque<Event>) {
        if std::mem::take(&mut self.notify_drained) {
            events.push_back(Event::StreamDrained { stream: self.key });
        }
        if self.write_eof && !self.eof_sent {
            self.eof_sent = true;
            // A peer that is gone already makes this fail; the receive reports that.
            let _ = net::shutdown_write(self.raw_fd);
        }
        if self.phase == Phase::Flushing {
            self.end(driver);
            self.check_ended(events);
        }
    }

    fn rise(&mut self) -> WriteOutcome {
        if !self.above_high && self.queued_bytes > self.high_water {
            self.above_high = true;
            return WriteOutcome::PauseWriting;
        }
        WriteOutcome::Queued
    }

    fn deliver_held(&mut self, events: &mut VecDeque<Event>) {
        for bytes in self.held.drain(..) {
            let data = StreamBytes::Copied(bytes);
            events.push_back(Event::StreamData {
                stream: self.key,
                data,
            });
        }
        if std::mem::take(&mut self.held_eof) {
            events.push_back(Event::StreamEof { stream: self.key });
        }
    }

    fn stop_reading(&mut self, driver: &mut Driver) {
        self.reading = false;
        self.held.clear();
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    fn end(&mut self, driver: &mut Driver) {
        self.phase = Phase::Ending;
        self.sending.clear();
        match self.fd.take() {
            Some(SocketFd::Owned(fd)) => {
                self.closing_op = true;
                driver.close(fd, Route::new(Kind::Stream, SUB_CLOSE, self.key).token());
            }
            Some(SocketFd::Lent(_)) => {
                for op in [self.recv_op, self.send_op].into_iter().flatten() {
                    driver.cancel(op);
                }
            }
            None => {}
        }
    }

    fn check_ended(&mut self, events: &mut VecDeque<Event>) {
        if self.recv_op.is_none() && self.send_op.is_none() && !self.closing_op {
            self.phase = Phase::Ended;
            events.push_back(Event::StreamClosed {
                stream: self.key,
                error: self.error,
            });
        }
    }
}

/// asyncio's default high-water mark; the low one is a quarter of it.
const HIGH_WATER_BYTES: usize = 64 * 1024;
/// Pieces gathered into one SENDMSG. More than this gain nothing and cost a larger iovec array.
const PIECES_PER_SEND_MAX: usize = 64;
