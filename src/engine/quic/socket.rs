//! A UDP socket with the QUIC state machines of its connections: it gets completions and sends GSO batches.
//!
//! | file | content |
//! | --- | --- |
//! | `sending` | a bounded number of batches in flight; single datagrams if the kernel refuses GSO |
//! | `send_buffer_pool` | send buffers that are used again |
//! | `additional_sockets` | further UDP sockets of an endpoint: after a client's migration, for a server's preferred address |
//!
//! This file receives datagrams (splits GRO batches, copies each batch once), reads ICMP errors, ends the socket in
//! the right order, and returns the memory of a flood to the system. The protocol is in `uringcore_quic`; the host
//! handles the events of connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use uringcore_io::{Completion, Datagram, Driver, Errno, OpId, Outcome, Token, heap_trim, net};
use uringcore_quic::{
    Connection, ConnectionKey, DatagramMeta, Endpoint, EndpointStats, Event, GSO_SEGMENTS_MAX,
    Taking, earliest,
};

use super::socket_fd::SocketFd;

mod additional_sockets;
mod send_buffer_pool;
mod sending;

use additional_sockets::AdditionalSockets;
use send_buffer_pool::BufferPool;
use sending::{Batch, InFlight};

/// The `sub` byte of a token (`completion_token::Route`) has one of these values in its lower two bits, and the number
/// of the UDP socket in the other six.
const SUB_RECV: u8 = 0;
const SUB_SEND: u8 = 1;
const SUB_CLOSE: u8 = 2;

