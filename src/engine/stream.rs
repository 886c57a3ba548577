//! One connected stream socket: its write queue with watermarks, its reading state, its way to the end.
//!
//! Not here: connecting, accepting, TLS. asyncio's transport rules that are about Python objects
//! (what raises, what is logged) live in the bindings; those about bytes live here.
//!
//! The way to the end has two steps, because asyncio's protocols find their socket open in
//! `connection_lost`. `close`, `abort` or a failure make the stream *quiet*: nothing is read or sent
//! any more. `release` then gives the descriptor up, and `StreamClosed` says that no operation is in
//! flight any more.
//!
//! **Invariants.** At most one SEND is in flight: a short first one would let a second overtake its
//! tail. Bytes accepted by `write` are sent in order unless the stream is aborted or fails. Bytes
//! that arrive while the reader is paused are kept and delivered first on resume, and so is the end
//! of file or the error that came after them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use uringcore_io::{Completion, Driver, Errno, OpId, Outcome, net};

use crate::backlog::Backlog;
use crate::event::{Event, StreamBytes};
use crate::gauge::Gauge;
use crate::queue::Queue;
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

/// What is left to do after [`Stream::close`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseOutcome {
    /// Nothing was left to send: the stream is quiet.
    Quiet,
    /// The queue is still to be sent; [`Event::StreamFlushed`] follows, or a failure.
    Flushing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// The socket failed and the host is to hear of it, after what arrived before.
    Failed,
    /// `close` was called: the queue is still to be sent.
    Flushing,
    /// Nothing is read or sent any more; the descriptor is still open.
    Quiet,
    /// The descriptor was given up; the last completions are to come.
    Releasing,
    Ended,
}

/// What ends the received bytes, kept while the reader is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadEnd {
    Eof,
    Error(Errno),
}

pub struct Stream {
    raw_fd: RawFd,
    key: Key,
    phase: Phase,
    /// Everything that was written before `close` is with the kernel.
    flushed: bool,

    recv_op: Option<OpId>,
    reading: bool,
    /// So many receives are made one by one, each when the reader has taken what the one before brought:
    /// this reader pauses, and a multishot would go on past each pause, for the backlog.
    one_by_one: u8,
    /// The receive came to its end: it is not armed again.
    read_ended: bool,
    held: Backlog<Bytes>,
    held_end: Option<ReadEnd>,

    send_op: Option<OpId>,
    /// What the operation in flight was given, front first, to requeue the tail of a short send.
    sending: VecDeque<Bytes>,
    queue: VecDeque<Bytes>,
    queued: Gauge,
    high_water: usize,
    low_water: usize,
    above_high: bool,
    /// What a send without the ring met; the next flush tells it.
    send_error: Option<Errno>,
    write_eof: bool,
    eof_sent: bool,
    notify_drained: bool,
    closing_op: bool,
    in_dirty_list: bool,
    /// System calls made here, past the driver, since they were last counted.
    direct_sends: u64,
}

pub(crate) const SUB_RECV: u8 = 0;
pub(crate) const SUB_SEND: u8 = 1;
pub(crate) const SUB_CLOSE: u8 = 2;

impl Stream {
    pub(crate) fn new(raw_fd: RawFd, key: Key) -> Self {
        Self {
            raw_fd,
            key,
            phase: Phase::Open,
            flushed: false,
            recv_op: None,
            reading: false,
            one_by_one: 0,
            read_ended: false,
            held: Backlog::default(),
            held_end: None,
            send_op: None,
            sending: VecDeque::new(),
            queue: VecDeque::new(),
            queued: Gauge::default(),
            high_water: HIGH_WATER_BYTES,
            low_water: HIGH_WATER_BYTES / 4,
            above_high: false,
            send_error: None,
            write_eof: false,
            eof_sent: false,
            notify_drained: false,
            closing_op: false,
            in_dirty_list: false,
            direct_sends: 0,
        }
    }

    pub fn raw_fd(&self) -> RawFd {
        self.raw_fd
    }

    pub fn is_reading(&self) -> bool {
        self.reading && !self.read_ended && self.phase == Phase::Open
    }

    pub fn is_closing(&self) -> bool {
        !matches!(self.phase, Phase::Open | Phase::Failed)
    }

    /// It was closed, and everything written before is with the kernel.
    pub fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// Bytes accepted and not yet taken by the kernel.
    pub fn write_queue_bytes(&self) -> usize {
        self.queued.get()
    }

    /// Bytes that arrived and wait for a reader that had paused.
    pub fn backlog_bytes(&self) -> usize {
        self.held.iter().map(Bytes::len).sum()
    }

