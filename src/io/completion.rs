//! The results of the kernel: completions and their outcomes.
//!
//! Not here: how an outcome is produced (`uring/`, `epoll/`) and its routing (the engine).

use std::os::fd::OwnedFd;

use crate::buffer_pool::RecvBuf;
use crate::errno::Errno;
use crate::file_operations::FileOutcome;
use crate::operation_table::{OpId, Token};
use crate::received_datagram::Datagram;
use crate::received_message::{PeerAddress, ReceivedMessage};

/// One result of one operation. A multishot operation produces many, the last without `more`.
#[derive(Debug)]
pub struct Completion {
    /// The operation, with the `more` flag in the bit that no identifier uses: each completion is moved several
    /// times, so its size matters.
    op_and_more: u64,
    /// The token given when the operation was queued.
    pub token: Token,
    /// The result.
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

    /// The operation of this completion.
    pub fn op(&self) -> OpId {
        OpId::from_u64(self.op_and_more & !(1 << OpId::FREE_BIT))
    }

    /// True while the operation stays armed and will complete again.
    pub fn more(&self) -> bool {
        self.op_and_more >> OpId::FREE_BIT != 0
    }
}

/// The result of an operation. Its variant depends only on the operation's kind, even if it failed or was
/// cancelled: a cancelled `recv` is `Received(Err(Errno::CANCELED))`.
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
    /// Not an operation's: a result of [`net::accept`](crate::net::accept), for a host that waited by `poll`.
    AcceptedFrom(Result<(OwnedFd, PeerAddress), Errno>),
    /// Not an operation's: a result of [`net::recv_message`](crate::net::recv_message), for a host that waited by
    /// `poll`.
    ReceivedFrom(Result<ReceivedMessage, Errno>),
    /// `file`: the result of the request.
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

/// Why [`enter`](crate::Driver::enter) returned. Completions may wait in every case: always take them.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Entered {
    /// Completions wait, or the call did not block.
    Ready,
    /// The time-out passed with nothing to report.
    TimedOut,
    /// Another thread called [`Waker::wake`](crate::Waker::wake).
    Woken,
    /// A signal arrived: run the signal handlers, then enter again. A signal that arrives together with a
    /// completion or a wake is not reported: a host with signal handlers of its own must check for pending ones
    /// after every blocking call.
    Interrupted,
}
