//! Who closes the descriptor of a QUIC endpoint: the engine, or the host that lent it.
//!
//! Streams and datagram sockets leave theirs with the host until it releases them.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A socket on the engine.
///
/// An `Owned` one is closed by the driver (cancel-all hard-linked to close). A `Lent` one stays the
/// host's: the engine cancels its operations, waits for their last completions and then says so, and
/// the host closes it. The host promises to keep a lent descriptor open until then.
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
