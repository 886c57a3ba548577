//! The bytes of a stream: when its write queue is sent, receiving, and data that waits for the reader.
//!
//! `write_queue` has the queue, `lifecycle` the phases of a stream. asyncio's rules about Python objects (exceptions,
//! logging) are in the bindings; the rules about bytes are here.
//!
//! **Invariants.** At most one SEND is in flight: if the first one is short, a second one would overtake its rest.
//! Accepted bytes are sent in order unless the stream is aborted or fails. Bytes that arrive while the reader is
//! paused are kept, and delivered first when it resumes; the end of file or the error that came after them is
//! delivered after them.
//!
//! **Large receives.** After a receive of 32 KiB or more (16 KiB if the reader has its own buffer), and until sixteen
//! smaller ones, the stream is polled for readability. The host then receives directly into the object that the
//! protocol gets (`StreamReadable`), without a copy out of a buffer of the ring. It reports the result (`received`) before it calls the protocol. After a receive
//! that filled its buffer, the next one needs no poll: it is made after the events of other streams or, every second
//! time with a `BufferedProtocol`, at once, while the buffer is in the processor's cache. Before that the host calls
//! `receives_again`, because the callback in between may pause the reader, close the stream or run loop iterations.
//! Nothing is received for a paused reader. The receive uses the descriptor's number. If the program has the socket
//! object, the host reads the number from that object first. The engine does not notice if the program closes the
//! number itself: an `fstat` for each receive cost 2 % of an echo of 100 KiB.
//!
//! **Sends before the end of a loop iteration** are system calls and bypass the ring: a completion would come with the
//! next loop iteration, and until then the stream could neither send more nor end.

use std::io;

use bytes::Bytes;
use uringcore_io::net;
use uringcore_io::{Driver, Errno, Interest, Outcome, SentFile};

use crate::event::{EngineEvent, StreamBytes};
use crate::event_queue::EventQueue;
use crate::readiness_watchers::Direction;
use crate::transport::cross_thread_state;
use crate::transport::lifecycle::{Lifecycle, SUB_RECV, SUB_SEND, WriteOutcome};
use crate::transport::receive_backlog::ReceiveBacklog;
use crate::transport::write_queue::WriteQueue;

/// The reason why no more bytes are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadEnd {
    Eof,
    Error(Errno),
}

/// The time of the host's next receive, after it has received from a stream itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextReceive {
    /// The last receive did not fill its buffer, so the stream is polled before the next one.
    WhenReadable,
    /// The last receive filled its buffer. The next one is made after the events of other streams.
    AfterOthers,
    /// The last receive filled its buffer. The next one uses the same memory and is made at once, while the memory is
    /// in the processor's cache.
    AtOnce,
}

pub(crate) struct Stream {
    pub(crate) life: Lifecycle,
    /// The number of further receives that deliver a single piece and are armed when the reader has taken the piece
    /// before. The reader has paused before, and a multishot receive would fill the backlog after each pause.
    one_by_one: u8,
    /// The number of receives that the host still makes itself. A large receive sets it to its maximum.
    left_to_host: u8,
    /// True if the reader has its own buffer, so that each receive through the ring costs one more copy.
    has_own_buffer: bool,
    /// True if [`EngineEvent::StreamReadable`] is queued. Until the host takes that event nothing is received, because
    /// bytes that the engine receives now would be delivered before those that the host receives.
    is_readable_unreported: bool,
    /// True if the host's next receive is made at once, because the last one filled its buffer. The receive after that
    /// one waits for a poll.
    is_second_due: bool,
    /// True if nothing is delivered until the next flush.
    waits_for_next_iteration: bool,
    /// True if the end of the stream or an error was received. No receive is armed any more.
    read_ended: bool,
    backlog: ReceiveBacklog<Bytes>,
    /// The end of file, or the error, that arrived after the bytes in the backlog.
    end_behind: Option<ReadEnd>,
    pub(crate) queue: WriteQueue,
    /// The error of a send that bypassed the ring. The next flush queues its event.
    send_error: Option<Errno>,
    eof_sent: bool,
}

