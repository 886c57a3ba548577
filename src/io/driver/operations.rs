//! The operations of a driver: each gets a slot in the slab and is passed to the backend.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use bytes::Bytes;
use socket2::SockAddr;

use super::{Driver, Inner};
use crate::completion::Interest;
use crate::errno::Errno;
use crate::file_operations::FileRequest;
use crate::operation_table::{OpId, OpKind, Payload, Token};
use crate::outgoing_message::{BorrowedMsg, SendMsg};

impl Driver {
    /// Accepts connections until cancelled (multishot). Errors such as `EMFILE` end it; the caller decides when to
    /// accept again. On io_uring it waits exclusively: on a socket that other processes accept on as well, each
    /// client wakes only one waiter, even if that one does not accept. On such sockets use [`poll`](Driver::poll) with
    /// [`net::accept`](crate::net::accept).
    pub fn accept(&mut self, fd: RawFd, token: Token) -> OpId {
        self.start(OpKind::Accept, fd, token, Payload::None)
    }

    /// Receives stream data until the end of the stream, an error or a cancel (multishot).
    pub fn recv(&mut self, fd: RawFd, token: Token) -> OpId {
        self.start(OpKind::Recv, fd, token, Payload::None)
    }

    /// Receives stream data once, at most `most` bytes (not 0) and at most a stream buffer, which is taken only
    /// when data is there.
    pub fn recv_once(&mut self, fd: RawFd, most: u32, token: Token) -> OpId {
        self.start(OpKind::RecvOnce, fd, token, Payload::Most(most))
    }

    /// Receives datagrams until an error or a cancel (multishot), with address and control
    /// messages. After `ECONNREFUSED` drain the error queue
    /// ([`net::read_error_queue`](crate::net::read_error_queue)) before receiving again.
    pub fn recv_msg(&mut self, fd: RawFd, token: Token) -> OpId {
        self.start(OpKind::RecvMsg, fd, token, Payload::None)
    }

    /// Sends stream data, all of it unless an error or a cancel cuts it short. Only one send at a time for each
    /// socket: the kernel does not order two of them.
    pub fn send(&mut self, fd: RawFd, data: Bytes, token: Token) -> OpId {
        self.start(OpKind::Send, fd, token, Payload::Bytes(data))
    }

    /// [`send`](Driver::send) of several pieces, at most `IOV_MAX` (1,024).
    pub fn send_vectored(
        &mut self,
        fd: RawFd,
        pieces: impl IntoIterator<Item = Bytes>,
        token: Token,
    ) -> OpId {
        let payload = self.state.gather(pieces);
        debug_assert!(
            payload.pieces() <= libc::UIO_MAXIOV as usize,
            "the kernel accepts 1,024 pieces"
        );
        self.start(OpKind::SendVectored, fd, token, Payload::Gather(payload))
    }

    /// Sends one datagram or a GSO batch.
    pub fn send_msg(&mut self, fd: RawFd, message: SendMsg, token: Token) -> OpId {
        let payload = self.state.message(message);
        self.start(OpKind::SendMsg, fd, token, Payload::Message(payload))
    }

    /// Sends one message without an operation, if the socket has room: `EAGAIN` if not. Use it for a single message
    /// that is followed by a wait: an operation's completion would cut the wait short.
    pub fn send_msg_now(&mut self, fd: RawFd, message: BorrowedMsg<'_>) -> Result<(), Errno> {
        self.leave_if_forked();
        self.state.stats.syscalls += 1;
        message.send_now(fd)
    }

    /// Connects a socket.
    pub fn connect(&mut self, fd: RawFd, address: SockAddr, token: Token) -> OpId {
        self.start(
            OpKind::Connect,
            fd,
            token,
            Payload::Address(Box::new(address)),
        )
    }

    /// Waits once for readiness, level-triggered: it completes at once if the descriptor is ready. An error or a
    /// hang-up completes both directions.
    pub fn poll(&mut self, fd: RawFd, interest: Interest, token: Token) -> OpId {
        self.start(
            OpKind::Poll,
            fd,
            token,
            Payload::Events(interest.poll_bits()),
        )
    }

