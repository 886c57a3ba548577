//! The descriptor of a QUIC socket. It is closed by the engine or by the host.
//!
//! The descriptors of streams and datagram sockets always belong to the host until it releases them.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The descriptor of a QUIC socket.
///
/// The driver closes an `Owned` descriptor (with a cancellation of all operations that is linked to the close). A
/// `Lent` one belongs to the host, which keeps it open until the engine has cancelled its operations and queued the
/// socket's last event.
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
