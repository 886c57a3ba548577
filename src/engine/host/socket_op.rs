//! An operation on a socket that is the host's own: what it asks for once, and how the driver is asked.
//!
//! Not here: whose operation is next on a socket (`op_queues`).

use std::os::fd::RawFd;

use bytes::Bytes;
use uringcore_io::{Driver, Errno, Interest, OpId, Outcome, SendMsg, SockAddr, Token, net};

use crate::watchers::Direction;

pub enum SocketOp {
    Recv(u32),
    /// Waits for a message of at most so many bytes, which [`Attempt`] then receives.
    RecvFrom(usize),
    /// Waits for a connection, which [`Attempt`] then accepts.
    Accept,
    Send(Bytes),
    SendTo(Bytes, Option<SockAddr>),
    Connect(SockAddr),
    /// Room for more; nothing is sent.
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
            // Others may have the socket as well: the kernel takes nothing out of it for a call that is
            // cancelled meanwhile, or whose process computes.
            Self::RecvFrom(_) | Self::Accept => driver.poll(fd, Interest::Read, token),
            Self::Send(data) => driver.send(fd, data, token),
            Self::SendTo(data, to) => driver.send_msg(fd, SendMsg::plain(data, to), token),
            Self::Connect(address) => driver.connect(fd, address, token),
            Self::Writable => driver.poll(fd, Interest::Write, token),
        }
    }
}

/// What is done, without waiting, when the wait for a readable socket is over. The host does it as late as it
/// can: others may have the socket as well, and what a cancelled call has not taken is theirs.
#[derive(Clone, Copy)]
pub enum Attempt {
    Message(usize),
    Connection,
}

impl Attempt {
    /// `None`: there is nothing, for somebody else was faster.
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

    pub(crate) fn into_op(self) -> SocketOp {
        match self {
            Self::Message(size) => SocketOp::RecvFrom(size),
            Self::Connection => SocketOp::Accept,
        }
    }
}
