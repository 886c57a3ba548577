//! What a datagram socket does with its datagrams: the send queue, what is received and what waits for the
//! reader.
//!
//! Not here: its life (`lifecycle`); QUIC's socket (`quic_socket`), which wants GRO, GSO and its own
//! batching.
//!
//! **Invariants.** Datagrams leave in the order in which they were sent: one SENDMSG is in flight at
//! most, because the kernel lets a later one overtake a send that waits for room, and a burst goes
//! out in one `sendmmsg`, which stops at the first that does not go. Unix sockets send so always. A
//! producer is asked to pause only where the socket has no room. Datagrams that arrive while the
//! reader is paused are kept and delivered first on resume.
//!
//! A socket that others receive from as well is *shared*: it is waited for by readiness, and a datagram is
//! received where the host takes the event, and another one when it asks. Nothing is read ahead, so a reader that closes, pauses or
//! computes leaves the other datagrams in the socket.
//!
//! Unix datagrams never wait in the ring: the kernel's retry of one that found its receiver full sends an empty
//! datagram (seen with Linux 6.18). A queue that rises above its high-water mark is tried at once, before the
//! producer is asked to pause. A shared socket costs a datagram 0.2 µs more, of 5.

use std::collections::VecDeque;

use uringcore_io::{Driver, Errno, Interest, Outcome, SendMsg, net};

use crate::event::{CopiedDatagram, EngineEvent, Received};
use crate::event_queue::EventQueue;
use crate::transport::backlog::Backlog;
use crate::transport::lifecycle::{Lifecycle, SUB_RECV, SUB_SEND, WriteOutcome};

/// How large the datagrams of a socket may be, which decides how they are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramSize {
    /// They fit the ring's buffers of 64 KiB: UDP.
    Buffer,
    /// They may be larger (Unix sockets): received by a system call each, when readable.
    Large,
}

pub(crate) struct DatagramSocket {
    pub(crate) life: Lifecycle,
    size: DatagramSize,
    is_shared: bool,
    /// Of a shared socket: the host is to take a datagram in its place among the events.
    is_receivable_queued: bool,
    /// Of a shared socket: a wait for readiness has ended, the next one needs no other registration.
    has_waited: bool,
    backlog: Backlog<Box<CopiedDatagram>>,
    /// Where a datagram is received by a system call before its size is known.
    large: Vec<u8>,
    queue: VecDeque<SendMsg>,
    /// What the send in flight counts; nothing where it is a wait for room.
    sending_bytes: usize,
}

impl DatagramSocket {
    pub(crate) fn new(life: Lifecycle, size: DatagramSize) -> Self {
        Self {
            life,
            size,
            is_shared: false,
            is_receivable_queued: false,
            has_waited: false,
            backlog: Backlog::default(),
            large: Vec::new(),
            queue: VecDeque::new(),
            sending_bytes: 0,
        }
    }

    // Writing ------------------------------------------------------------------------------------

    /// Accepts a datagram. What only waited for the end of the turn is tried before the producer is told
    /// to pause: that says that the socket has no room, and a datagram that can never leave (RFC 768 has
    /// 16 bits for its length) or a burst that the kernel takes whole says no such thing.
    pub(crate) fn send(&mut self, message: SendMsg, events: &mut EventQueue) -> WriteOutcome {
        if !self.life.is_open() {
            return WriteOutcome::Lost;
        }
        self.life.shared.add_queued(cost(&message));
        self.queue.push_back(message);
        if self.life.is_too_full() {
            self.send_now(events);
        }
        self.life.rise()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.life.send_op.is_none()
    }

    /// Sends what the socket has room for, in order: nothing while an earlier one waits in the kernel.
    pub(crate) fn send_now(&mut self, events: &mut EventQueue) {
        while self.life.is_sending()
            && self.life.send_op.is_none()
            && !self.queue.is_empty()
            && !self.send_burst(events)
        {}
    }

    pub(crate) fn flush_queue(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        if !self.life.is_sending() {
            return;
        }
        while self.life.send_op.is_none() && !self.queue.is_empty() {
            // A lone datagram rides on the turn's own system call; so does one that must wait.
            let alone = self.queue.len() == 1 && self.size == DatagramSize::Buffer;
            if alone || self.send_burst(events) {
                self.start_send(driver);
            }
        }
        if self.is_drained() {
            self.life.drained(events);
        }
    }