/// A UDP socket with its QUIC connections.
///
/// The engine calls [`handle_completion`](Self::handle_completion) for each completion, and [`flush`](Self::flush) in
/// each loop iteration. The host gives commands through [`protocol`](Self::protocol), and takes events from
/// [`poll_event`](Self::poll_event) after [`EngineEvent::QuicReady`](crate::EngineEvent::QuicReady).
pub struct QuicSocket {
    /// The socket's descriptor. `None` after the driver has closed it.
    fd: Option<SocketFd>,
    raw_fd: RawFd,
    token: Token,
    protocol: Endpoint,
    receiving: Option<OpId>,
    additional: AdditionalSockets,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    /// Batches that the kernel did not accept, and that are sent again.
    again: VecDeque<Batch>,
    buffers: BufferPool,
    /// True if the host has got [`EngineEvent::QuicReady`](crate::EngineEvent::QuicReady) and has not taken all events
    /// since.
    reported: bool,
    phase: SocketPhase,
    failure: Option<Errno>,
    /// True in a forked child: the connections belong to the parent process. Two processes with the same keys would
    /// repeat nonces (RFC 9001 section 5.3), so the child sends nothing.
    is_parents: bool,
    /// The end of a flood in this process; `None` if there is none. The first socket that reaches this time returns
    /// freed memory to the system.
    flood_end: Option<Instant>,
    counters: QuicSocketStats,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SocketPhase {
    Open,
    /// New connections are refused. The socket is closed when its last connection has ended.
    Draining,
    /// All connections are closed. To a peer that still sends packets, the CONNECTION_CLOSE is sent again.
    Closing {
        until: Instant,
    },
    /// The driver is closing the socket.
    Ending,
    Ended,
}

/// Counters of a QUIC socket.
#[derive(Clone, Copy, Default, Debug)]
pub struct QuicSocketStats {
    pub datagrams_received: u64,
    pub receives: u64,
    pub sends: u64,
    pub send_errors: u64,
    pub receive_errors: u64,
    pub truncated: u64,
}

impl QuicSocket {
    /// Prepares a bound UDP socket (error queue, GRO, ECN, packet info, no fragmentation) for the connections of
    /// `protocol`. `token` is the token for its operations, with a `sub` byte of zero.
    pub fn new(fd: SocketFd, mut protocol: Endpoint, token: Token) -> io::Result<Self> {
        let raw_fd = fd.raw();
        let info = net::prepare_quic_socket(raw_fd)?;
        protocol.set_gso(if info.gso { GSO_SEGMENTS_MAX } else { 1 });
        if info.recv_buffer < SOCKET_BUFFER_GOOD || info.send_buffer < SOCKET_BUFFER_GOOD {
            log::info!(
                "the kernel gives this QUIC socket {} KiB to receive and {} KiB to send; raise \
                 net.core.rmem_max and net.core.wmem_max to {} for full speed",
                info.recv_buffer / 1024,
                info.send_buffer / 1024,
                SOCKET_BUFFER_GOOD,
            );
        }
        Ok(Self {
            fd: Some(fd),
            raw_fd,
            token,
            protocol,
            receiving: None,
            additional: AdditionalSockets::default(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            again: VecDeque::new(),
            buffers: BufferPool::new(BUFFERS_KEPT_MAX),
            reported: false,
            phase: SocketPhase::Open,
            failure: None,
            is_parents: false,
            flood_end: None,
            counters: QuicSocketStats::default(),
        })
    }

    // Methods of the host ----------------------------------------------------------------------------

    /// The state machines of the connections, for commands. The next flush sends their packets.
    pub fn protocol(&mut self) -> &mut Endpoint {
        &mut self.protocol
    }

    pub fn raw_fd(&self) -> RawFd {
        self.raw_fd
    }

    /// Adds another bound UDP socket; there may be 63 of them. Returns the number by which the state machine identifies
    /// it. The added socket is closed together with this one, or by [`remove_socket`](Self::remove_socket).
    pub fn add_socket(&mut self, fd: OwnedFd) -> io::Result<u32> {
        match self.phase {
            SocketPhase::Open | SocketPhase::Draining => self.additional.add(fd),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Closes an additional socket. Packets that a connection still sends through that socket are lost.
    pub fn remove_socket(&mut self, number: u32) {
        self.additional.close(number);
    }

    /// The number of connections, including those that are closing.
    pub fn connections(&self) -> usize {
        self.protocol.len()
    }

    pub fn protocol_stats(&self) -> EndpointStats {
        self.protocol.stats()
    }

    pub fn stats(&self) -> QuicSocketStats {
        self.counters
    }

    /// The error that ended the socket; `None` if there was none.
    pub fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// Takes the next event of a connection. The events of a connection are consecutive.
    pub fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        self.poll_event_past(&mut |_, _, event| Taking::Left(event))
    }

    /// Returns the next event that `take` does not handle itself ([`Taking::Left`]).
    pub fn poll_event_past(
        &mut self,
        take: &mut dyn FnMut(ConnectionKey, &mut Connection, Event) -> Taking,
    ) -> Option<(ConnectionKey, Event)> {
        let event = self.protocol.poll_event_past(take);
        self.reported = event.is_some();
        event
    }

    /// Refuses new connections from now on, and closes the socket when the last connection has ended.
    pub fn drain(&mut self) {
        if self.phase == SocketPhase::Open {
            self.protocol.refuse_incoming();
            self.phase = SocketPhase::Draining;
        }
    }

    /// Closes all connections with `code`. The socket is closed when each connection has ended (RFC 9000 section 10.2:
    /// the peer has answered, or three probe time-outs have passed), and at the latest after [`CLOSING_MAX`].
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        if matches!(self.phase, SocketPhase::Open | SocketPhase::Draining) {
            self.protocol.refuse_incoming();
            self.protocol.close_all(now, code, reason);
            self.phase = SocketPhase::Closing {
                until: now + CLOSING_MAX,
            };
        }
    }

    /// True if `fd` is this socket's descriptor and belongs to the host, which has to close it.
    pub fn is_lent(&self, fd: RawFd) -> bool {
        matches!(self.fd, Some(SocketFd::Lent(lent)) if lent == fd)
            && !matches!(self.phase, SocketPhase::Ending | SocketPhase::Ended)
    }

    /// Takes ownership of the socket's descriptor from the host, so that the descriptor is closed when this socket
    /// ends.
    pub fn own(&mut self, fd: OwnedFd) {
        debug_assert!(self.is_lent(fd.as_raw_fd()));
        self.fd = Some(SocketFd::Owned(fd));
    }

    pub fn is_closing(&self) -> bool {
        self.phase != SocketPhase::Open
    }

    // Methods of the engine --------------------------------------------------------------------------

    /// True if the host needs an event, so that it polls the events of connections. Then false until the host has
    /// polled all of them.
    pub(crate) fn take_events_ready(&mut self) -> bool {
        if self.reported {
            return false;
        }
        self.reported = self.protocol.has_events();
        self.reported
    }

    /// True if no operation of this socket is in the kernel, and the host has taken all events.
    pub(crate) fn has_ended(&self) -> bool {
        self.phase == SocketPhase::Ended && !self.reported
    }

    /// In a forked child: the next flush ends the socket without sending anything to the peers.
    pub(crate) fn leave_to_parent(&mut self) {
        self.is_parents = true;
        self.again.clear();
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let other = match self.phase {
            SocketPhase::Open | SocketPhase::Draining => self.flood_end,
            SocketPhase::Closing { until } => Some(until),
            SocketPhase::Ending | SocketPhase::Ended => return None,
        };
        earliest(self.protocol.next_timeout(), other)
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.protocol.handle_timeout(now);
        if self.flood_end.is_some_and(|at| at <= now) {
            self.flood_end = None;
            if self.protocol.budget().take_flood_end(now)
                && let Err(error) = heap_trim::trim_on_thread()
            {
                log::debug!("freed memory stays with the process: {error}");
            }
        }
    }

    pub fn handle_completion(&mut self, sub: u8, completion: Completion, now: Instant) {
        let socket = u32::from(sub >> 2);
        let (op, more) = (completion.op(), completion.more());
        match (sub & 3, completion.outcome) {
            (SUB_RECV, outcome) => {
                match (more, socket) {
                    (true, _) => {}
                    (false, 0) => self.receiving = None,
                    (false, number) => self.additional.receive_ended(number),
                }
                match outcome {
                    Outcome::Datagram(Ok(datagram)) => self.receive(&datagram, socket, now),
                    Outcome::Datagram(Err(error)) => self.receive_failed(error, socket, now),
                    _ => debug_assert!(false, "a receive completes with a datagram"),
                }
            }
            (SUB_SEND, Outcome::Done(result)) => self.sent(op, result, now),
            (SUB_CLOSE, _) if socket == 0 => self.fd = None,
            (SUB_CLOSE, _) => self.additional.closed(socket),
            _ => debug_assert!(false, "a completion of a kind that no QUIC socket starts"),
        }
        if self.phase == SocketPhase::Ending {
            self.end_if_released();
        }
    }

    /// Arms the receives, and sends packets of the state machines until the bound of sends in flight is reached. The
    /// other packets are sent when sends complete.
    pub fn flush(&mut self, driver: &mut Driver, now: Instant) {
        if self.phase == SocketPhase::Ended {
            return;
        }
        if self.is_parents && self.failure.is_none() {
            self.failure = Some(Errno::CANCELED);
            self.close(
                now,
                INTERNAL_ERROR,
                b"the connection is the parent process's",
            );
        }
        let is_ending = matches!(self.phase, SocketPhase::Ending | SocketPhase::Ended);
        if self.receiving.is_none() && !is_ending {
            self.receiving = Some(driver.recv_msg(self.raw_fd, self.token_for(SUB_RECV)));
        }
        let token = self.token;
        self.additional
            .flush(driver, |sub| token | u64::from(sub) << 48);
        self.send(driver, now);
        self.flood_end = self.protocol.budget().flood_end(now);
        let all_sent = self.in_flight.is_empty() && self.again.is_empty();
        if all_sent && self.may_end(now) {
            self.release(driver);
        }
    }

    fn fd_of(&self, socket: u32) -> Option<RawFd> {
        match socket {
            0 => Some(self.raw_fd),
            number => self.additional.raw_fd(number),
        }
    }

    fn token_for(&self, sub: u8) -> Token {
        self.token | u64::from(sub) << 48
    }

    // Receiving ----------------------------------------------------------------------------------

    /// Splits a GRO batch into its datagrams. The batch is copied once, because the state machine decrypts in place and
    /// keeps data that it cannot deliver yet, and the kernel's buffer has to be returned. If the state machine holds
    /// many datagrams already, each datagram is copied separately, because otherwise a single datagram would keep the
    /// memory of the whole batch.
    fn receive(&mut self, datagram: &Datagram, socket: u32, now: Instant) {
        if self.phase == SocketPhase::Ending || self.phase == SocketPhase::Ended {
            return;
        }
        let payload = datagram.payload();
        if datagram.truncated() {
            self.counters.truncated += 1;
            return;
        }
        let (Some(remote), false) = (datagram.remote(), payload.is_empty()) else {
            return;
        };
        let meta = DatagramMeta {
            remote,
            local_ip: datagram.local_ip(),
            ecn: datagram.ecn(),
        };
        let segment = datagram
            .segment_size()
            .filter(|size| *size > 0)
            .unwrap_or(payload.len());
        self.counters.receives += 1;
        if self.protocol.keeps_datagrams() {
            for one in payload.chunks(segment) {
                self.counters.datagrams_received += 1;
                self.protocol
                    .handle_datagram_at(now, socket, meta, BytesMut::from(one));
            }
            return;
        }
        let mut rest = BytesMut::from(payload);
        while !rest.is_empty() {
            self.counters.datagrams_received += 1;
            let one = match rest.len() > segment {
                true => rest.split_to(segment),
                // The last datagram of a batch, or the only one, is not copied but takes the memory that is left.
                false => std::mem::take(&mut rest),
            };
            self.protocol.handle_datagram_at(now, socket, meta, one);
        }
    }

    /// Handles a failed receive. The error is the ICMP report of an earlier send, or the socket no longer works.
    fn receive_failed(&mut self, error: Errno, socket: u32, now: Instant) {
        if error.0 == libc::ECANCELED {
            return;
        }
        self.counters.receive_errors += 1;
        self.read_error_queue(socket, now);
        match socket {
            _ if is_transient(error) => {}
            0 => self.fail(error, now),
            number => self.additional.close(number),
        }
    }

    fn read_error_queue(&mut self, socket: u32, now: Instant) {
        let Some(fd) = self.fd_of(socket) else { return };
        match net::read_error_queue(fd) {
            Ok(reports) => {
                for report in reports
                    .into_iter()
                    .filter(|report| is_unreachable(report.errno))
                {
                    self.protocol
                        .handle_unreachable(now, report.remote, report.errno.0);
                }
            }
            Err(error) => log::debug!("reading the error queue of a QUIC socket: {error}"),
        }
    }

    /// Closes every connection and the socket, because the socket no longer works.
    fn fail(&mut self, error: Errno, now: Instant) {
        log::warn!("a QUIC socket failed and is closed: {error}");
        self.failure = Some(error);
        self.close(now, INTERNAL_ERROR, b"the UDP socket failed");
    }

    // Closing -------------------------------------------------------------------------------------

    fn may_end(&self, now: Instant) -> bool {
        match self.phase {
            SocketPhase::Draining => self.protocol.may_end(),
            SocketPhase::Closing { until } => {
                self.failure.is_some() || until <= now || self.protocol.may_end()
            }
            SocketPhase::Open | SocketPhase::Ending | SocketPhase::Ended => false,
        }
    }

    fn release(&mut self, driver: &mut Driver) {
        self.phase = SocketPhase::Ending;
        match self.fd.take() {
            Some(SocketFd::Owned(fd)) => {
                // `fd` stays `Some` until the close has completed, so that the end of the socket waits for it.
                self.fd = Some(SocketFd::Lent(self.raw_fd));
                driver.close(fd, self.token_for(SUB_CLOSE));
            }
            _ => driver.cancel_fd(self.raw_fd),
        }
        self.additional.close_all();
        let token = self.token;
        self.additional
            .flush(driver, |sub| token | u64::from(sub) << 48);
        self.end_if_released();
    }

    fn end_if_released(&mut self) {
        if self.receiving.is_none() && self.fd.is_none() && self.additional.is_empty() {
            self.phase = SocketPhase::Ended;
        }
    }
}

/// True for errors of the socket after which it still works.
fn is_transient(error: Errno) -> bool {
    !matches!(
        error.0,
        libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EOPNOTSUPP | libc::EFAULT
    )
}

/// True for the ICMP report of an unreachable destination (RFC 1122 section 3.2.2.1), but not for "packet too big".
fn is_unreachable(error: Errno) -> bool {
    matches!(
        error.0,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EACCES
            | libc::EPERM
    )
}

/// The error code INTERNAL_ERROR (RFC 9000 section 20.1).
const INTERNAL_ERROR: u64 = 0x1;
/// The longest time that a closing socket stays open for peers that have not answered. Three probe time-outs are a
/// fraction of a second on most paths. A path without a measured round-trip time must not delay the end of a program.
const CLOSING_MAX: Duration = Duration::from_secs(3);
/// The maximum number of send buffers that are kept for reuse after the kernel has read them.
const BUFFERS_KEPT_MAX: usize = 16;
/// The socket buffer size in bytes that is requested. The datagrams of one loop iteration can overflow a smaller one.
const SOCKET_BUFFER_GOOD: usize = 2 << 20;
