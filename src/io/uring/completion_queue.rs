//! Processes the completion queue: finds the operation of each entry, reports its result, and ends it or arms it again.

use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};

use super::Uring;
use super::queue_entries::{self, CompletionEntry};
use crate::common_backend_state::BackendState;
use crate::completion::{Completion, Outcome};
use crate::errno::Errno;
use crate::net;
use crate::operation_table::{OpId, OpKind, OpPhase, Payload};
use crate::received_datagram::Datagram;

impl Uring {
    pub(crate) fn take_completions(
        &mut self,
        state: &mut BackendState,
        out: &mut VecDeque<Completion>,
    ) {
        self.take_at_most(state, usize::MAX, out);
    }

    /// Processes the first `most` completions and leaves the others in the queue.
    pub(crate) fn take_at_most(
        &mut self,
        state: &mut BackendState,
        most: usize,
        out: &mut VecDeque<Completion>,
    ) {
        // The kernel adds completions only during `enter`, so this loop ends.
        let mut events = self.ring.completion().len().min(most);
        while events > 0 {
            events -= 1;
            let Some(entry) = self.ring.completion().next() else {
                break;
            };
            self.handle(state, CompletionEntry::new(&entry), out);
        }
        for index in std::mem::take(&mut self.rearm) {
            self.arm_or_suspend(state, index);
        }
    }

    #[inline]
    fn handle(
        &mut self,
        state: &mut BackendState,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        let op = OpId::from_u64(event.user_data);
        let Some(slot) = state.table.get(op) else {
            return self.handle_internal(state, event);
        };
        let index = op.index();
        if slot.phase == OpPhase::Polling {
            return self.handle_readiness(state, index, event.result, out);
        }
        let kind = slot.kind;
        let multishot = matches!(kind, OpKind::Recv | OpKind::RecvMsg | OpKind::Accept);
        if !multishot && event.result < 0 && self.was_taken_back(state, index, event.result) {
            return self.rearm.push(index);
        }
        match kind {
            OpKind::Recv | OpKind::RecvOnce => self.handle_recv(state, index, event, out),
            OpKind::RecvMsg => self.handle_recv_msg(state, index, event, out),
            OpKind::Accept => self.handle_accept(state, index, event, out),
            OpKind::File => self.handle_file(state, index, event.result, out),
            // EALREADY: an earlier, cancelled operation has begun to connect this socket. This operation waits for the
            // end of that connection attempt.
            OpKind::Connect => {
                self.handle_waiting(state, index, event.result, libc::EALREADY, out);
            }
            OpKind::Poll | OpKind::Close => state.finish(index, event.result, out),
            OpKind::Send | OpKind::SendVectored | OpKind::SendMsg => {
                self.handle_waiting(state, index, event.result, libc::EAGAIN, out);
            }
        }
    }

    fn handle_internal(&mut self, state: &mut BackendState, event: CompletionEntry) {
        self.suspend_is_answered |= event.user_data == queue_entries::SUSPEND;
        if event.user_data == queue_entries::IDLE_EPOLL {
            // The next `enter` reads the set's events and polls the set again.
            self.idle_epoll.is_watched = false;
        }
        let lost = event.user_data == queue_entries::WAKE && !event.more();
        if !lost || event.result == -libc::ECANCELED {
            return;
        }
        if self.is_suspended {
            self.watch_lost = true;
            return;
        }
        let watch = queue_entries::watch_eventfd(state.waker.fd());
        self.push(watch, &mut state.stats.syscalls);
    }

    fn handle_recv(
        &mut self,
        state: &mut BackendState,
        index: u32,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        match (event.result, event.buffer()) {
            (1.., Some(id)) => {
                let buffer =
                    state
                        .stream
                        .filled(id, event.result as u32, event.kernel_keeps_buffer());
                self.data(state, index, event, Outcome::Received(Ok(buffer)), out);
            }
            (result, buffer) => {
                if let Some(id) = buffer {
                    state.stream.return_empty(id, event.kernel_keeps_buffer());
                }
                self.no_data(state, index, result, out);
            }
        }
    }

    fn handle_recv_msg(
        &mut self,
        state: &mut BackendState,
        index: u32,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        match (event.result, event.buffer()) {
            (0.., Some(id)) => {
                let keeps = event.kernel_keeps_buffer();
                let buffer = state.datagram.filled(id, event.result as u32, keeps);
                let datagram = Datagram::new(buffer).ok_or(Errno(libc::EIO));
                self.data(state, index, event, Outcome::Datagram(datagram), out);
            }
            (result, buffer) => {
                if let Some(id) = buffer {
                    state.datagram.return_empty(id, event.kernel_keeps_buffer());
                }
                self.no_data(state, index, result, out);
            }
        }
    }