    /// What `write_queue_bytes` tells, for reading while the engine is in use elsewhere.
    pub fn write_queue_gauge(&self) -> Gauge {
        self.queued.clone()
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
        self.queued.add(data.len());
        self.queue.push_back(data);
        if self.queued.get() > self.high_water && !self.above_high {
            // Small writes ride on the turn's own system call. A large one is worth one of its own:
            // what the socket takes now need not pause the producer.
            self.send_now();
        }
        self.rise()
    }

    /// Half-closes after the queue: at once when it is empty. Further writes are lost.
    pub fn finish_writing(&mut self) -> io::Result<()> {
        if self.phase != Phase::Open || self.write_eof {
            return Ok(());
        }
        self.write_eof = true;
        self.send_now();
        if self.is_drained() {
            self.eof_sent = true;
            return net::shutdown_write(self.raw_fd);
        }
        Ok(())
    }

    /// Arms the receive and releases what was held. The caller lists the stream as dirty.
    pub fn resume_reading(&mut self) {
        self.reading = true;
    }

    /// Stops delivery at once; bytes that the kernel hands over meanwhile are kept.
    pub fn pause_reading(&mut self, driver: &mut Driver) {
        self.reading = false;
        self.one_by_one = ONE_BY_ONE_AFTER_PAUSE;
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    /// Keeps bytes of the latest event that the host did not take: they come first on resume.
    pub fn hold_back(&mut self, rest: Bytes) {
        if matches!(self.phase, Phase::Open | Phase::Failed) {
            self.held.put_back(rest);
        }
    }

    /// The first piece that is held, if the reader reads.
    pub fn take_back(&mut self) -> Option<StreamBytes> {
        let piece = self.held.take(self.reading);
        piece.map(StreamBytes::Copied)
    }

    /// Closes after the queue is sent; reading ends now.
    pub fn close(&mut self, driver: &mut Driver) -> CloseOutcome {
        if matches!(self.phase, Phase::Open | Phase::Failed) {
            // What was written in this very turn has not been tried yet. With asyncio, whose write()
            // sends at once, it would be out, and the stream quiet.
            if self.phase == Phase::Open {
                self.send_now();
            }
            let flush = self.phase == Phase::Open && !self.is_drained();
            self.flushed = self.phase == Phase::Open && !flush;
            self.phase = if flush { Phase::Flushing } else { Phase::Quiet };
            self.stop_reading(driver);
        }
        match self.phase {
            Phase::Flushing => CloseOutcome::Flushing,
            _ => CloseOutcome::Quiet,
        }
    }

    /// Drops the queue: the stream is quiet.
    pub fn abort(&mut self, driver: &mut Driver) {
        if matches!(self.phase, Phase::Open | Phase::Failed | Phase::Flushing) {
            // As in `close`.
            if self.phase != Phase::Failed {
                self.send_now();
            }
            self.phase = Phase::Quiet;
            self.stop_reading(driver);
            self.stop_sending(driver);
        }
    }

    /// Gives the descriptor up. The driver closes it (cancel-all hard-linked to close, so that the
    /// peer gets its FIN) if it comes with the call; else the host closes it after the last event,
    /// or now if this answers true: then nothing is in flight and no event follows.
    pub fn release(&mut self, driver: &mut Driver, fd: Option<OwnedFd>) -> bool {
        self.abort(driver);
        if self.phase == Phase::Quiet {
            self.phase = Phase::Releasing;
            if let Some(fd) = fd {
                self.closing_op = true;
                driver.close(fd, Route::new(Kind::Stream, SUB_CLOSE, self.key).token());
            }
            if self.is_idle() {
                self.phase = Phase::Ended;
            }
        }
        self.phase == Phase::Ended
    }

    /// Asks for one [`Event::StreamDrained`] when the queue is empty. True: it is, and none follows.
    pub fn notify_when_drained(&mut self) -> bool {
        self.notify_drained = !self.is_drained();
        !self.notify_drained
    }

    /// True the first time since the last flush: the engine then lists the stream.
    pub(crate) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.in_dirty_list, true)
    }

    // The turn -----------------------------------------------------------------------------------

    /// No other stream has anything to send in this turn. Queued on a ring, the send's completion
    /// would end the very wait that submits it, for nothing, and the turn be gone through again; sent
    /// here, a lone request costs one turn. (Many sends are worth one wait cut short.)
    pub(crate) fn send_alone(&mut self) {
        if matches!(self.phase, Phase::Open | Phase::Flushing) {
            self.send_now();
        }
    }

    pub(crate) fn take_direct_sends(&mut self) -> u64 {
        std::mem::take(&mut self.direct_sends)
    }

    /// Puts in flight what the state calls for: the receive, a send, the half-close, the end.
    pub(crate) fn flush(&mut self, driver: &mut Driver, events: &mut Queue) {
        self.in_dirty_list = false;
        if self.phase == Phase::Open && self.reading {
            self.note_held(events);
            self.arm(driver);
        }
        if matches!(self.phase, Phase::Open | Phase::Flushing) && self.send_op.is_none() {
            if let Some(error) = self.send_error.take() {
                self.fail_sending(error, driver, events);
                return;
            }
            // A send without the ring may have brought the queue down, and no completion tells of it.
            self.fall(events);
            if self.queue.is_empty() {
                self.drained(events);
            } else {
                self.start_send(driver);
            }
        }
    }

    /// In a forked child, of a stream that is not flushed: the parent sends what is queued. Here the
    /// stream fails, for what this process wrote behind it would come out of its order.
    pub(crate) fn leave_queue_to_parent(&mut self, driver: &mut Driver, events: &mut Queue) {
        if matches!(self.phase, Phase::Open | Phase::Flushing) && !self.queue.is_empty() {
            self.fail_sending(Errno::CANCELED, driver, events);
        }
    }

    /// Takes one completion of this stream.
    pub(crate) fn handle_completion(
        &mut self,
        sub: u8,
        completion: Completion,
        driver: &mut Driver,
        events: &mut Queue,
    ) {
        let more = completion.more();
        match (sub, completion.outcome) {
            (SUB_RECV, Outcome::Received(result)) => {
                if !more {
                    self.recv_op = None;
                }
                self.handle_received(result, more, driver, events);
            }
            (SUB_RECV, _) => self.recv_op = None, // cancelled before it was ever issued
            (SUB_SEND, Outcome::Done(result)) => {
                self.send_op = None;
                self.handle_sent(result, driver, events);
            }
            (SUB_CLOSE, _) => self.closing_op = false,
            _ => debug_assert!(false, "a completion of a kind that no stream starts"),
        }
        if self.phase == Phase::Releasing && self.is_idle() {
            self.phase = Phase::Ended;
            events.push(Event::StreamClosed { stream: self.key });
        }
    }

    /// Called by the engine for data whose event is due: gives back what is to be delivered now, and keeps
    /// it when the reader paused since the event was queued.
    pub(crate) fn deliver(&mut self, data: StreamBytes) -> Option<StreamBytes> {
        match self.phase {
            Phase::Open | Phase::Failed if self.holds() => {
                self.held.push(data.into_rest(0));
                None
            }
            Phase::Open | Phase::Failed => Some(data),
            // After close() nothing is delivered.
            _ => None,
        }
    }

    /// The reader has what arrived, and the next receive waits for a flush.
    pub(crate) fn awaits_flush(&self) -> bool {
        self.recv_op.is_none() && self.is_reading()
    }

    /// Called by the engine when a piece of what is held is due.
    pub(crate) fn deliver_held(&mut self) -> Option<StreamBytes> {
        self.held.next(self.reading).map(StreamBytes::Copied)
    }

    /// The same for an end of file, and for a failure to receive.
    pub(crate) fn hold_end_if_paused(&mut self, error: Option<Errno>) -> bool {
        match self.phase {
            Phase::Open | Phase::Failed => {
                let hold = self.holds();
                if hold {
                    self.held_end = Some(error.map_or(ReadEnd::Eof, ReadEnd::Error));
                }
                hold
            }
            _ => true,
        }
    }

    /// What is held goes first, even when reading was resumed since.
    fn holds(&self) -> bool {
        !self.reading || !self.held.is_empty() || self.held_end.is_some()
    }

    fn handle_received(
        &mut self,
        result: Result<uringcore_io::RecvBuf, Errno>,
        more: bool,
        driver: &mut Driver,
        events: &mut Queue,
    ) {
        if self.phase != Phase::Open {
            return;
        }
        match result {
            Ok(buf) if buf.is_empty() => self.end_reading(ReadEnd::Eof, events),
            Ok(buf) => {
                // Whether the reader still wants it is seen when its turn comes, which is what keeps
                // the order.
                events.push(Event::StreamData {
                    stream: self.key,
                    data: StreamBytes::Buffer(buf),
                });
                if !more && self.reading && self.one_by_one == 0 {
                    self.arm(driver);
                }
            }
            Err(Errno(libc::ECANCELED)) => {
                // A pause; a resume that came before this completion still wants its receive.
                if self.reading {
                    self.arm(driver);
                }
            }
            Err(errno) => self.end_reading(ReadEnd::Error(errno), events),
        }
    }

    fn end_reading(&mut self, end: ReadEnd, events: &mut Queue) {
        self.read_ended = true;
        events.push(self.read_end_event(end));
    }

    fn read_end_event(&self, end: ReadEnd) -> Event {
        let stream = self.key;
        match end {
            ReadEnd::Eof => Event::StreamEof { stream },
            ReadEnd::Error(error) => Event::StreamReadFailed { stream, error },
        }
    }

    /// While something is held nothing more is asked for: it can wait in the socket.
    fn arm(&mut self, driver: &mut Driver) {
        if self.recv_op.is_none() && !self.read_ended && self.held.is_empty() {
            let token = Route::new(Kind::Stream, SUB_RECV, self.key).token();
            self.recv_op = Some(if self.one_by_one > 0 {
                self.one_by_one -= 1;
                driver.recv_once(self.raw_fd, u32::MAX >> 1, token)
            } else {
                driver.recv(self.raw_fd, token)
            });
        }
    }

    fn handle_sent(&mut self, result: Result<u32, Errno>, driver: &mut Driver, events: &mut Queue) {
        let mut sending = std::mem::take(&mut self.sending);
        if !matches!(self.phase, Phase::Open | Phase::Flushing) {
            return;
        }
        match result {
            Ok(count) => {
                let mut left = count as usize;
                self.queued.sub(left);
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
            Err(error) => return self.fail_sending(error, driver, events),
        }
        self.fall(events);
        if self.queue.is_empty() {
            self.drained(events);
        } else {
            self.start_send(driver);
        }
    }

    /// Gives the socket what it takes without waiting.
    fn send_now(&mut self) {
        while self.send_op.is_none() && !self.queue.is_empty() {
            let pieces = self.queue.iter().map(|piece| &piece[..]);
            self.direct_sends += 1;
            let count = match net::send_pieces(self.raw_fd, pieces) {
                Ok(count) => count,
                Err(Errno(libc::EAGAIN)) => return,
                Err(error) => {
                    self.send_error = Some(error);
                    return;
                }
            };
            self.queued.sub(count);
            let mut left = count;
            while let Some(mut piece) = self.queue.pop_front() {
                if left < piece.len() {
                    let _ = piece.split_to(left);
                    self.queue.push_front(piece);
                    return;
                }
                left -= piece.len();
                if left == 0 {
                    break;
                }
            }
        }
    }

    fn fail_sending(&mut self, error: Errno, driver: &mut Driver, events: &mut Queue) {
        // A closed stream that fails to send its queue reads nothing more; an open one still delivers
        // what arrived before.
        self.phase = match self.phase {
            Phase::Open => Phase::Failed,
            _ => Phase::Quiet,
        };
        self.stop_sending(driver);
        let stream = self.key;
        events.push(Event::StreamWriteFailed { stream, error });
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

    fn drained(&mut self, events: &mut Queue) {
        if std::mem::take(&mut self.notify_drained) {
            events.push(Event::StreamDrained { stream: self.key });
        }
        if self.write_eof && !self.eof_sent {
            self.eof_sent = true;
            // A peer that is gone already makes this fail; the receive reports that.
            let _ = net::shutdown_write(self.raw_fd);
        }
        if self.phase == Phase::Flushing {
            self.phase = Phase::Quiet;
            self.flushed = true;
            events.push(Event::StreamFlushed { stream: self.key });
        }
    }

    fn rise(&mut self) -> WriteOutcome {
        if !self.above_high && self.queued.get() > self.high_water {
            self.above_high = true;
            return WriteOutcome::PauseWriting;
        }
        WriteOutcome::Queued
    }

    /// The counterpart of `rise`, told in an event because the producer is not the caller.
    fn fall(&mut self, events: &mut Queue) {
        if self.above_high && self.queued.get() <= self.low_water {
            self.above_high = false;
            events.push(Event::StreamResumeWriting { stream: self.key });
        }
    }

    /// Notes that the next piece of what is held is due, or the end that came behind the last one.
    fn note_held(&mut self, events: &mut Queue) {
        if self.held.note() {
            events.push_held_stream(self.key);
        } else if self.held.is_empty()
            && let Some(end) = self.held_end.take()
        {
            events.push(self.read_end_event(end));
        }
    }

    fn stop_reading(&mut self, driver: &mut Driver) {
        self.reading = false;
        self.held.clear();
        self.held_end = None;
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    fn stop_sending(&mut self, driver: &mut Driver) {
        self.queue.clear();
        self.sending.clear();
        self.queued.clear();
        if let Some(op) = self.send_op {
            driver.cancel(op);
        }
    }

    /// Everything that was written is with the kernel.
    fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.send_op.is_none()
    }

    fn is_idle(&self) -> bool {
        self.recv_op.is_none() && self.send_op.is_none() && !self.closing_op
    }
}

/// asyncio's default high-water mark; the low one is a quarter of it.
const HIGH_WATER_BYTES: usize = 64 * 1024;
/// Receives without a pause among them until a reader is trusted with a multishot again.
const ONE_BY_ONE_AFTER_PAUSE: u8 = u8::MAX;
/// Pieces gathered into one SENDMSG. More than this gain nothing and cost a larger iovec array.
const PIECES_PER_SEND_MAX: usize = 64;
