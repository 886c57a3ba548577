//! Ends a ring: takes everything back for good.
//!
//! Not here: taking operations back temporarily (`suspend`), leaving a ring to the parent process (`inherited`).

use std::collections::VecDeque;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::suspend::Suspended;
use super::{Uring, entry, setup};
use crate::common::Common;
use crate::op::{OpKind, OpPhase, OpTable};

impl Uring {
    /// Ends the ring: cancels everything, waits until the kernel has released every operation's memory or `limit`
    /// has passed, and leaks memory that it still holds then.
    pub(crate) fn shutdown(mut self, common: &mut Common, limit: Duration) {
        self.idle_epoll.clear();
        for index in common.table.indexes() {
            let idle = matches!(
                common.table.at(index).phase,
                OpPhase::Starved | OpPhase::Suspended
            );
            if common.table.is_live(index) && idle {
                common.finish_later(index, -libc::ECANCELED);
            }
        }
        if self.owner != 0 {
            // Operations queued while the driver was suspended must still be sent, from this thread if necessary.
            if !self.backlog.is_empty() && !self.is_owner() {
                let _ = self.change_thread(common);
            }
            let ours = self.is_owner();
            if ours {
                self.drain(common, limit);
            } else {
                self.abandon_polls(common);
                for Suspended { op, .. } in mem::take(&mut self.suspended) {
                    if common.table.get(op).is_some() {
                        common.finish_later(op.index(), -libc::ECANCELED);
                    }
                }
            }
            if common.table.len() > 0 {
                // The kernel may write these payloads and buffers at any time.
                let table = mem::replace(&mut common.table, OpTable::new(0));
                mem::forget(table);
                let header = mem::replace(&mut self.receive_header, entry::receive_header());
                mem::forget(header);
                common.stream.leak();
                common.datagram.leak();
            }
            if let Some(index) = self.registered.filter(|_| ours) {
                setup::unregister_ring_fd(self.ring.as_raw_fd(), index);
            }
        }
        for group in [setup::STREAM_GROUP, setup::DATAGRAM_GROUP] {
            // Fails on another thread; the kernel then drops its side with the ring.
            let _ = self.ring.submitter().unregister_buf_ring(group);
        }
        common.stream.detach();
        common.datagram.detach();
        // SAFETY: dropped once, `self` ends here.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }

    fn drain(&mut self, common: &mut Common, limit: Duration) {
        let deadline = Instant::now() + limit;
        for index in common.table.indexes() {
            let slot = common.table.at(index);
            slot.discarded = true;
            slot.cancelled |= slot.kind != OpKind::Close;
        }
        if common.table.len() == 0 {
            return;
        }
        self.resume(common);
        let mut dropped = VecDeque::new();
        self.push(entry::cancel_everything(), &mut common.stats.syscalls);
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let entered = self.enter(common, Some(rest));
            self.take_completions(common, &mut dropped);
            dropped.clear();
            if common.table.len() == 0 || rest.is_zero() || entered.is_err() {
                return;
            }
        }
    }
}