    fn handle_accept(
        &mut self,
        state: &mut BackendState,
        index: u32,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        if event.result < 0 {
            return self.no_data(state, index, event.result, out);
        }
        // SAFETY: the kernel has just created this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(event.result) };
        self.data(state, index, event, Outcome::Accepted(Ok(fd)), out);
    }

    /// Reports the result of a receive or an accept. If the kernel has ended a multishot operation that was not
    /// cancelled (after an overflow of the queue), it is armed again, so that the caller sees no end.
    #[inline]
    fn data(
        &mut self,
        state: &mut BackendState,
        index: u32,
        event: CompletionEntry,
        outcome: Outcome,
        out: &mut VecDeque<Completion>,
    ) {
        if event.more() {
            return state.report(index, outcome, out);
        }
        let slot = state.table.at(index);
        if slot.cancelled || slot.kind == OpKind::RecvOnce {
            return state.finish_with(index, outcome, out);
        }
        state.report(index, outcome, out);
        self.rearm.push(index);
    }

    /// Handles a receive or an accept that has ended without a result to report: it waits for a buffer or for
    /// readiness, is armed again, or ends.
    fn no_data(
        &mut self,
        state: &mut BackendState,
        index: u32,
        result: i32,
        out: &mut VecDeque<Completion>,
    ) {
        let op = state.table.id_at(index);
        let slot = state.table.at(index);
        let (kind, cancelled) = (slot.kind, slot.cancelled);
        match (-result, kind) {
            (libc::ENOBUFS, OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg) => {
                state.stats.enobufs += 1;
                if cancelled {
                    return state.finish(index, -libc::ECANCELED, out);
                }
                state.table.set_phase(index, OpPhase::Starved);
                if kind == OpKind::RecvMsg {
                    &mut self.starved_datagrams
                } else {
                    &mut self.starved_streams
                }
                .push_back(op);
            }
            // ECONNABORTED: the client has closed its connection before the accept. The listener still works.
            (libc::ECONNABORTED, OpKind::Accept) | (libc::EINTR | libc::ECANCELED, _)
                if !cancelled =>
            {
                self.rearm.push(index)
            }
            (libc::EAGAIN, _) => self.wait_for_readiness(state, index, out),
            _ => state.finish(index, result, out),
        }
    }

    /// Waits for readiness if the operation has failed with `errno`. Any other result ends the operation.
    fn handle_waiting(
        &mut self,
        state: &mut BackendState,
        index: u32,
        result: i32,
        errno: i32,
        out: &mut VecDeque<Completion>,
    ) {
        if result == -errno {
            return self.wait_for_readiness(state, index, out);
        }
        state.finish(index, result, out);
    }

    fn handle_file(
        &mut self,
        state: &mut BackendState,
        index: u32,
        result: i32,
        out: &mut VecDeque<Completion>,
    ) {
        let waits = match &state.table.at(index).payload {
            Payload::File(request) => request.readiness().is_some(),
            _ => false,
        };
        if result == -libc::EAGAIN && waits {
            return self.wait_for_readiness(state, index, out);
        }
        // EINTR shows that our cancel has interrupted the kernel thread that executes the operation.
        let interrupted = result == -libc::EINTR && state.table.at(index).cancelled;
        let result = if interrupted {
            -libc::ECANCELED
        } else {
            result
        };
        state.finish(index, result, out);
    }

    fn wait_for_readiness(
        &mut self,
        state: &mut BackendState,
        index: u32,
        out: &mut VecDeque<Completion>,
    ) {
        if state.table.at(index).cancelled {
            return state.finish(index, -libc::ECANCELED, out);
        }
        if self.is_suspended {
            return self.rearm.push(index);
        }
        self.push_readiness(state, index);
    }

    fn handle_readiness(
        &mut self,
        state: &mut BackendState,
        index: u32,
        result: i32,
        out: &mut VecDeque<Completion>,
    ) {
        state.table.set_phase(index, OpPhase::Active);
        let waits_on = result >= 0 && self.is_suspended && !state.table.at(index).cancelled;
        if waits_on || self.was_taken_back(state, index, result) {
            return self.rearm.push(index);
        }
        let op = state.table.id_at(index);
        let slot = state.table.at(index);
        if slot.cancelled || result < 0 {
            let result = if slot.cancelled {
                -libc::ECANCELED
            } else {
                result
            };
            return state.finish(index, result, out);
        }
        if slot.kind == OpKind::Connect {
            let result = net::connect_result(slot.fd);
            return state.finish(index, result, out);
        }
        let entry = queue_entries::operation(op, slot, &self.receive_header);
        self.push(entry, &mut state.stats.syscalls);
    }
}