    pub(crate) fn sent(
        &mut self,
        result: Result<u32, Errno>,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        let mut bytes = std::mem::take(&mut self.sending_bytes);
        if result.is_err() && self.size == DatagramSize::Large {
            // No waiting for room on this socket: the first is lost, not the loop.
            bytes = self.queue.pop_front().map_or(0, |first| cost(&first));
        }
        self.left(bytes, result.err(), events);
        self.flush_queue(driver, events);
    }

    fn start_send(&mut self, driver: &mut Driver) {
        let (fd, token) = (self.life.fd, self.life.token(SUB_SEND));
        self.life.send_op = match self.size {
            // A Unix socket that found its receiver full has used its message up, and the kernel's
            // retry sends an empty one (Linux 6.18): wait for room, then send again.
            DatagramSize::Large => Some(driver.poll(fd, Interest::Write, token)),
            DatagramSize::Buffer => self.queue.pop_front().map(|message| {
                self.sending_bytes = cost(&message);
                driver.send_msg(fd, message, token)
            }),
        };
    }

    /// True: the socket has no room for the first of the queue.
    fn send_burst(&mut self, events: &mut EventQueue) -> bool {
        match net::send_many(self.life.fd, self.queue.iter()) {
            Ok(count) => {
                let gone = self.queue.drain(..count);
                let bytes = gone.map(|message| cost(&message)).sum();
                self.left(bytes, None, events);
                false
            }
            Err(Errno(libc::EAGAIN)) => true,
            Err(error) => {
                let bytes = self.queue.pop_front().map_or(0, |message| cost(&message));
                self.left(bytes, Some(error), events);
                false
            }
        }
    }

    fn left(&mut self, bytes: usize, error: Option<Errno>, events: &mut EventQueue) {
        self.life.shared.sub_queued(bytes);
        if let Some(error) = error {
            self.fail(error, events);
        }
        self.life.fall(events);
    }

    /// In a forked child, of a socket that is not flushed: the parent sends what is queued.
    pub(crate) fn leave_queue_to_parent(&mut self, events: &mut EventQueue) {
        if self.life.is_sending() && !self.queue.is_empty() {
            let bytes = self.queue.drain(..).map(|message| cost(&message)).sum();
            self.left(bytes, Some(Errno::CANCELED), events);
        }
    }

    pub(crate) fn drop_queue(&mut self, driver: &mut Driver) {
        self.queue.clear();
        self.life.drop_queue(driver);
    }

    // Reading ------------------------------------------------------------------------------------

    /// Others receive from the socket as well from now on.
    pub(crate) fn share(&mut self, driver: &mut Driver) {
        if !std::mem::replace(&mut self.is_shared, true) {
            // Its last completion begins the wait for readiness.
            self.life.cancel_receive(driver);
        }
    }

    /// While there is a backlog nothing more is asked for: it can wait in the socket.
    pub(crate) fn flush_input(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        if !self.life.is_reading() {
            return;
        }
        if self.backlog.queue_next() {
            events.push_backlog(self.life.key);
        }
        if self.life.recv_op.is_none() && self.backlog.is_empty() && !self.is_receivable_queued {
            let (fd, token) = (self.life.fd, self.life.token(SUB_RECV));
            self.life.recv_op = Some(match self.size {
                _ if self.has_waited => driver.poll_again(fd, Interest::Read, token),
                DatagramSize::Buffer if !self.is_shared => driver.recv_msg(fd, token),
                _ => driver.poll(fd, Interest::Read, token),
            });
        }
    }

