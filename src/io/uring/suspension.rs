//! Suspension: takes all operations back from the kernel, so that the next `enter` may come from any thread.
//!
//! The operations in a ring belong to the thread that submitted them, and only that thread can cancel them. After a
//! loop has stopped, another thread may run or close it. So the operations are taken back when the loop stops, on its
//! own thread. One `enter` submits the entries of the last loop iteration, cancels all operations and waits for their
//! completions, which takes microseconds. An operation that ends by this cancel keeps its slot, and the next `enter`
//! arms it again, on any thread. An operation that ends with a result (bytes, a connection, the count of a send cut
//! short) reports it.
//!
//! `poll` operations stay in the ring, because they carry no data. A thread that takes over the driver abandons them
//! with the old ring and arms new ones. So it costs nothing to suspend a loop that has only watchers.
//!
//! Arming an operation and taking it back costs 1 to 2 µs each. Two rules avoid this cost for idle operations:
//!
//! - An operation without a completion in a whole run of the loop moves to the idle epoll set (`idle_epoll`).
//! - A run that ends without a sleep (a short `run_until_complete`, a loop whose iterations the program runs) arms no
//!   operation. Its iterations check by poll(2), at a twentieth of the cost, whether a suspended operation could
//!   continue, and arm the operations only then.
//!
//! The owner may close a descriptor while the driver is suspended, and its number may then belong to another file. So
//! the file's identity is stored with the operation. An operation whose file is gone stays suspended until it is
//! cancelled: it takes no data from the new file and reports nothing, like a closed descriptor in an epoll set. All
//! eventfds and similar files have the same inode, so their operations move to the idle epoll set at once, which
//! tells files apart.
//!
//! Not here: the second ring for another thread (`thread_binding`).

use std::collections::HashSet;
use std::io;
use std::os::fd::IntoRawFd;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;

use super::{Uring, queue_entries};
use crate::common_backend_state::BackendState;
use crate::errno::Errno;
use crate::net::{FileId, file_of};
use crate::operation_table::{OpId, OpKind, OpPhase, Payload, Slot};

/// An operation that was taken back from the kernel.
pub(super) struct Suspended {
    pub(super) op: OpId,
    /// The file of the operation's descriptor. The operation is armed again only if the descriptor still has this file.
    /// `None` if that is not checked.
    pub(super) file: Option<FileId>,
    /// True if the operation had no completion in the loop's run before this suspension, nor in any run since.
    pub(super) is_silent: bool,
}

/// The poll(2) call that finds out if suspended operations may stay suspended.
#[derive(Default)]
pub(super) struct ReadinessCheck {
    /// The arguments of poll(2): the idle epoll set, then the descriptor of each suspended operation. The first check
    /// of a suspension fills the list.
    set: Vec<libc::pollfd>,
    /// The number of checks in this run of the loop.
    checks: u32,
}

impl Uring {
    /// Takes all operations back from the kernel. Returns when none is there, or after `limit`, because a file
    /// operation that has begun cannot be taken back. Does nothing on a thread that does not own the ring.
    pub(crate) fn suspend(&mut self, state: &mut BackendState, limit: Duration) {
        self.readiness_check.checks = 0;
        if self.suspends_at_once(state) {
            if self.is_owner() {
                if self.is_suspended {
                    self.suspended
                        .iter_mut()
                        .for_each(|one| one.is_silent = true);
                }
                self.is_suspended = true;
            }
            return;
        }
        let deadline = Instant::now() + limit;
        self.suspend_is_answered = false;
        self.push(
            queue_entries::cancel_everything(),
            &mut state.stats.syscalls,
        );
        self.watch_lost = true;
        self.is_suspended = true;
        let mut ready = std::mem::take(&mut state.ready);
        loop {
            let in_kernel = state.table.in_kernel() as u32;
            let rest = deadline.saturating_duration_since(Instant::now());
            if in_kernel == 0 || rest.is_zero() {
                break;
            }
            self.submit_backlog(&mut state.stats.syscalls);
            state.stats.enters += 1;
            state.stats.syscalls += 1;
            // One more completion is expected: that of the cancel, unless an earlier round of this loop has taken it.
            let wanted = in_kernel + u32::from(!self.suspend_is_answered);
            let wanted = wanted.min(self.ring.params().cq_entries() / 2);
            let queued = self.ring.submission().len() as u32;
            let entered = self.enter_kernel(queued, wanted, Some(rest));
            self.take_completions(state, &mut ready);
            if entered.is_err_and(|error| !is_transient(&error)) {
                break;
            }
        }
        ready.append(&mut state.ready);
        state.ready = ready;
    }

