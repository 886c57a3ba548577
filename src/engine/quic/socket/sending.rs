//! The sending side of a QUIC socket: makes batches in pooled buffers, limits those in flight, and handles errors of
//! sends.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use uringcore_io::{BorrowedMsg, Driver, Errno, OpId, SendMsg, SockAddr};
use uringcore_quic::{ConnectionKey, Endpoint, Transmit};

use super::{QuicSocket, SUB_SEND, SocketPhase};

/// The datagrams of one `sendmsg` call. They are kept until the call completes.
pub(super) struct Batch {
    data: Bytes,
    remote: SocketAddr,
    segment_size: Option<u16>,
    ecn: Option<u8>,
    src_ip: Option<std::net::IpAddr>,
    socket: u32,
    /// The number of times that the kernel did not send this batch, because it first reported an error that an earlier
    /// send had caused.
    retries: u8,
}

/// A batch of packets before it is queued. If it is the only batch, it is sent from the buffer that it was written to.
enum Packets {
    New(Transmit, Vec<u8>),
    /// A batch that the socket has refused before.
    Again(Batch),
}

impl Packets {
    fn socket(&self) -> u32 {
        match self {
            Self::New(transmit, _) => transmit.socket,
            Self::Again(batch) => batch.socket,
        }
    }
}

pub(super) struct InFlight {
    op: OpId,
    batch: Batch,
    /// True if the kernel refused the first try at once, with an error of this batch or with the report of an earlier
    /// send.
    was_refused: bool,
}

impl QuicSocket {
    /// Sends packets until the bound of sends in flight is reached. A single batch is sent by a system call at once:
    /// if it were queued, its completion would end the wait for the peer's answer. Several batches share one
    /// submission.
    pub(super) fn send(&mut self, driver: &mut Driver, now: Instant) {
        if self.in_flight.is_empty() {
            let Some(first) = self.next_packets(now) else {
                return;
            };
            match self.next_packets(now) {
                None => return self.send_alone(driver, first),
                Some(second) => {
                    self.queue_packets(driver, first);
                    self.queue_packets(driver, second);
                }
            }
        }
        let mut queued = 0;
        while self.has_room() {
            let Some(packets) = self.next_packets(now) else {
                break;
            };
            self.queue_packets(driver, packets);
            queued += 1;
            // The first batches are submitted while the packets of the next ones are still being encrypted.
            if queued % SENDS_A_SUBMISSION == 0 {
                driver.submit();
            }
        }
    }

