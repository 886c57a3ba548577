//! The state that the io_uring and the epoll backend have in common: the operation table, the buffer pools, the
//! completions that wait for the caller.
//!
//! This file also ends operations for both backends. It converts the kernel's result to an outcome, releases the
//! result of a discarded operation, and reports a close after the operations that the close has ended.

use std::collections::VecDeque;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use bytes::Bytes;

use crate::completion::{Completion, Outcome};
use crate::driver_config::{DriverConfig, DriverStats};
use crate::errno::Errno;
use crate::operation_table::{OpId, OpKind, OpTable, Payload, Token};
use crate::outgoing_message::{GatherPayload, MessagePayload, SendMsg};
use crate::receive_buffer_pool::{BufferPool, RecvBuf};
use crate::waker::Waker;

/// The state that both backends have in common.
pub(crate) struct BackendState {
    pub(crate) table: OpTable,
    pub(crate) stream: Rc<BufferPool>,
    pub(crate) datagram: Rc<BufferPool>,
    /// Completions of operations that ended outside of `take_completions`. The next call of that method returns them
    /// first.
    pub(crate) ready: VecDeque<Completion>,
    pub(crate) stats: DriverStats,
    pub(crate) waker: Waker,
    /// Memory of messages that were sent, kept for reuse. Each stays in its box, because it contains pointers into
    /// itself.
    #[expect(clippy::vec_box)]
    spare_messages: Vec<Box<MessagePayload>>,
    /// Allocations of finished sends of several pieces, for reuse.
    #[expect(clippy::vec_box)]
    spare_gathers: Vec<Box<GatherPayload>>,
    /// An empty vector for lists of slot indexes. It is reused, so that no list allocates.
    pub(crate) scratch: Vec<u32>,
    /// The limit of completions that one `take_completions` returns, except for those in `ready`.
    pub(crate) batch: usize,
}

impl BackendState {
    pub(crate) fn new(
        config: &DriverConfig,
        waker: Waker,
        stream: Rc<BufferPool>,
        datagram: Rc<BufferPool>,
    ) -> BackendState {
        BackendState {
            table: OpTable::new(config.operations_max as usize),
            stream,
            datagram,
            ready: VecDeque::new(),
            stats: DriverStats::default(),
            waker,
            spare_messages: Vec::new(),
            spare_gathers: Vec::new(),
            scratch: Vec::new(),
            batch: usize::MAX,
        }
    }

    /// Converts a message to the kernel's format, in a reused allocation if there is one.
    pub(crate) fn message(&mut self, message: SendMsg) -> Box<MessagePayload> {
        let mut payload = self
            .spare_messages
            .pop()
            .unwrap_or_else(MessagePayload::empty);
        payload.fill(message);
        payload
    }

    /// Converts the pieces of a send to the kernel's format, in a reused allocation if there is one.
    pub(crate) fn gather(&mut self, pieces: impl IntoIterator<Item = Bytes>) -> Box<GatherPayload> {
        let mut payload = self
            .spare_gathers
            .pop()
            .unwrap_or_else(GatherPayload::empty);
        payload.fill(pieces);
        payload
    }

    /// Reports a result of a multishot operation that stays armed.
    #[inline]
    pub(crate) fn report(&mut self, index: u32, outcome: Outcome, out: &mut VecDeque<Completion>) {
        let op = self.table.id_at(index);
        let slot = self.table.at(index);
        slot.is_silent = false;
        // The outcome of a discarded operation is dropped here: its descriptor is closed, or its buffer returns to the
        // pool.
        if !slot.discarded {
            self.stats.completions += 1;
            out.push_back(Completion::new(op, slot.token, outcome, true));
        }
    }

    /// Ends a receive with an outcome that holds its data.
    pub(crate) fn finish_with(
        &mut self,
        index: u32,
        outcome: Outcome,
        out: &mut VecDeque<Completion>,
    ) {
        let (payload, close) = self.end(index, |_| outcome, out);
        self.recycle(payload);
        self.finish_close(close, out);
    }