    /// True if no operation must be taken back, or if this thread does not own the ring.
    pub(crate) fn suspends_at_once(&self, state: &BackendState) -> bool {
        let only_polls = state.table.in_kernel() == state.table.polls_in_kernel();
        // The backlog may have entries from a run in which the driver stayed suspended. They must be submitted.
        let rests = self.is_suspended && self.backlog.is_empty();
        !self.is_owner() || rests || only_polls
    }

    /// True if the operations are suspended until the next `enter`.
    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// True if the driver can stay suspended during an `enter` that does not wait: there is nothing to submit, nothing
    /// has completed, and no suspended operation could continue.
    pub(super) fn stays_suspended(&mut self, state: &mut BackendState) -> bool {
        // SAFETY: the queue views are dropped before anything else accesses the queues.
        let quiet = unsafe {
            let (submission, completion) =
                (self.ring.submission_shared(), self.ring.completion_shared());
            let work = submission.taskrun() || submission.cq_overflow();
            submission.is_empty() && completion.is_empty() && !work
        };
        if !quiet || !self.backlog.is_empty() || self.can_resume_starved(state) {
            return false;
        }
        self.move_silent_to_idle_epoll(state);
        if self.readiness_check.checks >= CHECKS_MAX || !self.fill_readiness_check(state) {
            return false;
        }
        self.readiness_check.checks += 1;
        state.stats.syscalls += 1;
        let set = &mut self.readiness_check.set;
        // SAFETY: a live array of `set.len()` entries; no time-out to wait for.
        unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, 0) == 0 }
    }

    /// Lists the descriptors to check. False if poll(2) cannot check one of the suspended operations.
    fn fill_readiness_check(&mut self, state: &mut BackendState) -> bool {
        let idle_epoll = readable(self.idle_epoll.unwatched().unwrap_or(-1));
        if self.readiness_check.set.len() == self.suspended.len() + 1 {
            self.readiness_check.set[0] = idle_epoll;
            return true;
        }
        self.readiness_check.set.clear();
        self.readiness_check.set.push(idle_epoll);
        for &Suspended { op, .. } in &self.suspended {
            let Some(slot) = state.table.get(op) else {
                // The operation was cancelled meanwhile. poll(2) skips a negative number.
                self.readiness_check.set.push(readable(-1));
                continue;
            };
            let Some(bits) = poll_bits_of(slot) else {
                self.readiness_check.set.clear();
                return false;
            };
            self.readiness_check.set.push(libc::pollfd {
                events: bits as libc::c_short,
                ..readable(slot.fd)
            });
        }
        true
    }

    /// Ends the suspension and arms the suspended operations. True if the driver was suspended.
    pub(super) fn resume(&mut self, state: &mut BackendState) -> bool {
        if !std::mem::take(&mut self.is_suspended) {
            return false;
        }
        self.readiness_check.set.clear();
        if std::mem::take(&mut self.watch_lost) {
            let watch = queue_entries::watch_eventfd(state.waker.fd());
            self.push(watch, &mut state.stats.syscalls);
        }
        self.move_silent_to_idle_epoll(state);
        for Suspended { op, file, .. } in std::mem::take(&mut self.suspended) {
            if let Some(slot) = state.table.get(op)
                && slot.phase == OpPhase::Suspended
                && (file.is_none() || file_of(slot.fd) == file)
            {
                slot.is_silent = true;
                self.rearm(state, op);
            }
        }
        true
    }

    /// Moves suspended operations that had no completion in a whole run of the loop to the idle epoll set.
    fn move_silent_to_idle_epoll(&mut self, state: &mut BackendState) {
        if !self.suspended.iter().any(|one| one.is_silent) {
            return;
        }
        self.readiness_check.set.clear();
        let mut suspended = std::mem::take(&mut self.suspended);
        suspended.retain_mut(|one| {
            if !std::mem::take(&mut one.is_silent) {
                return true;
            }
            let Some(slot) = state.table.get(one.op) else {
                return false;
            };
            let is_there = slot.phase == OpPhase::Suspended
                && (one.file.is_none() || file_of(slot.fd) == one.file);
            is_there && !self.move_to_idle_epoll(state, one.op)
        });
        self.suspended = suspended;
    }

    /// Puts a `poll_weak` into the idle epoll set, because a poll in the ring would hold its file open. False for other
    /// operations, and if the set cannot be used.
    pub(super) fn queue_weak_poll(&mut self, state: &mut BackendState, op: OpId) -> bool {
        let index = op.index();
        let is_weak = matches!(state.table.at(index).payload, Payload::EventsWeak(_));
        let waits = is_weak && self.move_to_idle_epoll(state, op);
        if waits {
            state.table.set_phase(index, OpPhase::Suspended);
        }
        waits
    }

    fn move_to_idle_epoll(&mut self, state: &mut BackendState, op: OpId) -> bool {
        let slot = state.table.at(op.index());
        let fd = slot.fd;
        poll_bits_of(slot)
            .is_some_and(|bits| self.idle_epoll.add(fd, bits, op, &mut state.stats.syscalls))
    }

    /// Arms the operations of the idle epoll set that are ready, and queues a wait for the set. The first `enter` of a
    /// run always checks the set, so that input that arrived while the loop was stopped is handled in the first loop
    /// iteration.
    pub(super) fn poll_idle_epoll(&mut self, state: &mut BackendState, rested: bool) {
        if self.idle_epoll.is_empty() {
            return;
        }
        if rested || self.idle_epoll.unwatched().is_some() {
            let syscalls = &mut state.stats.syscalls;
            for (op, events) in self.idle_epoll.take_ready(syscalls) {
                let Some(slot) = state.table.get(op) else {
                    continue;
                };
                let is_poll = slot.kind == OpKind::Poll;
                if !self
                    .idle_epoll
                    .remove(slot.fd, op, &mut state.stats.syscalls)
                {
                    continue;
                }
                if is_poll {
                    state.finish_later(op.index(), events as i32);
                } else {
                    self.rearm(state, op);
                }
            }
        }
        if let Some(set) = self.idle_epoll.unwatched() {
            self.idle_epoll.is_watched = true;
            self.push(queue_entries::watch_set(set), &mut state.stats.syscalls);
        }
    }

    /// Suspends all `poll` operations, because another thread takes over the driver. That thread arms them in its own
    /// ring, and the old ring drops them.
    pub(super) fn abandon_polls(&mut self, state: &mut BackendState) {
        let queued: HashSet<u64> = self.backlog.iter().map(Entry::get_user_data).collect();
        for index in state.table.indexes() {
            let op = state.table.id_at(index);
            let slot = state.table.at(index);
            if slot.kind != OpKind::Poll
                || slot.phase == OpPhase::Suspended
                || queued.contains(&op.as_u64())
            {
                continue;
            }
            if slot.cancelled {
                state.finish_later(index, -libc::ECANCELED);
            } else {
                state.table.set_phase(index, OpPhase::Suspended);
                self.suspended.push(Suspended {
                    op,
                    file: None,
                    is_silent: false,
                });
            }
        }
    }

    /// Cancels a `poll` at once while the driver is suspended. Until then the poll would hold a file open that its
    /// owner is about to close.
    pub(super) fn cancel_while_suspended(&mut self, state: &mut BackendState, cancel: Entry) {
        if !self.is_owner() || !self.backlog.is_empty() {
            return self.push(cancel, &mut state.stats.syscalls);
        }
        self.is_suspended = false;
        self.push(cancel, &mut state.stats.syscalls);
        self.is_suspended = true;
        state.stats.enters += 1;
        state.stats.syscalls += 1;
        let queued = self.ring.submission().len() as u32;
        // If entering the kernel fails, the cancel stays in the submission queue until the next `enter`.
        let _ = self.enter_kernel(queued, 0, None);
    }

    /// Arms an operation again that has ended without a result for the caller: at once, or, if the driver is suspended,
    /// when it resumes.
    pub(super) fn arm_or_suspend(&mut self, state: &mut BackendState, index: u32) {
        let op = state.table.id_at(index);
        if self.is_suspended {
            let slot = state.table.at(index);
            if let Payload::Descriptor(_) = slot.payload {
                return close_directly(state, index);
            }
            let is_silent = slot.is_silent;
            let file = match slot.kind {
                // A file operation may have no descriptor, or that of a directory.
                OpKind::File => None,
                _ => file_of(slot.fd),
            };
            let is_gone = slot.kind != OpKind::File && file.is_none();
            state.table.set_phase(index, OpPhase::Suspended);
            let is_anonymous = file.is_some() && file == self.anonymous;
            let is_in_idle_epoll = is_anonymous && self.move_to_idle_epoll(state, op);
            if !is_gone && !is_in_idle_epoll {
                self.suspended.push(Suspended {
                    op,
                    file,
                    is_silent,
                });
            }
        } else {
            self.rearm(state, op);
        }
    }

    /// True if the result shows that the operation has left the kernel although its owner has not cancelled it: because
    /// it was suspended, or because the thread that submitted it has ended. It can be armed again.
    pub(super) fn was_taken_back(&self, state: &mut BackendState, index: u32, result: i32) -> bool {
        let slot = state.table.at(index);
        let resumable = match (-result, &slot.payload) {
            (libc::ECANCELED, _) => true,
            // The kernel's worker thread was interrupted.
            (libc::EINTR, Payload::File(request)) => request.may_repeat(),
            // The close has released the descriptor's number although it returned EINTR, so it must not be repeated.
            (libc::EINTR, Payload::Descriptor(_)) => false,
            (libc::EINTR, _) => true,
            _ => false,
        };
        resumable && !slot.cancelled && !slot.discarded
    }
}