    /// Sends the packets of one connection. Acknowledgements of other connections wait, to be sent together with their
    /// data.
    pub(crate) fn send_connection(
        &mut self,
        driver: &mut Driver,
        connection: ConnectionKey,
        now: Instant,
    ) {
        let mut is_queued = false;
        while self.has_room() && self.again.is_empty() {
            let Some((transmit, buffer)) = self.next_packets_of(connection, now) else {
                break;
            };
            let has_more = self.protocol.may_send_more(connection, &transmit);
            let packets = Packets::New(transmit, buffer);
            // A batch is sent at once only if no earlier batch waits in the kernel.
            match self.in_flight.is_empty() {
                true => self.send_alone(driver, packets),
                false => {
                    self.queue_packets(driver, packets);
                    is_queued = true;
                }
            }
            if !has_more {
                break;
            }
        }
        if is_queued {
            driver.submit();
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < SENDS_IN_FLIGHT_MAX && self.in_flight_bytes < BYTES_IN_FLIGHT_MAX
    }

    fn queue(&mut self, driver: &mut Driver, batch: Batch, was_refused: bool) {
        // The additional socket that the packets were made for is closed, so the packets are lost.
        let Some(fd) = self.fd_of(batch.socket) else {
            return;
        };
        self.counters.sends += 1;
        self.in_flight_bytes += batch.data.len();
        let op = driver.send_msg(fd, batch.message(), self.token_for(SUB_SEND));
        self.in_flight.push_back(InFlight {
            op,
            batch,
            was_refused,
        });
    }

    /// Sends a batch at once. If the socket refuses it, the batch is queued, so that its error is handled with the
    /// completions of the loop iteration, and not while the state machines are being polled.
    fn send_alone(&mut self, driver: &mut Driver, packets: Packets) {
        let message = match &packets {
            Packets::New(transmit, buffer) => borrowed(transmit, buffer),
            Packets::Again(batch) => batch.borrowed(),
        };
        let Some(fd) = self.fd_of(packets.socket()) else {
            return;
        };
        let was_refused = match driver.send_msg_now(fd, message) {
            Ok(()) => {
                self.counters.sends += 1;
                if let Packets::New(_, buffer) = packets {
                    self.buffers.give_back(buffer);
                }
                return;
            }
            Err(Errno(libc::EAGAIN)) => false,
            Err(_) => true,
        };
        let batch = self.batch_of(packets);
        self.queue(driver, batch, was_refused);
    }

    fn queue_packets(&mut self, driver: &mut Driver, packets: Packets) {
        let batch = self.batch_of(packets);
        self.queue(driver, batch, false);
    }

    fn next_packets(&mut self, now: Instant) -> Option<Packets> {
        if self.is_silent() {
            return None;
        }
        if let Some(batch) = self.again.pop_front() {
            return Some(Packets::Again(batch));
        }
        let (transmit, buffer) =
            self.fill_buffer(|protocol, buffer| protocol.poll_transmit(now, buffer))?;
        Some(Packets::New(transmit, buffer))
    }

    fn next_packets_of(
        &mut self,
        connection: ConnectionKey,
        now: Instant,
    ) -> Option<(Transmit, Vec<u8>)> {
        if self.is_silent() {
            return None;
        }
        self.fill_buffer(|protocol, buffer| protocol.poll_transmit_of(connection, now, buffer))
    }

    fn is_silent(&self) -> bool {
        self.is_parents || matches!(self.phase, SocketPhase::Ending | SocketPhase::Ended)
    }

    fn fill_buffer(
        &mut self,
        poll: impl FnOnce(&mut Endpoint, &mut Vec<u8>) -> Option<Transmit>,
    ) -> Option<(Transmit, Vec<u8>)> {
        let mut buffer = self.buffers.take();
        let Some(transmit) = poll(&mut self.protocol, &mut buffer) else {
            self.buffers.give_back(buffer);
            return None;
        };
        Some((transmit, buffer))
    }

    fn batch_of(&mut self, packets: Packets) -> Batch {
        let (transmit, buffer) = match packets {
            Packets::New(transmit, buffer) => (transmit, buffer),
            Packets::Again(batch) => return batch,
        };
        // A small packet, such as an acknowledgement, is copied, so that it does not keep a buffer of 64 KiB.
        let data = if transmit.size <= COPIED_MAX {
            let copy = Bytes::copy_from_slice(&buffer[..transmit.size]);
            self.buffers.give_back(buffer);
            copy
        } else {
            self.buffers.lend(buffer)
        };
        Batch::new(&transmit, data)
    }

    pub(super) fn sent(&mut self, op: OpId, result: Result<u32, Errno>, now: Instant) {
        let Some(at) = self.in_flight.iter().position(|sent| sent.op == op) else {
            debug_assert!(false, "a send completes once");
            return;
        };
        let Some(InFlight {
            batch, was_refused, ..
        }) = self.in_flight.remove(at)
        else {
            return;
        };
        self.in_flight_bytes -= batch.data.len();
        match result {
            Err(Errno(libc::ECANCELED)) => {}
            Err(error) => self.send_failed(batch, error, now),
            Ok(_) if was_refused => self.read_error_queue(batch.socket, now),
            Ok(_) => {}
        }
    }

    /// Handles the error of a send. After most errors the packets count as lost, and QUIC retransmits them. This
    /// function handles the errors that need more.
    fn send_failed(&mut self, batch: Batch, error: Errno, now: Instant) {
        self.counters.send_errors += 1;
        // The error may be the report of an earlier send. Such a report would stay in the error queue.
        self.read_error_queue(batch.socket, now);
        match error.0 {
            // Some network drivers accept the GSO option and then reject the batch. Its datagrams are sent again, one
            // by one.
            libc::EIO | libc::EINVAL if batch.segment_size.is_some() => {
                log::info!("the kernel refuses GSO on a QUIC socket ({error}): sending singly");
                self.protocol.set_gso(1);
                self.again.extend(batch.split());
            }
            // The route's MTU has shrunk. Datagrams that still fit are sent, and the state machine detects the loss of
            // the others (RFC 8899 section 4.3).
            libc::EMSGSIZE if batch.segment_size.is_some() => self.again.extend(batch.split()),
            // The network does not carry even 1,200 bytes, which a first datagram must have (RFC 9000 section 14).
            // Without this the handshake would be retried until its time-out.
            libc::EMSGSIZE if batch.data.len() <= LEAST_DATAGRAM => {
                self.protocol.handle_unreachable(now, batch.remote, error.0);
            }
            // The error is the ICMP report of an earlier send, and this batch was not sent.
            libc::ECONNREFUSED if batch.retries < RETRIES_MAX => self.try_again(batch),
            // The error is the report of an earlier send, or one of this machine. A second try shows which.
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EACCES if batch.retries == 0 => {
                self.try_again(batch);
            }
            // The connection ends at once, instead of waiting for the time-out of its handshake.
            _ if is_permanent(error) => {
                self.protocol.handle_unreachable(now, batch.remote, error.0);
            }
            libc::EBADF | libc::ENOTSOCK => self.fail(error, now),
            _ => log::debug!("sending to {} on a QUIC socket: {error}", batch.remote),
        }
    }

    fn try_again(&mut self, batch: Batch) {
        self.again.push_back(Batch {
            retries: batch.retries + 1,
            ..batch
        });
    }
}

impl Batch {
    fn new(transmit: &Transmit, mut data: Bytes) -> Self {
        data.truncate(transmit.size);
        Self {
            data,
            remote: transmit.remote,
            segment_size: segments(transmit),
            ecn: transmit.ecn,
            src_ip: transmit.src_ip,
            socket: transmit.socket,
            retries: 0,
        }
    }

