//! What a stream does with its bytes: the write queue, what is received and what waits for the reader.
//!
//! Not here: its life (`lifecycle`), connecting, accepting, TLS. asyncio's transport rules that are about
//! Python objects (what raises, what is logged) live in the bindings; those about bytes live here.
//!
//! **Invariants.** At most one SEND is in flight: a short first one would let a second overtake its
//! rest. Bytes accepted by `write` are sent in order unless the stream is aborted or fails. Bytes
//! that arrive while the reader is paused are kept and delivered first on resume, and so is the end
//! of file or the error that came after them.
//!
//! **Large receives.** When 32 KiB arrived at once, the stream waits for readability by a poll from then on, until
//! sixteen smaller receives: the host then receives straight into the object that the protocol gets
//! (`StreamReadable`), without a copy out of a buffer of the kernel's ring. The host reports the result
//! (`received`) before it calls the protocol. A receive that filled its room is followed by another one without a
//! poll: after the other streams, or, every second time with a `BufferedProtocol`, at once, while its buffer is in
//! the processor's cache. `receives_again` is asked before that, because the callback in between may pause, close
//! or run turns. Nothing is received for a reader that pauses there. The receive goes by descriptor number; if the
//! program has the socket object, the host asks that for its number first. A number that the program closes by
//! itself goes unnoticed: an `fstat` for each receive cost 2 % of an echo of 100 KiB.
//!
//! **Sends before the end of a turn** are system calls of their own and do not pass through the ring: a completion
//! would come with the next turn, and until then the stream could neither send more nor end.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes};
use uringcore_io::net;
use uringcore_io::{Driver, Errno, Interest, Outcome};

use crate::event::{EngineEvent, StreamBytes};
use crate::event_queue::EventQueue;
use crate::transport::backlog::Backlog;
use crate::transport::lifecycle::{Lifecycle, SUB_RECV, SUB_SEND, WriteOutcome};
use crate::transport::shared_state;
use crate::transport::write_coalescer::{BLOCK_BYTES, Blocks, WriteCoalescer};
use crate::watchers::Direction;

/// What ends the received bytes, kept while the reader is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadEnd {
    Eof,
    Error(Errno),
}

/// When the host receives again by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextReceive {
    /// This one found the end of what there was.
    WhenReadable,
    /// This one filled its room: after the other streams.
    InTurn,
    /// The same, and the next one goes to the same memory, which is in the processor's cache now.
    AtOnce,
}

pub(crate) struct Stream {
    pub(crate) life: Lifecycle,
    /// So many receives are made one by one, each when the reader has taken what the one before brought:
    /// this reader pauses, and a multishot would go on past each pause, for the backlog.
    one_by_one: u8,
    /// So many receives are left to the host, which is told when there is something. Each large one fills
    /// this up again.
    left_to_host: u8,
    /// That the socket is readable stands in the queue of events. Until it is told nothing is received: it
    /// would be told behind what the host receives then.
    is_readable_unreported: bool,
    /// The host's last receive was full, and the one before was not of this kind: the next comes at once.
    is_second_due: bool,
    /// Until the next flush nothing is delivered.
    waits_a_turn: bool,
    /// The receive came to its end: it is not armed again.
    read_ended: bool,
    backlog: Backlog<Bytes>,
    /// What came behind the backlog.
    end_behind: Option<ReadEnd>,
    /// What is to be sent, in order, but for the tail.
    queue: VecDeque<Bytes>,
    /// So many pieces of its front are in flight. They stay, for the rest of a short send is sent again.
    in_flight: u16,
    /// What was written last, in small pieces. Nothing of it is in flight.
    coalescer: WriteCoalescer,
    /// What a send without the ring met; the next flush tells it.
    send_error: Option<Errno>,
    eof_sent: bool,
    /// System calls made here, past the driver, since they were last counted.
    direct_sends: u32,
}

impl Stream {
    pub(crate) fn new(life: Lifecycle) -> Self {
        Self {
            life,
            one_by_one: 0,
            left_to_host: 0,
            is_readable_unreported: false,
            is_second_due: false,
            waits_a_turn: false,
            read_ended: false,
            backlog: Backlog::default(),
            end_behind: None,
            queue: VecDeque::new(),
            in_flight: 0,
            coalescer: WriteCoalescer::default(),
            send_error: None,
            eof_sent: false,
            direct_sends: 0,
        }
    }

