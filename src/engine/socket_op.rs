//! An operation on a socket that is the host's own: what it asks for once, and how the driver is asked.
//!
//! Not here: whose operation is next on a socket (`lanes`).

use std::os::fd::RawFd;

use bytes::Bytes;
use uringcore_io::{Driver, Interest, OpId, SendMsg, SockAddr, Token};

use crate::poll::Direction;

pub enum SocketOp {
    Recv(u32),
    RecvFrom(usize),
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
            Self::RecvFrom(size) => driver.recv_from(fd, size, token),
            Self::Accept => driver.accept_once(fd, token),
            Self::Send(data) => driver.send(fd, data, token),
            Self::SendTo(data, to) => driver.send_msg(fd, SendMsg::plain(data, to), token),
            Self::Connect(address) => driver.connect(fd, address, token),
            Self::Writable => driver.poll(fd, Interest::Write, token),
        }
    }
}
