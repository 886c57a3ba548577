//! What comes back from the kernel: completions, their outcomes, errno values.
//!
//! Not here: how an outcome is produced (`uring/`, `epoll/`) and who routes it (the engine).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use socket2::SockAddr;

use crate::datagram::Datagram;
use crate::file::FileOutcome;
use crate::incoming::Incoming;
use crate::op::{OpId, Token};
use crate::pool::RecvBuf;

/// One result of one operation. A multishot operation produces many, the last with `more` unset.
#[derive(Debug)]
pub struct Completion {
    /// The operation that this belongs to.
    pub op: OpId,
    /// The token given when the operation was queued.
    pub token: Token,
    /// What happened.
    pub outcome: Outcome,
    /// True while the operation stays armed and will complete again.
    pub more: bool,
}

/// The result of an operation. The variant follows from the operation's kind alone, also when it
/// failed or was cancelled: a cancelled `recv` is `Received(Err(Errno::CANCELED))`.
#[derive(Debug)]
pub enum Outcome {
    /// `send`, `send_vectored`, `send_msg`, `write`: bytes. `poll`: the `POLL*` bits.
    /// `connect`, `close`: 0.
    Done(Result<u32, Errno>),
    /// A new connection, non-blocking and close-on-exec.
    Accepted(Result<OwnedFd, Errno>),
    /// Stream data; an empty buffer is the end of the stream.
    Received(Result<RecvBuf, Errno>),
    /// A datagram, or several of one peer that GRO joined.
    Datagram(Result<Datagram, Errno>),
    /// `accept_once`: as `Accepted`, with the peer's address.
    AcceptedFrom(Result<(OwnedFd, SockAddr), Errno>),
    /// `recv_from`.
    ReceivedFrom(Result<Incoming, Errno>),
    /// Byte count and the buffer given to `read`, its length unchanged.
    Read(Result<u32, Errno>, Vec<u8>),
    /// `file`: what the request came to.
    File(FileOutcome),
}

impl Outcome {
    /// In a forked child: a connection that was accepted and not told yet stays the parent's, and the
    /// operation that brought it has ended here without one.
    pub fn leave_connection_to_parent(&mut self) {
        if matches!(self, Self::AcceptedFrom(Ok(_))) {
            *self = Self::AcceptedFrom(Err(Errno::CANCELED));
        }
    }
}

/// A positive errno value.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The operation was cancelled.
    pub const CANCELED: Errno = Errno(libc::ECANCELED);
    /// The operation slab is full.
    pub const NO_BUFFERS: Errno = Errno(libc::ENOBUFS);

    /// The calling thread's `errno`.
    pub(crate) fn last() -> Errno {
        Errno(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

/// The direction that [`poll`](crate::Driver::poll) waits for.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Interest {
    Read,
    Write,
}

impl Interest {
    /// Contract spelling of [`Interest::Read`].
    pub const READ: Interest = Interest::Read;
    /// Contract spelling of [`Interest::Write`].
    pub const WRITE: Interest = Interest::Write;

    pub(crate) fn poll_bits(self) -> u32 {
        match self {
            Interest::Read => libc::POLLIN as u32,
            Interest::Write => libc::POLLOUT as u32,
        }
    }
}

/// Why [`enter`](crate::Driver::enter) returned. Completions may wait in every case: always reap.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Entered {
    /// Completions wait, or the call was asked not to block.
    Ready,
    /// The time-out passed with nothing to report.
    TimedOut,
    /// Another thread called [`Waker::wake`](crate::Waker::wake).
    Woken,
    /// A signal arrived: run the signal handlers, then enter again. A signal that comes together
    /// with a completion or a wake is not told: a host with signal handlers of its own looks for
    /// pending ones after every blocking call.
    Interrupted,
}
