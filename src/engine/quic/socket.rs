//! One UDP socket joined with the QUIC state machines: completions in, GSO batches out.
//!
//! | file | noun |
//! | --- | --- |
//! | `sending` | bounded batches in flight out of pooled buffers; the fall-back when the kernel refuses GSO |
//! | `buffers` | the pooled send buffers |
//! | `additional` | the sockets beside the first: after a client's migration, of a server's preferred address |
//!
//! Here: receiving (GRO cut, one copy per batch), ICMP errors, the orderly end, and when the memory of a flood goes
//! back to the system. Not here: anything of the protocol (`uringcore_quic`), and what becomes of the
//! connections' events (the host's).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use uringcore_io::{Completion, Datagram, Driver, Errno, OpId, Outcome, Token, heap, net};
use uringcore_quic::{ConnectionKey, DatagramMeta, Endpoint, EndpointStats, Event};

use crate::quic::descriptor::SocketFd;

mod additional;
mod buffers;
mod sending;

use additional::MoreSockets;
use buffers::BufferPool;
use sending::{Batch, InFlight};

/// The endpoint's own part of a token (`token::Route::sub`): this in the lower two bits, the number
/// of the socket above.
const SUB_RECV: u8 = 0;
const SUB_SEND: u8 = 1;
const SUB_CLOSE: u8 = 2;

/// A UDP socket with its QUIC connections.
///
/// The engine calls [`handle_completion`](Self::handle_completion) for each completion and
/// [`flush`](Self::flush) once a turn. The host commands through [`protocol`](Self::protocol) and
/// takes events from [`poll_event`](Self::poll_event) when it is told that there are some.
pub struct QuicSocket {
    /// `None` once the driver closes it.
    fd: Option<SocketFd>,
    raw_fd: RawFd,
    token: Token,
    protocol: Endpoint,
    receiving: Option<OpId>,
    /// Sockets beside the first.
    more: MoreSockets,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    /// What the kernel did not take and must be offered again.
    again: VecDeque<Batch>,
    buffers: BufferPool,
    /// An event taken early, to know that there is one.
    peeked: Option<(ConnectionKey, Event)>,
    /// The host was told about events and has not yet seen the last of them.
    reported: bool,
    state: State,
    failure: Option<Errno>,
    /// This is a forked child, and the connections are its parent's. Two processes with the same keys would
    /// use the same nonces (RFC 9001 section 5.3): nothing is sent from here.
    is_parents: bool,
    /// When the flood of the process will be over. The first endpoint that sees it over gives its memory back.
    flood_over_at: Option<Instant>,
    counters: QuicSocketStats,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// No new connections; the end comes with the end of the last one.
    Draining,
    /// Connections are closed, which is said, and said again to a peer that goes on talking.
    Closing {
        until: Instant,
    },
    /// The socket is being closed.
    Ending,
    Ended,
}