    pub(crate) fn received(
        &mut self,
        outcome: Outcome,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        if !self.life.is_open() {
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
                self.life.stop();
            }
            Outcome::Datagram(Err(error)) | Outcome::Done(Err(error)) => self.fail(error, events),
            Outcome::Done(Ok(_)) if self.is_shared => {
                self.is_receivable_queued = true;
                events.push_receivable(self.life.key);
            }
            Outcome::Done(Ok(_)) if self.life.wants_input() => self.receive_large(events),
            _ => {}
        }
        self.flush_input(driver, events);
    }

    /// A datagram whose event is due: gives back what is to be delivered now, and keeps it when the reader
    /// paused since the event was queued.
    pub(crate) fn deliver(&mut self, datagram: Received) -> Option<Received> {
        if !self.life.is_delivering() {
            return None;
        }
        if self.life.wants_input() && self.backlog.is_empty() {
            return Some(datagram);
        }
        self.backlog.push(datagram.into_copied());
        None
    }

    /// One of the backlog is due.
    pub(crate) fn deliver_backlog(&mut self) -> Option<Received> {
        let datagram = self.backlog.next(self.life.wants_input());
        datagram.map(Received::Copied)
    }

    /// The shared socket was readable, and the host takes what there is. What the reader does not want
    /// any more stays in the socket.
    pub(crate) fn receive_one(&mut self) -> Option<EngineEvent> {
        self.is_receivable_queued = false;
        let socket = self.life.key;
        match self.try_receive() {
            Ok(datagram) => Some(EngineEvent::DatagramReceived {
                socket,
                datagram: datagram?,
            }),
            Err(error) => Some(EngineEvent::DatagramError { socket, error }),
        }
    }

    /// Another datagram of a shared socket, without a wait.
    pub(crate) fn receive_another(&mut self, events: &mut EventQueue) -> Option<Received> {
        if !self.is_shared || self.is_receivable_queued {
            return None;
        }
        match self.try_receive() {
            Ok(datagram) => datagram,
            Err(error) => {
                self.fail(error, events);
                None
            }
        }
    }

    /// Receives if the reader wants it and there is something.
    fn try_receive(&mut self) -> Result<Option<Received>, Errno> {
        if !self.life.is_reading() || !self.backlog.is_empty() {
            return Ok(None);
        }
        self.has_waited = true;
        self.large.reserve_exact(match self.size {
            DatagramSize::Buffer => UDP_BYTES_MAX,
            DatagramSize::Large => LARGE_BYTES_MAX,
        });
        match net::recv_from(self.life.fd, &mut self.large) {
            Ok(from) => {
                let copy = CopiedDatagram {
                    payload: self.large.as_slice().to_vec(),
                    remote: from.as_socket(),
                    from,
                };
                self.large.clear();
                Ok(Some(Received::Copied(Box::new(copy))))
            }
            Err(error) => match error.raw_os_error().unwrap_or(libc::EIO) {
                // Another process was faster.
                libc::EAGAIN | libc::EINTR => Ok(None),
                libc::EBADF => {
                    self.life.stop();
                    Ok(None)
                }
                code => Err(Errno(code)),
            },
        }
    }

    pub(crate) fn drop_input(&mut self) {
        self.backlog.clear();
    }

    /// The socket is readable, and its datagrams may be larger than the ring's buffers.
    fn receive_large(&mut self, events: &mut EventQueue) {
        self.large.reserve_exact(LARGE_BYTES_MAX);
        for _ in 0..LARGE_PER_TURN {
            match net::recv_from(self.life.fd, &mut self.large) {
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

    /// True if the reader still wants it is seen when its turn comes.
    fn queue_received(&self, datagram: Received, events: &mut EventQueue) {
        events.push(EngineEvent::DatagramReceived {
            socket: self.life.key,
            datagram,
        });
    }

    fn fail(&mut self, error: Errno, events: &mut EventQueue) {
        self.life.errors_unreported += 1;
        events.push(EngineEvent::DatagramError {
            socket: self.life.key,
            error,
        });
    }
}

fn cost(message: &SendMsg) -> usize {
    message.data.len() + HEADER_BYTES
}

/// What a queued datagram counts beside its payload, so that empty ones are bounded too (as asyncio does).
const HEADER_BYTES: usize = 8;
/// What RFC 768's 16 bits of length allow.
const UDP_BYTES_MAX: usize = 64 * 1024;
/// asyncio's `max_size`: what one receive takes at most.
const LARGE_BYTES_MAX: usize = 256 * 1024;
/// Large datagrams taken in one turn, so that one busy socket does not starve the others.
const LARGE_PER_TURN: usize = 16;