    /// Polls as [`poll`](Driver::poll) does, but does not renew epoll's registration. The caller guarantees that this
    /// driver's latest operation on `fd` was on the same open file.
    pub fn poll_again(&mut self, fd: RawFd, interest: Interest, token: Token) -> OpId {
        let events = Payload::EventsAgain(interest.poll_bits());
        self.start(OpKind::Poll, fd, token, events)
    }

    /// Polls as [`poll`](Driver::poll) does, but does not keep the file open. If the caller closes the file's last
    /// descriptor, the file is closed, and the operation completes only when it is cancelled. A poll in the ring would
    /// hold the file, so this poll waits in an epoll set, which costs three system calls.
    pub fn poll_weak(&mut self, fd: RawFd, interest: Interest, token: Token) -> OpId {
        let events = Payload::EventsWeak(interest.poll_bits());
        self.start(OpKind::Poll, fd, token, events)
    }

    /// Carries out a file operation. A bad descriptor in it results in an ordinary completion with `EBADF`. The
    /// epoll backend blocks meanwhile.
    pub fn file(&mut self, request: Box<FileRequest>, token: Token) -> OpId {
        let fd = request.fd();
        self.start(OpKind::File, fd, token, Payload::File(request))
    }

    /// Cancels an operation. Its last completion still arrives, with `ECANCELED` or with a real result that was
    /// faster. Unknown and finished operations are ignored.
    pub fn cancel(&mut self, op: OpId) {
        self.leave_if_forked();
        let Some(slot) = self.state.table.get(op) else {
            return;
        };
        // A close cannot be cancelled.
        if slot.kind == OpKind::Close || std::mem::replace(&mut slot.cancelled, true) {
            return;
        }
        match &mut self.inner {
            Inner::Uring(uring) => uring.cancel(&mut self.state, op),
            Inner::Epoll(epoll) => epoll.cancel(&mut self.state, op),
            Inner::Inherited(_) => self.state.finish_later(op.index(), -libc::ECANCELED),
            Inner::Dead => {}
        }
    }

    /// Cancels every operation on a descriptor.
    pub fn cancel_fd(&mut self, fd: RawFd) {
        self.leave_if_forked();
        let mut scratch = std::mem::take(&mut self.state.scratch);
        self.state.table.on_fd(fd, &mut scratch);
        for &index in scratch.iter().rev() {
            let op = self.state.table.id_at(index);
            self.cancel(op);
        }
        self.state.scratch = scratch;
    }

    /// Closes a descriptor after cancelling every operation on it; a TCP peer gets its FIN.
    /// Completes last, when all those operations have completed. Always finds a slot.
    pub fn close(&mut self, fd: OwnedFd, token: Token) -> OpId {
        let raw = fd.as_raw_fd();
        self.start(OpKind::Close, raw, token, Payload::Descriptor(fd))
    }

    /// Cancels an operation as [`cancel`](Driver::cancel) does, but does not report its completion. The result's
    /// resource is released: an accepted connection is closed, a buffer returned.
    pub fn discard(&mut self, op: OpId) {
        self.leave_if_forked();
        self.state
            .ready
            .retain(|completion| completion.op() != op || op == OpId::NONE);
        if let Some(slot) = self.state.table.get(op) {
            slot.discarded = true;
            self.cancel(op);
        }
    }

    fn start(&mut self, kind: OpKind, fd: RawFd, token: Token, payload: Payload) -> OpId {
        self.leave_if_forked();
        let state = &mut self.state;
        state.stats.submissions += 1;
        let needs_none = fd == -1 && kind == OpKind::File;
        if !needs_none && !(0..DESCRIPTORS_MAX).contains(&fd) {
            return state.refuse(kind, token, payload, Errno(libc::EBADF));
        }
        let op = match state.table.insert(kind, fd, token, payload) {
            Ok(op) => op,
            Err(payload) => return state.refuse(kind, token, payload, Errno::NO_BUFFERS),
        };
        match &mut self.inner {
            Inner::Uring(uring) => uring.queue(state, op),
            Inner::Epoll(epoll) => epoll.queue(state, op),
            Inner::Inherited(inherited) => inherited.queue(state, op),
            Inner::Dead => state.finish_later(op.index(), -libc::ECANCELED),
        }
        op
    }
}

/// A bound of descriptor numbers above any sensible RLIMIT_NOFILE. An invalid number therefore cannot make the
/// per-descriptor table huge.
const DESCRIPTORS_MAX: RawFd = 1 << 24;
