//! The descriptor of a QUIC socket, which either the engine or the host closes.
//!
//! Descriptors of streams and datagram sockets stay with the host until it releases them.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The descriptor of a socket on the engine.
///
/// The driver closes an `Owned` one (cancel-all hard-linked to close). A `Lent` one stays the host's, which keeps it open
/// until the engine has cancelled its operations and queued the socket's last event.
#[derive(Debug)]
pub enum SocketFd {
    Owned(OwnedFd),
    Lent(RawFd),
}

impl SocketFd {
    pub fn raw(&self) -> RawFd {
        match self {
            Self::Owned(fd) => fd.as_raw_fd(),
            Self::Lent(fd) => *fd,
        }
    }
}