/// Closes a descriptor whose close was taken back from the kernel before it began. Its peer must not wait for the
/// loop's next run.
pub(super) fn close_directly(state: &mut BackendState, index: u32) {
    let payload = std::mem::replace(&mut state.table.at(index).payload, Payload::None);
    let result = match payload {
        Payload::Descriptor(fd) => {
            state.stats.syscalls += 1;
            // SAFETY: this code owns the descriptor, which `into_raw_fd` released, and closes it once.
            match unsafe { libc::close(fd.into_raw_fd()) } {
                0 => 0,
                _ => -Errno::last().0,
            }
        }
        _ => -libc::EBADF,
    };
    state.finish_later(index, result);
}

/// The events of poll(2) that an operation waits for; `None` if poll(2) cannot check the operation.
fn poll_bits_of(slot: &Slot) -> Option<u32> {
    match (slot.kind, &slot.payload) {
        (OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg | OpKind::Accept, _) => {
            Some(libc::POLLIN as u32)
        }
        // A `poll` is taken back together with other operations.
        (
            OpKind::Poll,
            Payload::Events(bits) | Payload::EventsAgain(bits) | Payload::EventsWeak(bits),
        ) => Some(*bits),
        _ => None,
    }
}

fn readable(fd: libc::c_int) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// The maximum number of checks in a run. A run with more loop iterations is not short, so its operations are armed.
const CHECKS_MAX: u32 = 4;

fn is_transient(error: &io::Error) -> bool {
    let expected = [libc::ETIME, libc::EINTR, libc::EAGAIN, libc::EBUSY];
    error
        .raw_os_error()
        .is_some_and(|errno| expected.contains(&errno))
}
