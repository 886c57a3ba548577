//! Completions: the results of operations, as the driver returns them.
//!
//! Not here: how an outcome is produced (`uring/`, `epoll/`) and its routing (the engine).

use std::os::fd::OwnedFd;

use crate::errno::Errno;
use crate::file_operations::FileOutcome;
use crate::operation_table::{OpId, Token};
use crate::receive_buffer_pool::RecvBuf;
use crate::received_datagram::Datagram;
use crate::received_message::{PeerAddress, ReceivedMessage};

/// One result of an operation. A multishot operation has many completions; [`more`](Self::more) is false for the last.
#[derive(Debug)]
pub struct Completion {
    /// The operation's identifier, and the `more` flag in a bit that no identifier uses. One word holds both, because
    /// each completion is moved several times.
    op_and_more: u64,
    /// The token that the caller passed when it queued the operation.
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
    /// Stream data. An empty buffer marks the end of the stream.
    Received(Result<RecvBuf, Errno>),
    /// A datagram, or several of one peer that GRO joined.
    Datagram(Result<Datagram, Errno>),
    /// A connection that [`net::accept`](crate::net::accept) has returned. The driver never reports this outcome. Hosts
    /// that wait with `poll` and then accept by themselves use it, so that both kinds of accept have one type of
    /// result.
    AcceptedFrom(Result<(OwnedFd, PeerAddress), Errno>),
    /// A message of [`net::recv_message`](crate::net::recv_message). The driver never reports it; hosts that wait with
    /// `poll` and then receive use it.
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

/// The reason why [`enter`](crate::Driver::enter) returned. Completions may be ready in each case, so the caller always
/// takes them.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Entered {
    /// Completions are ready, or the call did not block.
    Ready,
    /// The time-out passed without a completion.
    TimedOut,
    /// Another thread called [`Waker::wake`](crate::Waker::wake).
    Woken,
    /// A signal arrived: the host runs its signal handlers and enters again. If a completion or a wake arrives with the
    /// signal, only that is reported. So a host with signal handlers checks for pending signals after every blocking
    /// call.
    Interrupted,
}
