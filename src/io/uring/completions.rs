//! Processes the completion queue: finds each operation, its result, and whether it has ended.

use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};

use super::Uring;
use super::entry::{self, CompletionEntry};
use crate::common::Common;
use crate::completion::{Completion, Outcome};
use crate::datagram::Datagram;
use crate::errno::Errno;
use crate::net;
use crate::op::{OpId, OpKind, OpPhase, Payload};

impl Uring {
    pub(crate) fn take_completions(&mut self, common: &mut Common, out: &mut VecDeque<Completion>) {
        self.take_some_completions(common, usize::MAX, out);
    }

    /// Processes the first `most` completions and leaves the others in the queue.
    pub(crate) fn take_some_completions(
        &mut self,
        common: &mut Common,
        most: usize,
        out: &mut VecDeque<Completion>,
    ) {
        // A round is at most one full queue: the kernel refills it only in `enter`.
        let mut events = self.ring.completion().len().min(most);
        while events > 0 {
            events -= 1;
            let Some(entry) = self.ring.completion().next() else {
                break;
            };
            self.handle(common, CompletionEntry::new(&entry), out);
        }
        for index in std::mem::take(&mut self.rearm) {
            self.arm_or_suspend(common, index);
        }
    }

    #[inline]
    fn handle(
        &mut self,
        common: &mut Common,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        let op = OpId::from_u64(event.user_data);
        let Some(slot) = common.table.get(op) else {
            return self.handle_internal(common, event);
        };
        let index = op.index();
        if slot.phase == OpPhase::Polling {
            return self.handle_readiness(common, index, event.result, out);
        }
        let kind = slot.kind;
        let multishot = matches!(kind, OpKind::Recv | OpKind::RecvMsg | OpKind::Accept);
        if !multishot && event.result < 0 && self.was_taken_back(common, index, event.result) {
            return self.rearm.push(index);
        }
        match kind {
            OpKind::Recv | OpKind::RecvOnce => self.handle_recv(common, index, event, out),
            OpKind::RecvMsg => self.handle_recv_msg(common, index, event, out),
            OpKind::Accept => self.handle_accept(common, index, event, out),
            OpKind::File => self.handle_file(common, index, event.result, out),
            // A connect that an earlier, cancelled one began continues: this one waits for its end.
            OpKind::Connect => {
                self.handle_waiting(common, index, event.result, libc::EALREADY, out);
            }
            OpKind::Poll | OpKind::Close => common.finish(index, event.result, out),
            OpKind::Send | OpKind::SendVectored | OpKind::SendMsg => {
                self.handle_waiting(common, index, event.result, libc::EAGAIN, out);
            }
        }
    }

    fn handle_internal(&mut self, common: &mut Common, event: CompletionEntry) {
        self.suspend_is_answered |= event.user_data == entry::SUSPEND;
        if event.user_data == entry::IDLE_EPOLL {
            // The next enter reads the set, and watches it again.
            self.idle_epoll.is_watched = false;
        }
        let lost = event.user_data == entry::WAKE && !event.more();
        if !lost || event.result == -libc::ECANCELED {
            return;
        }
        if self.resting {
            self.watch_lost = true;
            return;
        }
        let watch = entry::watch_eventfd(common.waker.fd());
        self.push(watch, &mut common.stats.syscalls);
    }

    fn handle_recv(
        &mut self,
        common: &mut Common,
        index: u32,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        match (event.result, event.buffer()) {
            (1.., Some(id)) => {
                let buffer =
                    common
                        .stream
                        .filled(id, event.result as u32, event.kernel_keeps_buffer());
                self.data(common, index, event, Outcome::Received(Ok(buffer)), out);
            }
            (result, buffer) => {
                if let Some(id) = buffer {
                    common.stream.wasted(id, event.kernel_keeps_buffer());
                }
                self.no_data(common, index, result, out);
            }
        }
    }

    fn handle_recv_msg(
        &mut self,
        common: &mut Common,
        index: u32,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        match (event.result, event.buffer()) {
            (0.., Some(id)) => {
                let keeps = event.kernel_keeps_buffer();
                let buffer = common.datagram.filled(id, event.result as u32, keeps);
                let datagram = Datagram::new(buffer).ok_or(Errno(libc::EIO));
                self.data(common, index, event, Outcome::Datagram(datagram), out);
            }
            (result, buffer) => {
                if let Some(id) = buffer {
                    common.datagram.wasted(id, event.kernel_keeps_buffer());
                }
                self.no_data(common, index, result, out);
            }
        }
    }

