//! The end of a ring: cancels all operations and releases their memory.
//!
//! Not here: taking operations back temporarily (`suspension`), and leaving a ring to the parent process
//! (`forked_child`).

use std::collections::VecDeque;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::suspension::Suspended;
use super::{Uring, queue_entries, setup};
use crate::common_backend_state::BackendState;
use crate::operation_table::{OpKind, OpPhase, OpTable};

impl Uring {
    /// Ends the ring: cancels all operations and waits until they have ended, or until `limit` has passed. Memory of
    /// operations that have not ended by then is leaked.
    pub(crate) fn shutdown(mut self, state: &mut BackendState, limit: Duration) {
        self.idle_epoll.clear();
        for index in state.table.indexes() {
            let idle = matches!(
                state.table.at(index).phase,
                OpPhase::Starved | OpPhase::Suspended
            );
            if state.table.is_live(index) && idle {
                state.finish_later(index, -libc::ECANCELED);
            }
        }
        if self.owner != 0 {
            // Operations that were queued while the driver was suspended must be submitted now. If another thread owns
            // the ring, this thread becomes the owner.
            if !self.backlog.is_empty() && !self.is_owner() {
                let _ = self.change_thread(state);
            }
            let ours = self.is_owner();
            if ours {
                self.drain(state, limit);
            } else {
                self.abandon_polls(state);
                for Suspended { op, .. } in mem::take(&mut self.suspended) {
                    if state.table.get(op).is_some() {
                        state.finish_later(op.index(), -libc::ECANCELED);
                    }
                }
            }
            if state.table.len() > 0 {
                // The kernel may still use the memory of these operations, so the memory is leaked.
                let table = mem::replace(&mut state.table, OpTable::new(0));
                mem::forget(table);
                let header =
                    mem::replace(&mut self.receive_header, queue_entries::receive_header());
                mem::forget(header);
                state.stream.leak();
                state.datagram.leak();
            }
            if let Some(index) = self.registered.filter(|_| ours) {
                setup::unregister_ring_fd(self.ring.as_raw_fd(), index);
            }
        }
        for group in [setup::STREAM_GROUP, setup::DATAGRAM_GROUP] {
            // Unregistering fails on a thread other than the ring's own. The kernel then releases the buffers when the
            // ring is closed.
            let _ = self.ring.submitter().unregister_buf_ring(group);
        }
        state.stream.detach();
        state.datagram.detach();
        // SAFETY: dropped once, `self` ends here.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }

    fn drain(&mut self, state: &mut BackendState, limit: Duration) {
        let deadline = Instant::now() + limit;
        for index in state.table.indexes() {
            let slot = state.table.at(index);
            slot.discarded = true;
            slot.cancelled |= slot.kind != OpKind::Close;
        }
        if state.table.len() == 0 {
            return;
        }
        self.resume(state);
        let mut dropped = VecDeque::new();
        self.push(
            queue_entries::cancel_everything(),
            &mut state.stats.syscalls,
        );
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let entered = self.enter(state, Some(rest));
            self.take_completions(state, &mut dropped);
            dropped.clear();
            if state.table.len() == 0 || rest.is_zero() || entered.is_err() {
                return;
            }
        }
    }
}
