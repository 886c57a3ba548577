//! The sending half: batches out of pooled buffers, few enough at once, and what a failure of one means.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use uringcore_io::{Driver, Errno, OpId, SendMsg, SockAddr};
use uringcore_quic::{ConnectionKey, Endpoint, Transmit};

use super::{QuicSocket, SUB_SEND, State};

/// One `sendmsg`, kept until the kernel is known to have taken it.
pub(super) struct Batch {
    data: Bytes,
    remote: SocketAddr,
    segment_size: Option<usize>,
    ecn: Option<u8>,
    src_ip: Option<std::net::IpAddr>,
    socket: u32,
    /// So often its place was taken by the report of another.
    retries: u8,
}

pub(super) struct InFlight {
    op: OpId,
    batch: Batch,
    /// It was refused at once, for a reason of its own or the report of an earlier one.
    was_refused: bool,
}

impl QuicSocket {
    /// As much as the bound allows. A batch that is alone leaves at once: queued, its completion would cut short the
    /// wait for its answer. Several share a system call.
    pub(super) fn send(&mut self, driver: &mut Driver, now: Instant) {
        if self.in_flight.is_empty() {
            let first = self.next_batch(now);
            let second = first.as_ref().and_then(|_| self.next_batch(now));
            match (first, second) {
                (None, _) => return,
                (Some(only), None) => return self.send_alone(driver, only),
                (Some(first), Some(second)) => {
                    self.queue(driver, first, false);
                    self.queue(driver, second, false);
                }
            }
        }
        let mut queued = 0;
        while self.has_room() {
            let Some(batch) = self.next_batch(now) else {
                break;
            };
            self.queue(driver, batch, false);
            queued += 1;
            // What goes to many is on its way to the first ones while it is sealed for the others.
            if queued % SENDS_A_SUBMISSION == 0 {
                driver.submit();
            }
        }
    }

    /// Sends what one connection has to send, and nothing of the others: their acknowledgements may still leave
    /// together with their data.
    pub(crate) fn send_connection(
        &mut self,
        driver: &mut Driver,
        connection: ConnectionKey,
        now: Instant,
    ) {
        let mut is_queued = false;
        while self.has_room() && self.again.is_empty() {
            let Some(batch) = self.next_batch_of(connection, now) else {
                break;
            };
            // What waits in the kernel for room goes first.
            match self.in_flight.is_empty() {
                true => self.send_alone(driver, batch),
                false => {
                    self.queue(driver, batch, false);
                    is_queued = true;
                }
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
        // A socket that is gone: the packets are as good as lost.
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

    /// What the socket refuses is queued: what comes of that is told with the turn's other completions, and not
    /// while the state machines are asked what they have to send.
    fn send_alone(&mut self, driver: &mut Driver, batch: Batch) {
        let Some(fd) = self.fd_of(batch.socket) else {
            return;
        };
        match driver.send_msg_now(fd, batch.message()) {
            Ok(()) => self.counters.sends += 1,
            Err(Errno(libc::EAGAIN)) => self.queue(driver, batch, false),
            Err(_) => self.queue(driver, batch, true),
        }
    }

    fn next_batch(&mut self, now: Instant) -> Option<Batch> {
        if self.is_silent() {
            return None;
        }
        if let Some(batch) = self.again.pop_front() {
            return Some(batch);
        }
        self.make_batch(|protocol, buffer| protocol.poll_transmit(now, buffer))
    }

    fn next_batch_of(&mut self, connection: ConnectionKey, now: Instant) -> Option<Batch> {
        if self.is_silent() {
            return None;
        }
        self.make_batch(|protocol, buffer| protocol.poll_transmit_of(connection, now, buffer))
    }

    fn is_silent(&self) -> bool {
        self.is_parents || matches!(self.state, State::Ending | State::Ended)
    }

    fn make_batch(
        &mut self,
        poll: impl FnOnce(&mut Endpoint, &mut Vec<u8>) -> Option<Transmit>,
    ) -> Option<Batch> {
        let mut buffer = self.buffers.take();
        let Some(transmit) = poll(&mut self.protocol, buffer.vec()) else {
            buffer.give_back();
            return None;
        };
        // An acknowledgement would keep a buffer of 64 KiB from use; its copy costs next to nothing.
        let data = if transmit.size <= COPIED_MAX {
            let copy = Bytes::copy_from_slice(&buffer.vec()[..transmit.size]);
            buffer.give_back();
            copy
        } else {
            buffer.into_bytes()
        };
        Some(Batch::new(&transmit, data))
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

    /// A lost packet is QUIC's daily bread, so most errors need no answer beside the loss. Five do.
    fn send_failed(&mut self, batch: Batch, error: Errno, now: Instant) {
        self.counters.send_errors += 1;
        // If that was a report, the socket's next call won't tell of it, and it would stay in the queue.
        self.read_error_queue(batch.socket, now);
        match error.0 {
            // Some drivers and virtual devices take the option and then refuse the batch.
            libc::EIO | libc::EINVAL if batch.segment_size.is_some() => {
                log::info!("the kernel refuses GSO on a QUIC socket ({error}): sending singly");
                self.protocol.set_gso(1);
                self.again.extend(batch.split());
            }
            // The route's MTU shrank; the segments that still fit get through, the state machine
            // notices the others missing (RFC 8899 section 4.3).
            libc::EMSGSIZE if batch.segment_size.is_some() => self.again.extend(batch.split()),
            // Not even the smallest datagram that begins a connection: there is no QUIC on this
            // network (RFC 9000 section 14), and a handshake would try until its time-out.
            libc::EMSGSIZE if batch.data.len() <= LEAST_DATAGRAM => {
                self.protocol.handle_unreachable(now, batch.remote, error.0);
            }
            // A pending ICMP report of an earlier send: this one was not even tried.
            libc::ECONNREFUSED if batch.retries < RETRIES_MAX => self.try_again(batch),
            // Such a report, or what this machine says itself, each time.
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EACCES if batch.retries == 0 => {
                self.try_again(batch);
            }
            // Told at once instead of after the handshake's time-out.
            _ if is_no_way_there(error) => {
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
            segment_size: transmit.segment_size.filter(|size| *size < transmit.size),
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
            segment_size: self.segment_size.and_then(|size| u16::try_from(size).ok()),
            ecn: self.ecn,
            src_ip: self.src_ip,
        }
    }

    /// The batch as single datagrams.
    fn split(self) -> impl Iterator<Item = Batch> {
        let size = self.segment_size.unwrap_or(self.data.len()).max(1);
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

/// Errors of a send that the next one will meet too: no route, a firewall, a protocol that is switched
/// off on this machine, or an address of a kind that nothing is sent to.
fn is_no_way_there(error: Errno) -> bool {
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

/// What every network that carries QUIC takes (RFC 9000 section 14).
const LEAST_DATAGRAM: usize = 1200;
/// Bytes that may be in the kernel at once, give or take one batch: a turn's worth.
const BYTES_IN_FLIGHT_MAX: usize = 1 << 20;
/// Sends that may be in the kernel at once: many connections with little to say share a system call.
const SENDS_IN_FLIGHT_MAX: usize = 256;
/// Of many sends to dead ports at once every second one fails with the report of the one before it, each time.
const RETRIES_MAX: u8 = SENDS_IN_FLIGHT_MAX.ilog2() as u8;
/// A system call for so many sends is not felt.
const SENDS_A_SUBMISSION: usize = 16;
/// Up to here a batch is copied out of its buffer.
const COPIED_MAX: usize = 2048;
