//! An operation on a socket of the host's own, and how the driver starts it.
//!
//! `op_queues` decides which operation is next on a socket.

use std::os::fd::RawFd;

use bytes::Bytes;
use uringcore_io::{Driver, Errno, Interest, OpId, Outcome, SendMsg, SockAddr, Token, net};

use crate::watchers::Direction;

pub enum SocketOp {
    Recv(u32),
    /// Waits for a message of at most this number of bytes. An [`Attempt`] then receives it.
    RecvFrom(usize),
    /// Waits for a connection. An [`Attempt`] then accepts it.
    Accept,
    Send(Bytes),
    SendTo(Bytes, Option<SockAddr>),
    Connect(SockAddr),
    /// Waits for room to send. Nothing is sent.
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
            // Other processes may have the socket as well. With a poll the kernel takes nothing out of it for a call that is
            // cancelled, or whose process computes.
            Self::RecvFrom(_) | Self::Accept => driver.poll(fd, Interest::Read, token),
            Self::Send(data) => driver.send(fd, data, token),
            Self::SendTo(data, to) => driver.send_msg(fd, SendMsg::plain(data, to), token),
            Self::Connect(address) => driver.connect(fd, address, token),
            Self::Writable => driver.poll(fd, Interest::Write, token),
        }
    }
}

/// A receive or an accept without waiting, after the wait for a readable socket. The host makes it as late as it can,
/// because other processes may have the socket as well, and data that a cancelled call has not taken is theirs.
#[derive(Clone, Copy)]
pub enum Attempt {
    Message(usize),
    Connection,
}

impl Attempt {
    /// `None` if there is nothing, because another process was faster.
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

    /// The wait for the attempt.
    pub fn into_op(self) -> SocketOp {
        match self {
            Self::Message(size) => SocketOp::RecvFrom(size),
            Self::Connection => SocketOp::Accept,
        }
    }
}