    /// Ends an operation with the kernel's result: a count, or a negative errno. A close stores its result while other
    /// operations of its descriptor are still in the kernel, and ends after the last of these.
    pub(crate) fn finish(&mut self, index: u32, result: i32, out: &mut VecDeque<Completion>) {
        let slot = self.table.at(index);
        let kind = slot.kind;
        if kind == OpKind::Close {
            slot.close_result = Some(result);
            if slot.waiting_for > 0 {
                return;
            }
        }
        let (payload, close) = self.end(index, |payload| outcome(kind, result, payload), out);
        self.recycle(payload);
        self.finish_close(close, out);
    }

    /// Ends an operation as [`finish`](Self::finish) does, and keeps its completion in `ready`: for callers outside
    /// of `take_completions`.
    pub(crate) fn finish_later(&mut self, index: u32, result: i32) {
        let mut ready = std::mem::take(&mut self.ready);
        self.finish(index, result, &mut ready);
        self.ready = ready;
    }

    fn end(
        &mut self,
        index: u32,
        outcome: impl FnOnce(&mut Payload) -> Outcome,
        out: &mut VecDeque<Completion>,
    ) -> (Payload, Option<u32>) {
        let op = self.table.id_at(index);
        let slot = self.table.at(index);
        let (token, discarded) = (slot.token, slot.discarded);
        let (mut payload, close) = self.table.remove(index);
        let outcome = outcome(&mut payload);
        if !discarded {
            self.stats.completions += 1;
            out.push_back(Completion::new(op, token, outcome, false));
        }
        (payload, close)
    }

    fn finish_close(&mut self, close: Option<u32>, out: &mut VecDeque<Completion>) {
        if let Some(close) = close
            && let Some(result) = self.table.at(close).close_result
        {
            self.finish(close, result, out);
        }
    }

    /// Reports the failure of an operation that got no slot in the table.
    pub(crate) fn refuse(
        &mut self,
        kind: OpKind,
        token: Token,
        mut payload: Payload,
        errno: Errno,
    ) -> OpId {
        let outcome = outcome(kind, -errno.0, &mut payload);
        self.recycle(payload);
        self.stats.completions += 1;
        let refused = Completion::new(OpId::NONE, token, outcome, false);
        self.ready.push_back(refused);
        OpId::NONE
    }

    pub(crate) fn recycle(&mut self, payload: Payload) {
        match payload {
            Payload::Message(mut message) if self.spare_messages.len() < SPARES_MAX => {
                message.clear();
                self.spare_messages.push(message);
            }
            Payload::Gather(mut gather) if self.spare_gathers.len() < SPARES_MAX => {
                gather.clear();
                self.spare_gathers.push(gather);
            }
            _ => {}
        }
    }
}

/// Converts the last result of an operation to its outcome. A receive with data does not use this function, because
/// its outcome holds a buffer; a receive that reached the end of the stream does.
fn outcome(kind: OpKind, result: i32, payload: &mut Payload) -> Outcome {
    let result = if result < 0 {
        Err(Errno(-result))
    } else {
        Ok(result as u32)
    };
    match kind {
        OpKind::Accept => Outcome::Accepted(result.map(|fd| {
            // SAFETY: the kernel has just created this descriptor for us.
            unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
        })),
        OpKind::Recv | OpKind::RecvOnce => Outcome::Received(result.map(|_| RecvBuf::empty())),
        OpKind::RecvMsg => Outcome::Datagram(Err(result.err().unwrap_or(Errno(libc::EIO)))),
        OpKind::File => match std::mem::replace(payload, Payload::None) {
            Payload::File(request) => Outcome::File(Box::new(request.outcome(result))),
            _ => Outcome::Done(result),
        },
        OpKind::Close => {
            // close(2) releases the descriptor's number even if it fails. Only a cancelled close was never executed:
            // then the descriptor is still open, and dropping the payload closes it.
            if let Payload::Descriptor(fd) = std::mem::replace(payload, Payload::None)
                && result != Err(Errno::CANCELED)
            {
                let _ = fd.into_raw_fd();
            }
            Outcome::Done(result)
        }
        OpKind::Send | OpKind::SendVectored | OpKind::SendMsg | OpKind::Connect | OpKind::Poll => {
            Outcome::Done(result)
        }
    }
}

/// The limit of each of the two lists of reusable allocations.
const SPARES_MAX: usize = 256;