    /// Bytes that arrived and wait for a reader that had paused.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog.iter().map(Bytes::len).sum()
    }

    pub(crate) fn take_direct_sends(&mut self) -> u64 {
        u64::from(std::mem::take(&mut self.direct_sends))
    }

    // Writing ------------------------------------------------------------------------------------

    /// Queues `data`; `accepted` follows.
    pub(crate) fn push(&mut self, data: Bytes) {
        self.seal();
        self.queue.push_back(data);
    }

    /// Queues a copy of what is short; `accepted` follows.
    pub(crate) fn push_copy(&mut self, data: &[u8], blocks: &mut Blocks) {
        debug_assert!(data.len() <= BLOCK_BYTES, "a block would have to grow");
        if !self.coalescer.has_room(data.len()) {
            self.seal();
        }
        self.coalescer.push(data, blocks);
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.life.is_open() && !self.life.shared.is_finished()
    }

    /// So many bytes were queued, in one piece or several.
    pub(crate) fn accepted(&mut self, count: usize) -> WriteOutcome {
        let was_small = self.life.shared.queued() < LARGE_BYTES;
        self.life.shared.add_queued(count);
        let grew_large = was_small && self.life.shared.queued() >= LARGE_BYTES;
        if grew_large || self.life.is_too_full() {
            // Small writes ride on the turn's own system call. A large one is worth one of its own: its
            // bytes are still in the cache, its memory serves the next one, and what the socket takes now
            // need not pause the producer.
            self.send_now();
        }
        self.life.rise()
    }

    /// The tail becomes a piece like the others.
    fn seal(&mut self) {
        self.queue.extend(self.coalescer.cut());
    }

    /// A stream that has nothing to send needs no block.
    pub(crate) fn give_block_back(&mut self, blocks: &mut Blocks) {
        if self.queue.is_empty() {
            self.coalescer.give_back(blocks);
        }
    }

    /// Half-closes after the queue: at once when it is empty. Further writes are lost.
    pub(crate) fn finish_writing(&mut self) -> io::Result<()> {
        if self.life.shared.is_closing() || self.life.shared.is_finished() {
            return Ok(());
        }
        self.life.shared.set(shared_state::FINISHED, true);
        self.send_now();
        if self.is_drained() && !self.life.is_failed() {
            self.eof_sent = true;
            return net::shutdown_write(self.life.fd);
        }
        Ok(())
    }

    /// Everything that was written is with the kernel.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.coalescer.is_empty()
    }

    /// Nothing is queued, in flight or to be told of sending.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_drained() && self.life.send_op.is_none() && self.send_error.is_none()
    }

    /// Sends without the ring since they were last counted.
    pub(crate) fn direct_sends(&self) -> u32 {
        self.direct_sends
    }

    /// Puts in flight what is queued, tells what there is to tell of it.
    pub(crate) fn flush_queue(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        if !self.life.is_sending() || self.life.send_op.is_some() {
            return;
        }
        if self.fail_if_met(driver, events) {
            return;
        }
        // A send without the ring may have brought the queue down, and no completion tells of it.
        self.go_on_sending(driver, events);
    }

    /// Gives the socket what it takes without waiting.
    pub(crate) fn send_now(&mut self) {
        // A second send would replace the error of the first: EPIPE follows ECONNRESET.
        while self.send_error.is_none()
            && self.life.is_sending()
            && !self.is_drained()
            && self.life.send_op.is_none()
        {
            let tail = Some(self.coalescer.bytes()).filter(|tail| !tail.is_empty());
            let pieces = self.queue.iter().map(|piece| &piece[..]).chain(tail);
            self.direct_sends += 1;
            let count = match net::send_pieces(self.life.fd, pieces) {
                Ok(count) => count,
                Err(Errno(libc::EAGAIN)) => return,
                Err(error) => {
                    self.send_error = Some(error);
                    self.life.shared.set(shared_state::FAILED, true);
                    return;
                }
            };
            if self.drop_sent(count) {
                return;
            }
        }
    }

    pub(crate) fn sent(
        &mut self,
        result: Result<u32, Errno>,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        self.in_flight = 0;
        match result {
            Ok(count) => {
                self.drop_sent(count as usize);
            }
            Err(Errno(libc::EINTR | libc::EAGAIN)) => {}
            Err(error) => return self.fail_sending(error, driver, events),
        }
        self.go_on_sending(driver, events);
    }

    /// Takes `count` bytes off the front; true if the last piece was not sent whole.
    fn drop_sent(&mut self, mut count: usize) -> bool {
        self.life.shared.sub_queued(count);
        while let Some(piece) = self.queue.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return true;
            }
            count -= piece.len();
            self.queue.pop_front();
            if count == 0 {
                return false;
            }
        }
        self.coalescer.advance(count);
        !self.coalescer.is_empty()
    }

    fn go_on_sending(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        self.life.fall(events);
        if self.is_drained() {
            self.drained(events);
        } else {
            self.start_send(driver);
        }
    }

    fn start_send(&mut self, driver: &mut Driver) {
        let (fd, token) = (self.life.fd, self.life.token(SUB_SEND));
        self.seal();
        let in_flight = self.queue.len().min(PIECES_PER_SEND_MAX);
        self.in_flight = in_flight as u16;
        self.life.send_op = Some(if in_flight == 1 {
            driver.send(fd, self.queue[0].clone(), token)
        } else {
            let pieces = self.queue.iter().take(in_flight);
            driver.send_vectored(fd, pieces.cloned(), token)
        });
    }

    fn drained(&mut self, events: &mut EventQueue) {
        if self.life.shared.is_finished() && !std::mem::replace(&mut self.eof_sent, true) {
            // A peer that is gone already makes this fail; the receive reports that.
            let _ = net::shutdown_write(self.life.fd);
        }
        self.life.drained(events);
    }

    /// Tells of what a send without the ring met; true if there was something.
    pub(crate) fn fail_if_met(&mut self, driver: &mut Driver, events: &mut EventQueue) -> bool {
        let error = self.send_error.take().filter(|_| self.life.is_sending());
        if let Some(error) = error {
            self.fail_sending(error, driver, events);
        }
        error.is_some()
    }

    /// An open stream still delivers what arrived before.
    fn fail_sending(&mut self, error: Errno, driver: &mut Driver, events: &mut EventQueue) {
        self.life.fail();
        self.drop_queue(driver);
        events.push(EngineEvent::Failed {
            transport: self.life.key,
            side: Direction::Write,
            error,
        });
    }

    /// In a forked child, of a stream that is not flushed: the parent sends what is queued. Here the
    /// stream fails, for what this process wrote behind it would come out of its order.
    pub(crate) fn leave_queue_to_parent(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        let has_more = self.queue.len() > usize::from(self.in_flight) || !self.coalescer.is_empty();
        if self.life.is_sending() && has_more {
            self.fail_sending(Errno::CANCELED, driver, events);
        }
    }

    pub(crate) fn drop_queue(&mut self, driver: &mut Driver) {
        self.queue.clear();
        self.coalescer.clear();
        self.life.drop_queue(driver);
    }

    // Reading ------------------------------------------------------------------------------------

    /// The next receives are made one by one.
    pub(crate) fn expect_pauses(&mut self) {
        self.one_by_one = ONE_BY_ONE_AFTER_PAUSE;
    }

    /// Keeps bytes of the latest event that the host did not take: they come first on resume.
    pub(crate) fn put_back(&mut self, rest: Bytes) {
        if self.life.is_delivering() {
            self.backlog.put_back(rest);
        }
    }

    /// The first piece of the backlog, if the reader reads.
    pub(crate) fn take_back(&mut self) -> Option<StreamBytes> {
        let is_wanted = self.life.wants_input() && !self.waits_a_turn;
        let piece = self.backlog.take(is_wanted);
        piece.map(StreamBytes::Copied)
    }

    pub(crate) fn flush_input(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        self.waits_a_turn = false;
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
            // What was waited for, by poll.
            Outcome::Done(Ok(_)) => {
                if self.life.is_open() {
                    self.tell_readable(events);
                }
                return;
            }
            Outcome::Done(Err(error)) => Err(error),
            // Of a receive that was cancelled before it was ever issued.
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
                // Whether the reader still wants it is seen when its turn comes, which is what keeps
                // the order.
                events.push(EngineEvent::StreamData {
                    stream: self.life.key,
                    data: StreamBytes::Buffer(buf),
                });
                if !more && self.life.wants_input() && self.one_by_one == 0 {
                    self.arm(driver);
                }
            }
            Err(Errno(libc::ECANCELED)) => {
                // A pause; a resume that came before this completion still wants its receive.
                if self.life.wants_input() {
                    self.arm(driver);
                }
            }
            Err(errno) => self.end_reading(ReadEnd::Error(errno), events),
        }
    }

    /// A large receive is better made by the host, and so are those after it: what the kernel puts into a
    /// buffer of ours has to be copied out of it.
    fn note_size(&mut self, size: usize) {
        if size < LARGE_BYTES {
            self.left_to_host = self.left_to_host.saturating_sub(1);
            return;
        }
        self.left_to_host = LEFT_TO_HOST_AFTER_LARGE;
    }

    fn tell_readable(&mut self, events: &mut EventQueue) {
        self.is_readable_unreported = true;
        events.push(EngineEvent::StreamReadable {
            stream: self.life.key,
            fd: self.life.fd,
        });
    }

    /// The socket is readable: true if the host is to be told (else the next resume looks again).
    pub(crate) fn deliver_readable(&mut self) -> bool {
        self.is_readable_unreported = false;
        self.life.is_delivering() && !self.must_wait() && !self.read_ended
    }

    /// What came of a receive that was left to the host. True if the next one is due at once; that is followed
    /// by one in its turn in the queue, so that no stream keeps the others waiting.
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
                    self.tell_readable(events);
                }
                return self.is_second_due;
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
            Err(error) => self.end_reading(ReadEnd::Error(error), events),
        }
        self.is_second_due = false;
        false
    }

    /// The reader has scheduled something, which comes before what it hears next.
    pub(crate) fn wait_a_turn(&mut self) {
        self.waits_a_turn = true;
    }

    /// The host has told of the bytes behind which a receive is due: true if it is to be made now.
    pub(crate) fn receives_again(&mut self, events: &mut EventQueue) -> bool {
        // Turns that the host ran inside have waited for more, or received it.
        let is_free = self.life.recv_op.is_none() && !self.is_readable_unreported;
        let is_due = std::mem::take(&mut self.is_second_due) && is_free;
        if is_due && self.waits_a_turn && self.life.is_delivering() {
            self.tell_readable(events);
            return false;
        }
        self.is_second_due = is_due && self.deliver_readable();
        self.is_second_due
    }

    /// Data whose event is due: gives back what is to be delivered now, and keeps it when the reader
    /// paused since the event was queued.
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

    /// The same for an end of file, and for a failure to receive: true if it is to be told now.
    pub(crate) fn deliver_end(&mut self, end: ReadEnd) -> bool {
        let waits = self.must_wait();
        if waits && self.life.is_delivering() {
            self.end_behind = Some(end);
        }
        !waits && self.life.is_delivering()
    }

    /// A piece of the backlog is due.
    pub(crate) fn deliver_backlog(&mut self) -> Option<StreamBytes> {
        let piece = self.backlog.next(self.life.wants_input());
        piece.map(StreamBytes::Copied)
    }

    /// The reader has what arrived, and the next receive waits for a flush.
    pub(crate) fn awaits_flush(&self) -> bool {
        self.life.recv_op.is_none() && self.life.is_reading() && !self.read_ended
    }

    /// The backlog goes first, even when reading was resumed since.
    fn must_wait(&self) -> bool {
        let is_behind = !self.backlog.is_empty() || self.end_behind.is_some();
        is_behind || self.waits_a_turn || !self.life.wants_input()
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

    /// While there is a backlog nothing more is asked for: it can wait in the socket.
    fn arm(&mut self, driver: &mut Driver) {
        let is_free = self.life.recv_op.is_none() && !self.is_readable_unreported;
        if is_free && !self.read_ended && self.backlog.is_empty() {
            let (fd, token) = (self.life.fd, self.life.token(SUB_RECV));
            self.life.recv_op = Some(if self.left_to_host > 0 {
                // Something was received before.
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

/// From here on a copy, or a way through a cold cache, costs more than a system call of its own.
const LARGE_BYTES: usize = 32 * 1024;
/// Small receives until the host is spared them again.
const LEFT_TO_HOST_AFTER_LARGE: u8 = 16;
/// Receives without a pause among them until a reader is trusted with a multishot again.
const ONE_BY_ONE_AFTER_PAUSE: u8 = u8::MAX;
/// Pieces gathered into one SENDMSG. More than this gain nothing and cost a larger iovec array.
const PIECES_PER_SEND_MAX: usize = 64;
