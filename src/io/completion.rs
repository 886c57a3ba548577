//! What comes back from the kernel: completions and their outcomes.
//!
//! Not here: how an outcome is produced (`uring/`, `epoll/`) and who routes it (the engine).

use std::os::fd::OwnedFd;

use crate::datagram::Datagram;
use crate::errno::Errno;
use crate::file::FileOutcome;
use crate::incoming::{Incoming, PeerName};
use crate::op::{OpId, Token};
use crate::pool::RecvBuf;

/// One result of one operation. A multishot operation produces many, the last without `more`.
#[derive(Debug)]
pub struct Completion {
    /// The operation, and in the bit that no identifier has, whether there is more to come: each
    /// completion is moved several times on its way, so its size counts.
    op_and_more: u64,
    /// The token given when the operation was queued.
    pub token: Token,
    /// What happened.
    pub outcome: Outcome,
}

const _: () = assert!(size_of::<Completion>() <= 48);

impl Completion {
    pub(crate) fn new(op: OpId, token: Token, outcome: Outcome, more: bool) -> Completion {
        Completion {
            op_and_more: op.as_u64() | u64::from(more) << OpId::FREE_BIT,
            token,
            outcome,
        }
    }

    /// The operation that this belongs to.
    pub fn op(&self) -> OpId {
        OpId::from_u64(self.op_and_more & !(1 << OpId::FREE_BIT))
    }

    /// True while the operation stays armed and will complete again.
    pub fn more(&self) -> bool {
        self.op_and_more >> OpId::FREE_BIT != 0
    }
}

/// The result of an operation. The variant follows from the operation's kind alone, also when it
/// failed or was cancelled: a cancelled `recv` is `Received(Err(Errno::CANCELED))`.
#[derive(Debug)]
pub enum Outcome {
    /// `send`, `send_vectored`, `send_msg`: bytes. `poll`: the `POLL*` bits.
    /// `connect`, `close`: 0.
    Done(Result<u32, Errno>),
    /// A new connection, non-blocking and close-on-exec.
    Accepted(Result<OwnedFd, Errno>),
    /// Stream data; an empty buffer is the end of the stream.
    Received(Result<RecvBuf, Errno>),
    /// A datagram, or several of one peer that GRO joined.
    Datagram(Result<Datagram, Errno>),
    /// No operation's: what [`net::accept`](crate::net::accept) brought a host that waited by `poll`.
    AcceptedFrom(Result<(OwnedFd, PeerName), Errno>),
    /// No operation's: what [`net::recv_message`](crate::net::recv_message) brought such a host.
    ReceivedFrom(Result<Incoming, Errno>),
    /// `file`: what the request came to.
    File(Box<FileOutcome>),
}

/// The direction that [`poll`](crate::Driver::poll) waits for.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Interest {
    Read,
    Write,
}

impl Interest {
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