/// Counters of one endpoint's socket.
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
    /// Joins a bound UDP socket with `protocol`. The socket is prepared (error queue, GRO, ECN,
    /// packet info, no fragmentation); `token` is what its operations carry, `sub` left zero.
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
            more: MoreSockets::default(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            again: VecDeque::new(),
            buffers: BufferPool::new(BUFFERS_KEPT_MAX),
            peeked: None,
            reported: false,
            state: State::Open,
            failure: None,
            is_parents: false,
            flood_over_at: None,
            counters: QuicSocketStats::default(),
        })
    }

    // For the host -------------------------------------------------------------------------------

    /// The state machines, for commands. What they want to send goes out at the next flush.
    pub fn protocol(&mut self) -> &mut Endpoint {
        &mut self.protocol
    }

    pub fn raw_fd(&self) -> RawFd {
        self.raw_fd
    }

    /// Takes a further bound UDP socket for good. Returns the number by which the protocol knows
    /// it; there may be 63. It is closed with the endpoint, or by `remove_socket`.
    pub fn add_socket(&mut self, fd: OwnedFd) -> io::Result<u32> {
        match self.state {
            State::Open | State::Draining => self.more.add(fd),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Closes a further socket. What a connection still sends through it is lost.
    pub fn remove_socket(&mut self, number: u32) {
        self.more.close(number);
    }

    /// Connections that are not yet forgotten, closing ones included.
    pub fn connections(&self) -> usize {
        self.protocol.len()
    }

    pub fn protocol_stats(&self) -> EndpointStats {
        self.protocol.stats()
    }

    pub fn stats(&self) -> QuicSocketStats {
        self.counters
    }

    /// The error that ended the socket, if one did.
    pub fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// The next event of a connection; those of one connection come in a row.
    pub fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        let event = self.peeked.take().or_else(|| self.protocol.poll_event());
        self.reported = event.is_some();
        event
    }

    /// Refuses new connections from now on, and closes the socket when the last one there is has
    /// ended.
    pub fn drain(&mut self) {
        if self.state == State::Open {
            self.protocol.refuse_incoming();
            self.state = State::Draining;
        }
    }

    /// Closes all connections with `code`, and the socket once the peers have heard of it: each has
    /// answered or had its three probe time-outs (RFC 9000 section 10.2), or [`CLOSING_MAX`] is over.
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        if matches!(self.state, State::Open | State::Draining) {
            self.protocol.refuse_incoming();
            self.protocol.close_all(now, code, reason);
            self.state = State::Closing {
                until: now + CLOSING_MAX,
            };
        }
    }

    /// True if the socket has this number and is the host's to close.
    pub fn is_lent(&self, fd: RawFd) -> bool {
        matches!(self.fd, Some(SocketFd::Lent(lent)) if lent == fd)
            && !matches!(self.state, State::Ending | State::Ended)
    }

    /// Makes a lent descriptor the endpoint's own: it closes it at the end, and the host need not.
    pub fn own(&mut self, fd: OwnedFd) {
        debug_assert!(self.is_lent(fd.as_raw_fd()));
        self.fd = Some(SocketFd::Owned(fd));
    }

    pub fn is_closing(&self) -> bool {
        self.state != State::Open
    }

    // For the engine -----------------------------------------------------------------------------

    /// True once for every time that the host has to be told to poll events.
    pub(crate) fn take_events_ready(&mut self) -> bool {
        if self.reported {
            return false;
        }
        if self.peeked.is_none() {
            self.peeked = self.protocol.poll_event();
        }
        self.reported = self.peeked.is_some();
        self.reported
    }

    /// True when nothing of this endpoint is in the kernel and the host has seen all events.
    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended && !self.reported
    }

    /// In a forked child: ends with the next flush, without a word to the peers.
    pub(crate) fn leave_to_parent(&mut self) {
        self.is_parents = true;
        self.again.clear();
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        match self.state {
            State::Open | State::Draining => {
                let timeout = self.protocol.next_timeout();
                timeout.into_iter().chain(self.flood_over_at).min()
            }
            State::Closing { until } => self
                .protocol
                .next_timeout()
                .into_iter()
                .chain([until])
                .min(),
            State::Ending | State::Ended => None,
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.protocol.handle_timeout(now);
        if self.flood_over_at.is_some_and(|at| at <= now) {
            self.flood_over_at = None;
            if self.protocol.budget().take_flood_over(now)
                && let Err(error) = heap::trim_apart()
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
                    (false, number) => self.more.receive_ended(number),
                }
                match outcome {
                    Outcome::Datagram(Ok(datagram)) => self.receive(&datagram, socket, now),
                    Outcome::Datagram(Err(error)) => self.receive_failed(error, socket, now),
                    _ => debug_assert!(false, "a receive completes with a datagram"),
                }
            }
            (SUB_SEND, Outcome::Done(result)) => self.sent(op, result, now),
            (SUB_CLOSE, _) if socket == 0 => self.fd = None,
            (SUB_CLOSE, _) => self.more.closed(socket),
            _ => debug_assert!(false, "a completion of a kind that no QUIC endpoint starts"),
        }
        if self.state == State::Ending {
            self.end_if_released();
        }
    }

    /// Arms the receive, and turns what the state machines want to send into sends, as far as the
    /// bound allows; the rest follows when sends complete.
    pub fn flush(&mut self, driver: &mut Driver, now: Instant) {
        if self.state == State::Ended {
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
        let is_ending = matches!(self.state, State::Ending | State::Ended);
        if self.receiving.is_none() && !is_ending {
            self.receiving = Some(driver.recv_msg(self.raw_fd, self.token_for(SUB_RECV)));
        }
        let token = self.token;
        self.more.flush(driver, |sub| token | u64::from(sub) << 48);
        self.send(driver, now);
        self.flood_over_at = self.protocol.budget().flood_over_at(now);
        let all_sent = self.in_flight.is_empty() && self.again.is_empty();
        if all_sent && self.may_end(now) {
            self.release(driver);
        }
    }

    fn fd_of(&self, socket: u32) -> Option<RawFd> {
        match socket {
            0 => Some(self.raw_fd),
            number => self.more.raw_fd(number),
        }
    }

    fn token_for(&self, sub: u8) -> Token {
        self.token | u64::from(sub) << 48
    }

    // Receiving ----------------------------------------------------------------------------------

    /// Cuts a GRO batch into its datagrams: one copy for all of them, because the state machine
    /// decrypts in place and keeps what it cannot deliver yet, while the kernel's buffer must go back. Where much
    /// is kept already each has a copy of its own, for one that is kept would keep them all.
    fn receive(&mut self, datagram: &Datagram, socket: u32, now: Instant) {
        if self.state == State::Ending || self.state == State::Ended {
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
                // The last one, or the only one: nothing to share the memory with.
                false => std::mem::take(&mut rest),
            };
            self.protocol.handle_datagram_at(now, socket, meta, one);
        }
    }

    /// An error on the receiving side is an ICMP report of an earlier send, or the socket's end.
    fn receive_failed(&mut self, error: Errno, socket: u32, now: Instant) {
        if error.0 == libc::ECANCELED {
            return;
        }
        self.counters.receive_errors += 1;
        self.read_error_queue(socket, now);
        match socket {
            _ if is_transient(error) => {}
            0 => self.fail(error, now),
            number => self.more.close(number),
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

    /// The socket is of no more use: every connection ends, and so does the endpoint.
    fn fail(&mut self, error: Errno, now: Instant) {
        log::warn!("a QUIC socket failed and is closed: {error}");
        self.failure = Some(error);
        self.close(now, INTERNAL_ERROR, b"the UDP socket failed");
    }

    // The end ------------------------------------------------------------------------------------

    fn may_end(&self, now: Instant) -> bool {
        match self.state {
            State::Draining => self.protocol.may_end(),
            State::Closing { until } => {
                self.failure.is_some() || until <= now || self.protocol.may_end()
            }
            State::Open | State::Ending | State::Ended => false,
        }
    }

    fn release(&mut self, driver: &mut Driver) {
        self.state = State::Ending;
        match self.fd.take() {
            Some(SocketFd::Owned(fd)) => {
                // `fd` stays `Some` until the close completes, so that the end waits for it.
                self.fd = Some(SocketFd::Lent(self.raw_fd));
                driver.close(fd, self.token_for(SUB_CLOSE));
            }
            _ => driver.cancel_fd(self.raw_fd),
        }
        self.more.close_all();
        let token = self.token;
        self.more.flush(driver, |sub| token | u64::from(sub) << 48);
        self.end_if_released();
    }

    fn end_if_released(&mut self) {
        if self.receiving.is_none() && self.fd.is_none() && self.more.is_empty() {
            self.state = State::Ended;
        }
    }
}

/// Errors that a socket reports and survives.
fn is_transient(error: Errno) -> bool {
    !matches!(
        error.0,
        libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EOPNOTSUPP | libc::EFAULT
    )
}

/// Reports that say that nobody is there (RFC 1122 section 3.2.2.1), as against "packet too big".
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

/// RFC 9000 section 20.1.
const INTERNAL_ERROR: u64 = 0x1;
/// How long a closed endpoint stays at most for peers that did not hear of it. Three probe time-outs
/// are a fraction of a second on most paths; a path without an estimate must not hold up a program.
const CLOSING_MAX: Duration = Duration::from_secs(3);
/// What the kernel takes in one GSO batch (`UDP_MAX_SEGMENTS`; 128 since Linux 6.9, 64 before).
const GSO_SEGMENTS_MAX: usize = 64;
/// Send buffers kept for use again.
const BUFFERS_KEPT_MAX: usize = 16;
/// Below this a burst of one turn can overflow the socket.
const SOCKET_BUFFER_GOOD: usize = 2 << 20;