    fn handle_accept(
        &mut self,
        common: &mut Common,
        index: u32,
        event: CompletionEntry,
        out: &mut VecDeque<Completion>,
    ) {
        if event.result < 0 {
            return self.no_data(common, index, event.result, out);
        }
        // SAFETY: the kernel has just created this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(event.result) };
        self.data(common, index, event, Outcome::Accepted(Ok(fd)), out);
    }

    /// A multishot has a result. If it ended without being cancelled (overflow), it is armed again and the caller
    /// sees no difference.
    #[inline]
    fn data(
        &mut self,
        common: &mut Common,
        index: u32,
        event: CompletionEntry,
        outcome: Outcome,
        out: &mut VecDeque<Completion>,
    ) {
        if event.more() {
            return common.report(index, outcome, out);
        }
        let slot = common.table.at(index);
        if slot.cancelled || slot.kind == OpKind::RecvOnce {
            return common.finish_with(index, outcome, out);
        }
        common.report(index, outcome, out);
        self.rearm.push(index);
    }

    /// A multishot ended without data: for good, or to be armed again.
    fn no_data(
        &mut self,
        common: &mut Common,
        index: u32,
        result: i32,
        out: &mut VecDeque<Completion>,
    ) {
        let op = common.table.id_at(index);
        let slot = common.table.at(index);
        let (kind, cancelled) = (slot.kind, slot.cancelled);
        match (-result, kind) {
            (libc::ENOBUFS, OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg) => {
                common.stats.enobufs += 1;
                if cancelled {
                    return common.finish(index, -libc::ECANCELED, out);
                }
                common.table.set_phase(index, OpPhase::Starved);
                if kind == OpKind::RecvMsg {
                    &mut self.starved_datagrams
                } else {
                    &mut self.starved_streams
                }
                .push_back(op);
            }
            // The peer aborted before the accept; the listener is fine.
            (libc::ECONNABORTED, OpKind::Accept) | (libc::EINTR | libc::ECANCELED, _)
                if !cancelled =>
            {
                self.rearm.push(index)
            }
            (libc::EAGAIN, _) => self.wait_for_readiness(common, index, out),
            _ => common.finish(index, result, out),
        }
    }

    /// Waits for readiness if the operation failed with `errno`. Any other result is final.
    fn handle_waiting(
        &mut self,
        common: &mut Common,
        index: u32,
        result: i32,
        errno: i32,
        out: &mut VecDeque<Completion>,
    ) {
        if result == -errno {
            return self.wait_for_readiness(common, index, out);
        }
        common.finish(index, result, out);
    }

    fn handle_file(
        &mut self,
        common: &mut Common,
        index: u32,
        result: i32,
        out: &mut VecDeque<Completion>,
    ) {
        let waits = match &common.table.at(index).payload {
            Payload::File(request) => request.readiness().is_some(),
            _ => false,
        };
        if result == -libc::EAGAIN && waits {
            return self.wait_for_readiness(common, index, out);
        }
        // A kernel thread that our cancel has interrupted returns EINTR.
        let interrupted = result == -libc::EINTR && common.table.at(index).cancelled;
        let result = if interrupted {
            -libc::ECANCELED
        } else {
            result
        };
        common.finish(index, result, out);
    }

    fn wait_for_readiness(
        &mut self,
        common: &mut Common,
        index: u32,
        out: &mut VecDeque<Completion>,
    ) {
        if common.table.at(index).cancelled {
            return common.finish(index, -libc::ECANCELED, out);
        }
        if self.resting {
            return self.rearm.push(index);
        }
        self.push_readiness(common, index);
    }

    fn handle_readiness(
        &mut self,
        common: &mut Common,
        index: u32,
        result: i32,
        out: &mut VecDeque<Completion>,
    ) {
        common.table.set_phase(index, OpPhase::Active);
        let waits_on = result >= 0 && self.resting && !common.table.at(index).cancelled;
        if waits_on || self.was_taken_back(common, index, result) {
            return self.rearm.push(index);
        }
        let op = common.table.id_at(index);
        let slot = common.table.at(index);
        if slot.cancelled || result < 0 {
            let result = if slot.cancelled {
                -libc::ECANCELED
            } else {
                result
            };
            return common.finish(index, result, out);
        }
        if slot.kind == OpKind::Connect {
            let result = net::connect_result(slot.fd);
            return common.finish(index, result, out);
        }
        let entry = entry::of(op, slot, &self.receive_header);
        self.push(entry, &mut common.stats.syscalls);
    }
}
