//! An operation on one of the host's own sockets, and how it is started on the driver.
//!
//! `sock_operation_queues` decides which operation on a socket is started next.

use std::os::fd::RawFd;

use bytes::Bytes;
use uringcore_io::{Driver, Errno, Interest, OpId, Outcome, SendMsg, SockAddr, Token, net};

use crate::readiness_watchers::Direction;

pub enum SocketOp {
    Recv(u32),
    /// Waits until a message can be received. An [`Attempt`] then receives at most this number of bytes.
    RecvFrom(usize),
    /// Waits until a connection can be accepted. An [`Attempt`] then accepts it.
    Accept,
    Send(Bytes),
    SendTo(Bytes, Option<SockAddr>),
    Connect(SockAddr),
    /// Waits until the socket has room for data. Sends nothing.
    Writable,
}

impl SocketOp {
    #[inline]
    pub fn direction(&self) -> Direction {
        match self {
            Self::Recv(_) | Self::RecvFrom(_) | Self::Accept => Direction::Read,
            Self::Send(_) | Self::SendTo(..) | Self::Connect(_) | Self::Writable => {
                Direction::Write
            }
        }
    }

    #[inline]
    pub fn queue(self, driver: &mut Driver, fd: RawFd, token: Token) -> OpId {
        match self {
            Self::Recv(most) => driver.recv_once(fd, most, token),
            // Other processes may receive from the socket too. A poll takes nothing out of the socket, so nothing is
            // lost for them if this call is cancelled, or if this process is busy.
            Self::RecvFrom(_) | Self::Accept => driver.poll(fd, Interest::Read, token),
            Self::Send(data) => driver.send(fd, data, token),
            Self::SendTo(data, to) => driver.send_msg(fd, SendMsg::plain(data, to), token),
            Self::Connect(address) => driver.connect(fd, address, token),
            Self::Writable => driver.poll(fd, Interest::Write, token),
        }
    }
}

/// A receive or an accept without waiting, after the socket has become readable. The host makes it as late as
/// possible, because other processes may use the socket too and should get the data if this call is cancelled.
#[derive(Clone, Copy)]
pub enum Attempt {
    Message(usize),
    Connection,
}

impl Attempt {
    /// Makes the system call. `None` if there is no data and no connection, because another process has taken it.
    pub fn make(self, fd: RawFd) -> Option<Outcome> {
        let errno = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
        let outcome = match self {
            Self::Message(size) => {
                Outcome::ReceivedFrom(net::recv_message(fd, size).map_err(errno))
            }
            Self::Connection => Outcome::AcceptedFrom(net::accept(fd).map_err(errno)),
        };
        match &outcome {
            Outcome::ReceivedFrom(Err(error)) | Outcome::AcceptedFrom(Err(error)) => {
                let passes = [libc::EAGAIN, libc::EINTR, libc::ECONNABORTED];
                (!passes.contains(&error.0)).then_some(outcome)
            }
            _ => Some(outcome),
        }
    }

    /// The operation that waits until the attempt can succeed.
    pub fn into_op(self) -> SocketOp {
        match self {
            Self::Message(size) => SocketOp::RecvFrom(size),
            Self::Connection => SocketOp::Accept,
        }
    }
}
