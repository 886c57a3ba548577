//! The datagrams of a socket: the send queue, receiving, and datagrams that wait for the reader.
//!
//! `lifecycle` has the phases of a socket. QUIC's sockets, with GRO, GSO and batches, are in `quic`.
//!
//! **Invariants.** Datagrams are sent in the order of the calls. At most one SENDMSG is in flight, because the kernel
//! lets a later one overtake a send that waits for room. Several queued datagrams are sent by one `sendmmsg`, which
//! stops at the first datagram that fails. Unix sockets always send in this way. A producer has to pause only if the
//! socket has no room. Datagrams that arrive while the reader is paused are kept, and delivered first when it resumes.
//!
//! A socket from which other processes or threads receive too is *shared*. The engine polls it, and receives one
//! datagram when the host takes the event, and another one when the host requests it. Nothing is received ahead of
//! that. So a reader that closes, pauses or is busy leaves the other datagrams in the socket.
//!
//! Unix datagrams are never sent through the ring: if the receiver has no room, the kernel's retry sends an empty
//! datagram (seen with Linux 6.18). When the queue exceeds its high mark, it is sent at once as far as the socket
//! accepts it, before the producer has to pause. On a shared socket a datagram costs 0.2 µs more, of 5.

use std::collections::VecDeque;

use uringcore_io::{Driver, Errno, Interest, Outcome, SendMsg, net};

use crate::event::{CopiedDatagram, EngineEvent, Received};
use crate::event_queue::EventQueue;
use crate::transport::lifecycle::{Lifecycle, SUB_RECV, SUB_SEND, WriteOutcome};
use crate::transport::receive_backlog::ReceiveBacklog;

/// The maximum size of a socket's datagrams, which decides how they are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramSize {
    /// Datagrams that fit in the ring's buffers of 64 KiB (UDP).
    Buffer,
    /// Datagrams that may be larger (Unix sockets). Each is received by a system call after a poll.
    Large,
}

pub(crate) struct DatagramSocket {
    pub(crate) life: Lifecycle,
    size: DatagramSize,
    is_shared: bool,
    /// For a socket that other processes use too: true if the event queue has an entry for a datagram to receive.
    is_receivable_queued: bool,
    /// For a socket that other processes use too: true if a poll has completed, so that the next poll can use the same
    /// registration.
    has_waited: bool,
    backlog: ReceiveBacklog<Box<CopiedDatagram>>,
    /// The buffer for receives by system call. The size of a datagram is not known before it is received.
    large: Vec<u8>,
    queue: VecDeque<SendMsg>,
    /// The bytes that the datagram in flight counts; 0 if the operation in flight is a poll for room.
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
            backlog: ReceiveBacklog::default(),
            large: Vec::new(),
            queue: VecDeque::new(),
            sending_bytes: 0,
        }
    }

    // Writing ------------------------------------------------------------------------------------

    /// Accepts a datagram. Before the producer has to pause, the queue is sent as far as the socket accepts it. So a
    /// pause means that the socket has no room. Neither a datagram that can never be sent (UDP lengths have 16 bits,
    /// RFC 768), nor a burst that the kernel accepts whole, causes a pause.
    pub(crate) fn send(&mut self, message: SendMsg, events: &mut EventQueue) -> WriteOutcome {
        if !self.life.is_open() {
            return WriteOutcome::Lost;
        }
        self.life.shared.add_queued(cost(&message));
        self.queue.push_back(message);
        if self.life.is_too_full() {
            self.send_now(events);
        }
        self.life.check_high_mark()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.life.send_op.is_none()
    }

    /// Sends as many datagrams as the socket accepts, in order. Sends nothing while an earlier datagram is in flight.
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
            // A single datagram is sent through the ring, by the loop iteration's own system call. Several are sent at
            // once by `send_burst`. A datagram that the socket has no room for waits in the ring.
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
            // The poll for room failed. The first datagram is dropped, so that the queue makes progress.
            bytes = self.queue.pop_front().map_or(0, |first| cost(&first));
        }
        self.left(bytes, result.err(), events);
        self.flush_queue(driver, events);
    }

    fn start_send(&mut self, driver: &mut Driver) {
        let (fd, token) = (self.life.fd, self.life.token(SUB_SEND));
        self.life.send_op = match self.size {
            // If the receiver of a Unix datagram has no room, the kernel's retry sends an empty datagram (Linux 6.18).
            // So the socket is polled for room, and the datagram is sent afterwards.
            DatagramSize::Large => Some(driver.poll(fd, Interest::Write, token)),
            DatagramSize::Buffer => self.queue.pop_front().map(|message| {
                self.sending_bytes = cost(&message);
                driver.send_msg(fd, message, token)
            }),
        };
    }

    /// Sends queued datagrams with one system call. True if the socket has no room for the first of them.
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
        self.life.check_low_mark(events);
    }

    /// In a forked child: drops queued datagrams, because the parent sends them.
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

    /// Makes the socket a shared one, from which other processes or threads receive too.
    pub(crate) fn share(&mut self, driver: &mut Driver) {
        if !std::mem::replace(&mut self.is_shared, true) {
            // The receive is cancelled. Its last completion starts the poll.
            self.life.cancel_receive(driver);
        }
    }

    /// Queues an entry for the next piece of the backlog. If there is no backlog, arms a receive; otherwise more data
    /// can wait in the socket.
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
            // The host has closed the socket. The engine stops receiving without an event, like an epoll set, because
            // receiving again would fail forever.
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

    /// Returns a datagram whose event the host takes. `None` if the reader was paused since the event was queued; then
    /// the datagram is kept.
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

    /// Returns the next datagram of the backlog, when the host takes its entry.
    pub(crate) fn deliver_backlog(&mut self) -> Option<Received> {
        let datagram = self.backlog.next(self.life.wants_input());
        datagram.map(Received::Copied)
    }

    /// Receives a datagram from a shared socket, when the host takes the entry for its readiness. If the reader is
    /// paused, the datagram stays in the socket.
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

    /// Receives another datagram from a shared socket without a poll.
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

    /// Receives a datagram if the reader is not paused and there is one.
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
                // Another process has received the datagram.
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

    /// Receives from a readable socket whose datagrams may be larger than the ring's buffers.
    fn receive_large(&mut self, events: &mut EventQueue) {
        self.large.reserve_exact(LARGE_BYTES_MAX);
        for _ in 0..LARGE_PER_ITERATION {
            match net::recv_from(self.life.fd, &mut self.large) {
                Ok(from) => {
                    let payload = self.large.as_slice().to_vec();
                    let copy = Box::new(CopiedDatagram {
                        payload,
                        remote: None, // the socket is a Unix socket
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

    /// Queues the event of a datagram. The check for a paused reader is made when the host takes the event.
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

/// The bytes that a queued datagram counts besides its payload, so that the number of empty datagrams is bounded, too.
/// asyncio counts the same number.
const HEADER_BYTES: usize = 8;
/// The maximum size of a UDP datagram, whose length has 16 bits (RFC 768).
const UDP_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of bytes of one receive: asyncio's `max_size`.
const LARGE_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of large datagrams that are received in one loop iteration, so that a busy socket does not starve
/// the others.
const LARGE_PER_ITERATION: usize = 16;