    fn message(&self) -> SendMsg {
        SendMsg {
            data: self.data.clone(),
            to: Some(SockAddr::from(self.remote)),
            segment_size: self.segment_size,
            ecn: self.ecn,
            src_ip: self.src_ip,
        }
    }

    fn borrowed(&self) -> BorrowedMsg<'_> {
        BorrowedMsg {
            data: &self.data,
            to: self.remote,
            segment_size: self.segment_size,
            ecn: self.ecn,
            src_ip: self.src_ip,
        }
    }

    /// Splits a batch into single datagrams.
    fn split(self) -> impl Iterator<Item = Batch> {
        let size = self
            .segment_size
            .map_or(self.data.len(), usize::from)
            .max(1);
        (0..self.data.len()).step_by(size).map(move |start| Batch {
            data: self.data.slice(start..(start + size).min(self.data.len())),
            segment_size: None,
            ..self.copy_header()
        })
    }

    fn copy_header(&self) -> Batch {
        Batch {
            data: Bytes::new(),
            ..*self
        }
    }
}

/// The size of each datagram of a batch, for the kernel to split it (GSO). `None` for a single datagram.
fn segments(transmit: &Transmit) -> Option<u16> {
    let size = transmit.segment_size.filter(|size| *size < transmit.size)?;
    u16::try_from(size).ok()
}

fn borrowed<'a>(transmit: &Transmit, buffer: &'a [u8]) -> BorrowedMsg<'a> {
    BorrowedMsg {
        data: &buffer[..transmit.size],
        to: transmit.remote,
        segment_size: segments(transmit),
        ecn: transmit.ecn,
        src_ip: transmit.src_ip,
    }
}

/// True for errors that the next send would get too: no route, a firewall, an address family that this machine does
/// not support, or an invalid address.
fn is_permanent(error: Errno) -> bool {
    matches!(
        error.0,
        libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EACCES
            | libc::EPERM
            | libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::EINVAL
    )
}

/// The datagram size in bytes that every network with QUIC must carry (RFC 9000 section 14).
const LEAST_DATAGRAM: usize = 1200;
/// The number of bytes in flight at which sending stops until sends complete. One loop iteration sends about this many.
const BYTES_IN_FLIGHT_MAX: usize = 1 << 20;
/// The number of sends in flight at which sending stops until sends complete. It is high, because small packets of
/// many connections share a system call.
const SENDS_IN_FLIGHT_MAX: usize = 256;
/// The maximum number of repetitions of a batch. If many sends go to closed ports, every second send fails with the
/// report of the one before, so each round of repetitions halves the number of failed sends.
const RETRIES_MAX: u8 = SENDS_IN_FLIGHT_MAX.ilog2() as u8;
/// The number of sends that are submitted in one system call. At this number the system call is a small part of the
/// cost.
const SENDS_A_SUBMISSION: usize = 16;
/// Batches of at most this many bytes are copied out of their buffer.
const COPIED_MAX: usize = 2048;
