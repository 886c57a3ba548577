//! Suspension: takes every operation back from the kernel, so that the next `enter` may come from any thread.
//!
//! A ring belongs to one thread, and so do the operations in it. A loop that has stopped may later be run or closed
//! by another thread, which cannot be known beforehand; so the operations are taken back when it stops, while its
//! own thread can still do it. One `enter` submits the last turn's entries, cancels everything and waits for the
//! completions, which takes microseconds. A cancelled operation stays in its slot and is armed again by the next
//! `enter`, on whatever thread; an operation with a result (bytes, a connection, the count of a send cut short)
//! reports it as always. The caller notices nothing.
//!
//! Only readiness waits stay in the ring: they have no resource, so a thread that takes over the driver abandons
//! them with the old ring and arms new ones. A loop that has nothing but its own wake-up and some watchers is
//! suspended without cost.
//!
//! Arming and taking back costs a microsecond or two each, and only operations in use cost it in every run: an
//! operation without a completion in a whole run moves to the idle epoll set (`idle_epoll`). A run that ends
//! without a sleep (a short `run_until_complete`, a loop driven turn by turn) does neither: its few turns check
//! with poll(2) if any other suspended receive would find something, which costs a twentieth, and arm only then.
//!
//! If the owner closes a descriptor while the driver is suspended, its number may belong to another file when the
//! operation is armed again. So the file's identity is stored with the number; an operation whose file is gone
//! stays suspended until it is cancelled. The number's new owner loses nothing, and nothing is reported, as with an
//! epoll set, which such a descriptor leaves silently. Eventfds and similar files share one inode, so they move to
//! the set at once, which distinguishes them.
//!
//! Not here: the second ring for another thread (`change_thread`).

use std::collections::HashSet;
use std::io;
use std::os::fd::IntoRawFd;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry;

use super::{Uring, queue_entries};
use crate::backend_state::BackendState;
use crate::errno::Errno;
use crate::net::{FileId, file_of};
use crate::operation_table::{OpId, OpKind, OpPhase, Payload, Slot};

/// An operation that was taken back.
pub(super) struct Suspended {
    pub(super) op: OpId,
    /// The file of the operation's descriptor; `None` if that is not checked.
    pub(super) file: Option<FileId>,
    /// The operation had no completion in the run before this suspension, nor in any since.
    pub(super) is_silent: bool,
}

/// The arguments of poll(2) while the driver is suspended.
#[derive(Default)]
pub(super) struct ReadinessCheck {
    /// Filled from `suspended` by the first check of a suspension.
    set: Vec<libc::pollfd>,
    /// How often this run has checked.
    checks: u32,
}

impl Uring {
    /// Returns when nothing is in the kernel, or after `limit` (a file operation that has begun can't be taken
    /// back). Does nothing on a thread that does not own the ring.
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
            // Including the completion of the cancel itself, unless an interrupted round has returned it.
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

    /// True if there is nothing to take back, or if this thread cannot do it.
    pub(crate) fn suspends_at_once(&self, state: &BackendState) -> bool {
        let only_polls = state.table.in_kernel() == state.table.polls_in_kernel();
        // Entries queued by a run that never resumed this driver must still be submitted.
        let rests = self.is_suspended && self.backlog.is_empty();
        !self.is_owner() || rests || only_polls
    }

    /// True if the operations are suspended until the next `enter`.
    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// For an `enter` that does not wait: true if there is nothing to submit, nothing has completed and no
    /// suspended operation could continue, so that all of them may stay suspended.
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

    /// False if there are operations that poll(2) can't check.
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
                // Cancelled since. The kernel skips a negative number.
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

    /// Arms the suspended operations. True if the driver was suspended.
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

    /// Moves operations without a completion in a whole run to the idle epoll set.
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

    /// An operation that must not hold its file waits in the set from the start. False if the set can't be used, or
    /// if it is of another kind.
    /// stand for it, or it is of another kind.
    pub(super) fn queue_weak_poll(&mut self, state: &mut BackendState, op: OpId) -> bool {
        let index = op.index();
        let is_unheld = matches!(state.table.at(index).payload, Payload::EventsWeak(_));
        let waits = is_unheld && self.move_to_idle_epoll(state, op);
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

    /// Arms operations of the idle epoll set that are ready, and waits for the rest of it. The first `enter` of a
    /// run always checks: input that arrived while the loop was stopped belongs to the first turn.
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

    /// Another thread takes over the driver: readiness waits are armed again there, and dropped here.
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

    /// Cancels a readiness wait at once while the driver is suspended: it holds a file open that its owner is about
    /// to close.
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
        // A failure leaves the entry in the queue for the next enter.
        let _ = self.enter_kernel(queued, 0, None);
    }

    /// An operation ended without a result for the caller: arms it again, now or when the driver resumes.
    pub(super) fn arm_or_suspend(&mut self, state: &mut BackendState, index: u32) {
        let op = state.table.id_at(index);
        if self.is_suspended {
            let slot = state.table.at(index);
            if let Payload::Descriptor(_) = slot.payload {
                return close_directly(state, index);
            }
            let is_silent = slot.is_silent;
            let file = match slot.kind {
                // The descriptor may be a directory, or absent.
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

    /// True if an operation was taken back without a request of its owner: by suspension, or at the end of the
    /// thread that submitted it.
    pub(super) fn was_taken_back(&self, state: &mut BackendState, index: u32, result: i32) -> bool {
        let slot = state.table.at(index);
        let resumable = match (-result, &slot.payload) {
            (libc::ECANCELED, _) => true,
            // A worker thread was interrupted.
            (libc::EINTR, Payload::File(request)) => request.may_repeat(),
            // The close has released the number nevertheless.
            (libc::EINTR, Payload::Descriptor(_)) => false,
            (libc::EINTR, _) => true,
            _ => false,
        };
        resumable && !slot.cancelled && !slot.discarded
    }
}

/// Carries out a close that was taken back before it began: its peer must not wait for the next run.
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

/// The events of poll(2) with which the operation could continue; `None` if poll(2) can't check it.
fn poll_bits_of(slot: &Slot) -> Option<u32> {
    match (slot.kind, &slot.payload) {
        (OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg | OpKind::Accept, _) => {
            Some(libc::POLLIN as u32)
        }
        // Taken back along with the others.
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

/// A run with more turns than this is not short.
const CHECKS_MAX: u32 = 4;

fn is_transient(error: &io::Error) -> bool {
    let expected = [libc::ETIME, libc::EINTR, libc::EAGAIN, libc::EBUSY];
    error
        .raw_os_error()
        .is_some_and(|errno| expected.contains(&errno))
}