impl Stream {
    pub(crate) fn new(life: Lifecycle) -> Self {
        Self {
            life,
            one_by_one: 0,
            left_to_host: 0,
            has_own_buffer: false,
            is_readable_unreported: false,
            is_second_due: false,
            waits_for_next_iteration: false,
            read_ended: false,
            backlog: ReceiveBacklog::default(),
            end_behind: None,
            queue: WriteQueue::default(),
            send_error: None,
            eof_sent: false,
        }
    }

    /// The number of bytes that wait for a paused reader.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog.iter().map(Bytes::len).sum()
    }

    // Writing ------------------------------------------------------------------------------------

    pub(crate) fn is_writable(&self) -> bool {
        self.life.is_open() && !self.life.shared.is_finished()
    }

    /// True if a write of `count` bytes to an empty queue is small: [`accepted`](Self::accepted) would not send it by
    /// its own, and the producer need not pause.
    pub(crate) fn sends_with_others(&self, count: usize) -> bool {
        count < LARGE_BYTES && count <= self.life.shared.high_mark()
    }

    /// Sends the first bytes of `data`, as many as the socket accepts without waiting, and returns their number. `None`
    /// after an error, which is reported later. Only while nothing is queued.
    pub(crate) fn send_first(&mut self, data: &[u8]) -> Option<usize> {
        match net::send_pieces(self.life.fd, std::iter::once(data)) {
            Ok(count) => Some(count),
            Err(Errno(libc::EAGAIN)) => Some(0),
            Err(error) => {
                self.note_send_error(error);
                None
            }
        }
    }

    /// Sends a part of a file, as much as the socket accepts without waiting, after all bytes that were written before.
    /// Returns the number of bytes. It is 0 if the part has to be written as bytes ([`SentFile::send_now`]), because
    /// written bytes still wait, or after an error, which is reported later.
    pub(crate) fn send_file(&mut self, file: &SentFile, offset: u64, length: usize) -> usize {
        self.send_now();
        if !self.is_idle() || !self.is_writable() {
            return 0;
        }
        match file.send_now(self.life.fd, offset, length) {
            Ok(count) => count,
            Err(error) => {
                self.note_send_error(error);
                0
            }
        }
    }

    fn note_send_error(&mut self, error: Errno) {
        self.send_error = Some(error);
        self.life.shared.set(cross_thread_state::FAILED, true);
    }

    /// Called after `count` bytes were added to the queue, in one piece or several.
    pub(crate) fn accepted(&mut self, count: usize) -> WriteOutcome {
        let was_small = self.life.shared.queued() < LARGE_BYTES;
        self.life.shared.add_queued(count);
        let grew_large = was_small && self.life.shared.queued() >= LARGE_BYTES;
        if grew_large || self.life.is_too_full() {
            // Small writes are sent together by the system call of the loop iteration. A large write is sent by its
            // own: its bytes are still in the cache, its memory can be used for the next write, and the producer need
            // not pause for bytes that the socket accepts now.
            self.send_now();
        }
        self.life.check_high_mark()
    }

    /// Half-closes the stream when the queue is empty, which may be now. Further writes are dropped.
    pub(crate) fn finish_writing(&mut self) -> io::Result<()> {
        if self.life.shared.is_closing() || self.life.shared.is_finished() {
            return Ok(());
        }
        self.life.shared.set(cross_thread_state::FINISHED, true);
        self.send_now();
        if self.is_drained() && !self.life.is_failed() {
            self.eof_sent = true;
            return net::shutdown_write(self.life.fd);
        }
        Ok(())
    }

    /// True if the kernel has taken all written bytes. False while a failure is still to be reported.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.send_error.is_none()
    }

    /// True if nothing is queued or in flight, and no error of a send waits to be reported.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_drained() && self.life.send_op.is_none()
    }

    /// Starts a send of queued bytes, or reports the error of an earlier send.
    pub(crate) fn flush_queue(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        if !self.life.is_sending() || self.life.send_op.is_some() {
            return;
        }
        if self.report_send_error(driver, events) {
            return;
        }
        // A send that bypassed the ring has no completion. If it has emptied the queue, this continues like a
        // completion.
        self.go_on_sending(driver, events);
    }

    /// Sends as many bytes as the socket accepts without waiting.
    pub(crate) fn send_now(&mut self) {
        // After an error nothing more is sent, because the error of a second send would replace it: EPIPE follows
        // ECONNRESET.
        while self.send_error.is_none()
            && self.life.is_sending()
            && !self.is_drained()
            && self.life.send_op.is_none()
        {
            match self.queue.send_now(self.life.fd) {
                Ok((count, is_whole)) => {
                    self.life.shared.sub_queued(count);
                    if !is_whole {
                        return;
                    }
                }
                Err(Errno(libc::EAGAIN)) => return,
                Err(error) => {
                    self.note_send_error(error);
                    // No send is in flight, so the queue can be dropped. As in asyncio, it is empty after a failed
                    // write.
                    self.drop_pieces();
                    return;
                }
            }
        }
    }

    pub(crate) fn sent(
        &mut self,
        result: Result<u32, Errno>,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        let count = match result {
            Ok(count) => count as usize,
            Err(Errno(libc::EINTR | libc::EAGAIN)) => 0,
            Err(error) => return self.fail_sending(error, driver, events),
        };
        self.queue.end_send(count);
        self.life.shared.sub_queued(count);
        self.go_on_sending(driver, events);
    }

    fn go_on_sending(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        self.life.check_low_mark(events);
        if self.is_drained() {
            self.drained(events);
        } else {
            let (fd, token) = (self.life.fd, self.life.token(SUB_SEND));
            self.life.send_op = Some(self.queue.start_send(driver, fd, token));
        }
    }

    fn drained(&mut self, events: &mut EventQueue) {
        if self.life.shared.is_finished() && !std::mem::replace(&mut self.eof_sent, true) {
            // The shutdown fails if the peer has gone already. Receiving reports that.
            let _ = net::shutdown_write(self.life.fd);
        }
        self.life.drained(events);
    }

    /// Reports the error of a send that bypassed the ring. True if there was one.
    pub(crate) fn report_send_error(
        &mut self,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) -> bool {
        let error = self.send_error.take().filter(|_| self.life.is_sending());
        if let Some(error) = error {
            self.fail_sending(error, driver, events);
        }
        error.is_some()
    }

    /// Ends the stream because a send has failed. Bytes that arrived before are still delivered.
    fn fail_sending(&mut self, error: Errno, driver: &mut Driver, events: &mut EventQueue) {
        self.life.fail();
        self.drop_queue(driver);
        events.push(EngineEvent::Failed {
            transport: self.life.key,
            side: Direction::Write,
            error,
        });
    }

    /// In a forked child: drops unflushed bytes, because the parent sends them. The child's stream fails, because
    /// bytes that the child writes later would be sent out of order.
    pub(crate) fn leave_queue_to_parent(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        if self.life.is_sending() && self.queue.has_waiting() {
            self.fail_sending(Errno::CANCELED, driver, events);
        }
    }

    pub(crate) fn drop_queue(&mut self, driver: &mut Driver) {
        self.drop_pieces();
        self.life.drop_queue(driver);
    }

    fn drop_pieces(&mut self) {
        self.queue.clear();
        self.life.empty_queue();
    }

    // Reading ------------------------------------------------------------------------------------

    /// Makes the next receives deliver a single piece each.
    pub(crate) fn expect_pauses(&mut self) {
        self.one_by_one = ONE_BY_ONE_AFTER_PAUSE;
    }

    /// Records whether the reader has its own buffer. That changes the size from which on the host receives itself.
    pub(crate) fn set_own_buffer(&mut self, has_own_buffer: bool) {
        self.has_own_buffer = has_own_buffer;
    }

    /// Keeps bytes that the host did not take from the last event. They are delivered first when the reader resumes.
    pub(crate) fn put_back(&mut self, rest: Bytes) {
        if self.life.is_delivering() {
            self.backlog.put_back(rest);
        }
    }

    /// Takes the first piece of the backlog, if the reader is not paused.
    pub(crate) fn take_back(&mut self) -> Option<StreamBytes> {
        let is_wanted = self.life.wants_input() && !self.waits_for_next_iteration;
        let piece = self.backlog.take(is_wanted);
        piece.map(StreamBytes::Copied)
    }

    pub(crate) fn flush_input(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        self.waits_for_next_iteration = false;
        if !self.life.is_reading() {
            return;
        }
        if self.backlog.queue_next() {
            events.push_backlog(self.life.key);
        } else if self.backlog.is_empty()
            && let Some(end) = self.end_behind.take()
        {
            events.push(self.read_end_event(end));
        }
        self.arm(driver);
    }

    pub(crate) fn received(
        &mut self,
        outcome: Outcome,
        more: bool,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        let result = match outcome {
            Outcome::Received(result) => result,
            // A poll has ended: the socket is readable.
            Outcome::Done(Ok(_)) => {
                if self.life.is_open() {
                    self.queue_readable(events);
                }
                return;
            }
            Outcome::Done(Err(error)) => Err(error),
            // A receive was cancelled before it was submitted, so there is nothing to report.
            _ => return,
        };
        if !self.life.is_open() {
            return;
        }
        match result {
            Ok(buf) if buf.is_empty() => self.end_reading(ReadEnd::Eof, events),
            Ok(buf) => {
                self.note_size(buf.len());
                if more && self.left_to_host > 0 {
                    self.life.cancel_receive(driver);
                }
                // The check for a paused reader is made when the host takes the event, so that the order is kept.
                events.push_stream_data(self.life.key, buf);
                if !more && self.life.wants_input() && self.one_by_one == 0 {
                    self.arm(driver);
                }
            }
            Err(Errno(libc::ECANCELED)) => {
                // A pause has cancelled the receive. The reader may have resumed before this completion.
                if self.life.wants_input() {
                    self.arm(driver);
                }
            }
            Err(errno) => self.end_reading(ReadEnd::Error(errno), events),
        }
    }

    /// After a large receive, leaves the next receives to the host, because bytes in a buffer of the ring have to be
    /// copied.
    fn note_size(&mut self, size: usize) {
        let large = match self.has_own_buffer {
            true => LARGE_FOR_OWN_BUFFER_BYTES,
            false => LARGE_BYTES,
        };
        self.left_to_host = match size >= large {
            true => LEFT_TO_HOST_AFTER_LARGE,
            false => self.left_to_host.saturating_sub(1),
        };
    }

    fn queue_readable(&mut self, events: &mut EventQueue) {
        self.is_readable_unreported = true;
        events.push(EngineEvent::StreamReadable {
            stream: self.life.key,
            fd: self.life.fd,
        });
    }

    /// The host takes the event that the stream is readable. Returns true if the event is still due. If it is not, the
    /// stream is polled again when the reader resumes.
    pub(crate) fn deliver_readable(&mut self) -> bool {
        self.is_readable_unreported = false;
        self.life.is_delivering() && !self.must_wait() && !self.read_ended
    }

    /// Records a receive of the host. True if the host's next receive is made at once; the one after that is made
    /// after the events of other streams, so that no stream delays the others.
    pub(crate) fn received_by_host(
        &mut self,
        result: Result<usize, Errno>,
        next: NextReceive,
        events: &mut EventQueue,
    ) -> bool {
        match result {
            Ok(0) => self.end_reading(ReadEnd::Eof, events),
            Ok(size) => {
                self.note_size(size);
                self.is_second_due = next == NextReceive::AtOnce && !self.is_second_due;
                if !self.is_second_due && next != NextReceive::WhenReadable {
                    self.queue_readable(events);
                }
                return self.is_second_due;
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
            Err(error) => self.end_reading(ReadEnd::Error(error), events),
        }
        self.is_second_due = false;
        false
    }

    /// Stops delivery until the next flush, because the reader has scheduled a callback.
    pub(crate) fn wait_for_next_iteration(&mut self) {
        self.waits_for_next_iteration = true;
    }

    /// Called when the host has delivered the bytes of its last receive. True if the host has to receive again now.
    pub(crate) fn receives_again(&mut self, events: &mut EventQueue) -> bool {
        // A nested loop iteration of the host may have armed a receive or queued an event.
        let is_free = self.life.recv_op.is_none() && !self.is_readable_unreported;
        let is_due = std::mem::take(&mut self.is_second_due) && is_free;
        if is_due && self.waits_for_next_iteration && self.life.is_delivering() {
            self.queue_readable(events);
            return false;
        }
        self.is_second_due = is_due && self.deliver_readable();
        self.is_second_due
    }

    /// Returns the data of an event that the host takes. `None` if the reader was paused since the event was queued;
    /// then the data is kept.
    pub(crate) fn deliver(&mut self, data: StreamBytes) -> Option<StreamBytes> {
        if !self.life.is_delivering() {
            return None;
        }
        if self.must_wait() {
            self.backlog.push(data.into_rest(0));
            return None;
        }
        Some(data)
    }

    /// The host takes the event of the end of file, or of a receive's error. Returns true if it has to be delivered
    /// now. If the reader is paused, the end is kept until it resumes.
    pub(crate) fn deliver_end(&mut self, end: ReadEnd) -> bool {
        let waits = self.must_wait();
        if waits && self.life.is_delivering() {
            self.end_behind = Some(end);
        }
        !waits && self.life.is_delivering()
    }

    /// Returns the next piece of the backlog, when the host takes its entry.
    pub(crate) fn deliver_backlog(&mut self) -> Option<StreamBytes> {
        let piece = self.backlog.next(self.life.wants_input());
        piece.map(StreamBytes::Copied)
    }

    /// True if the reader has got all data that arrived, so that the next flush has to arm a receive.
    pub(crate) fn awaits_flush(&self) -> bool {
        self.life.recv_op.is_none() && self.life.is_reading() && !self.read_ended
    }

    /// True if arriving data must be added to the backlog: the reader is paused, or earlier data is still in the
    /// backlog.
    fn must_wait(&self) -> bool {
        let is_behind = !self.backlog.is_empty() || self.end_behind.is_some();
        is_behind || self.waits_for_next_iteration || !self.life.wants_input()
    }

    fn end_reading(&mut self, end: ReadEnd, events: &mut EventQueue) {
        self.read_ended = true;
        events.push(self.read_end_event(end));
    }

    fn read_end_event(&self, end: ReadEnd) -> EngineEvent {
        let key = self.life.key;
        match end {
            ReadEnd::Eof => EngineEvent::StreamEof { stream: key },
            ReadEnd::Error(error) => EngineEvent::Failed {
                transport: key,
                side: Direction::Read,
                error,
            },
        }
    }

    /// Arms a receive, unless there is a backlog. Then more data can wait in the socket.
    fn arm(&mut self, driver: &mut Driver) {
        let is_free = self.life.recv_op.is_none() && !self.is_readable_unreported;
        if is_free && !self.read_ended && self.backlog.is_empty() {
            let (fd, token) = (self.life.fd, self.life.token(SUB_RECV));
            self.life.recv_op = Some(if self.left_to_host > 0 {
                // The stream has received before, so the descriptor is registered already.
                driver.poll_again(fd, Interest::Read, token)
            } else if self.one_by_one > 0 {
                self.one_by_one -= 1;
                driver.recv_once(fd, u32::MAX >> 1, token)
            } else {
                driver.recv(fd, token)
            });
        }
    }

    pub(crate) fn drop_input(&mut self) {
        self.backlog.clear();
        self.end_behind = None;
    }
}

/// A write of at least this many bytes is sent by its own system call, because copying it, or reading it again from
/// main memory, costs more.
const LARGE_BYTES: usize = 32 * 1024;
/// A receive of at least this many bytes is made into the reader's own buffer, because copying costs more than a poll
/// and a system call.
const LARGE_FOR_OWN_BUFFER_BYTES: usize = 16 * 1024;
/// The number of receives after a large one that the host makes itself, if they are small.
const LEFT_TO_HOST_AFTER_LARGE: u8 = 16;
/// A reader that has paused gets a multishot receive again after this many receives without another pause.
const ONE_BY_ONE_AFTER_PAUSE: u8 = u8::MAX;
