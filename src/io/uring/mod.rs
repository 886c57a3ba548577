//! The io_uring backend: queuing operations, entering the kernel, processing completions, ending the ring.
//!
//! | file | noun |
//! | --- | --- |
//! | `setup` | building a ring: flags, the feature probe, buffer rings |
//! | `self_test` | a receive through a small ring, which shows whether the kernel executes operations |
//! | `thread_binding` | the thread that a ring is bound to, and the change to another thread |
//! | `queue_entries` | entries of both queues, in the kernel's format |
//! | `submission_queue` | the submission queue and its backlog |
//! | `completion_queue` | the completion queue |
//! | `suspension` | operations taken back from the kernel, so that another thread may enter |
//! | `idle_epoll` | the epoll set of operations without a completion in a whole run of the loop |
//! | `teardown` | the end of a ring |
//! | `forked_child` | a ring's operations in a forked child |
//!
//! This file queues operations and enters the kernel.
//!
//! Facts about io_uring that shape this backend:
//!
//! - SINGLE_ISSUER binds a ring to the thread that enables it: an `enter` from another thread fails with EEXIST. The
//!   driver enables the ring at its first `enter`. A thread that takes over an idle driver makes a second ring.
//!   Operations cannot move to it, because they belong to the thread that submitted them. So they are taken back when
//!   the driver is suspended (`suspension`).
//! - With DEFER_TASKRUN completions appear only during an `enter` with GETEVENTS. The TASKRUN flag in shared memory
//!   shows that completions are pending.
//! - If the buffer ring is empty, a multishot receive ends with ENOBUFS, and the kernel does not resume it. The
//!   operation is [`OpPhase::Starved`] until a buffer is free.

mod completion_queue;
mod forked_child;
mod idle_epoll;
mod queue_entries;
mod self_test;
mod setup;
mod submission_queue;
mod suspension;
mod teardown;
mod thread_binding;

use std::collections::VecDeque;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use io_uring::IoUring;
use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};

use crate::net::{FileId, file_of};
pub(crate) use forked_child::Inherited;
use idle_epoll::IdleEpoll;
use suspension::{ReadinessCheck, Suspended};

use crate::backend_setup_error::SetupError;
use crate::common_backend_state::BackendState;
use crate::completion::Entered;
use crate::driver_config::DriverConfig;
use crate::operation_table::{OpId, OpKind, OpPhase, Payload};
use crate::receive_buffer_pool::BufferPool;
use crate::waker::Waker;

pub(crate) struct Uring {
    ring: ManuallyDrop<IoUring>,
    /// The first argument of `io_uring_enter`: the ring's descriptor, or the index under which it is registered.
    enter_fd: i32,
    enter_flags: u32,
    /// The index under which the ring's descriptor is registered with the owner's thread; `None` if it is not.
    registered: Option<i32>,
    /// The number of the thread that has enabled the ring; 0 before that.
    owner: u64,
    /// Entries for which the submission queue had no room, and entries that must not be submitted yet. Each operation
    /// has at most three: its own, a cancel, and one that arms it again.
    backlog: VecDeque<Entry>,
    /// Receives of streams that wait for a free buffer, oldest first.
    starved_streams: VecDeque<OpId>,
    /// Receives of datagrams that wait for a free buffer, oldest first.
    starved_datagrams: VecDeque<OpId>,
    /// Slots of operations that are armed again once the current completions are processed.
    rearm: Vec<u32>,
    /// Operations that were taken back from the kernel, except for those in `idle_epoll`.
    suspended: Vec<Suspended>,
    readiness_check: ReadinessCheck,
    /// Suspended operations that wait in an epoll set.
    idle_epoll: IdleEpoll,
    /// The inode that all eventfds and similar files share.
    anonymous: Option<FileId>,
    /// True if the cancel that a suspension has submitted has completed.
    suspend_is_answered: bool,
    /// True while the driver is suspended. Entries go to the backlog then, because the next `enter` may use the ring of
    /// another thread.
    is_suspended: bool,
    /// True if a suspension has ended the poll of the waker's eventfd.
    watch_lost: bool,
    /// The template of multishot `recvmsg`, which the kernel reads while such receives are armed.
    receive_header: Box<libc::msghdr>,
    config: DriverConfig,
    stream_flags: u16,
}

impl Uring {
    pub(crate) fn new(
        config: &DriverConfig,
        waker: &Waker,
    ) -> Result<(Uring, Rc<BufferPool>, Rc<BufferPool>), SetupError> {
        let setup::Parts {
            ring,
            stream,
            datagram,
            stream_flags,
        } = setup::set_up(config)?;
        let mut uring = Uring::with_ring(ring, config, stream_flags, waker);
        let mut no_stats = Default::default();
        uring.push(queue_entries::watch_eventfd(waker.fd()), &mut no_stats);
        Ok((uring, stream, datagram))
    }

    fn with_ring(ring: IoUring, config: &DriverConfig, stream_flags: u16, waker: &Waker) -> Uring {
        Uring {
            enter_fd: ring.as_raw_fd(),
            enter_flags: 0,
            registered: None,
            owner: 0,
            ring: ManuallyDrop::new(ring),
            backlog: VecDeque::new(),
            starved_streams: VecDeque::new(),
            starved_datagrams: VecDeque::new(),
            rearm: Vec::new(),
            suspended: Vec::new(),
            readiness_check: ReadinessCheck::default(),
            idle_epoll: IdleEpoll::default(),
            anonymous: file_of(waker.fd()),
            suspend_is_answered: false,
            is_suspended: false,
            watch_lost: false,
            receive_header: queue_entries::receive_header(),
            config: config.clone(),
            stream_flags,
        }
    }

    pub(crate) fn queue(&mut self, state: &mut BackendState, op: OpId) {
        let index = op.index();
        if state.table.at(index).kind == OpKind::Close {
            return self.queue_close(state, op);
        }
        if self.queue_weak_poll(state, op) {
            return;
        }
        let entry = queue_entries::operation(op, state.table.at(index), &self.receive_header);
        self.push(entry, &mut state.stats.syscalls);
    }

    fn queue_close(&mut self, state: &mut BackendState, op: OpId) {
        let fd = state.table.at(op.index()).fd;
        let mut others = mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut others);
        let mut in_kernel = false;
        for &index in others.iter().rev() {
            if index == op.index() {
                continue;
            }
            let slot = state.table.at(index);
            slot.cancelled = true;
            match slot.phase {
                OpPhase::Starved | OpPhase::Suspended => self.finish_idle(state, index),
                OpPhase::Active | OpPhase::Polling => in_kernel = true,
            }
        }
        state.scratch = others;
        state.table.adopt(op.index());
        if in_kernel {
            let [cancel, close] = queue_entries::cancel_and_close(op, fd);
            self.push_pair(cancel, close, &mut state.stats.syscalls);
        } else {
            self.push(queue_entries::close(op, fd), &mut state.stats.syscalls);
        }
    }

    /// Cancels an operation whose slot the caller has marked as cancelled.
    pub(crate) fn cancel(&mut self, state: &mut BackendState, op: OpId) {
        match state.table.at(op.index()).phase {
            OpPhase::Starved | OpPhase::Suspended => self.finish_idle(state, op.index()),
            OpPhase::Active | OpPhase::Polling if self.is_suspended => {
                self.cancel_while_suspended(state, queue_entries::cancel(op));
            }
            OpPhase::Active | OpPhase::Polling => {
                self.push(queue_entries::cancel(op), &mut state.stats.syscalls);
            }
        }
    }

    /// Ends an operation that is not in the kernel. Its entry in a list of starved or suspended operations stays, and
    /// is skipped later.
    fn finish_idle(&mut self, state: &mut BackendState, index: u32) {
        let (op, fd) = (state.table.id_at(index), state.table.at(index).fd);
        self.idle_epoll.remove(fd, op, &mut state.stats.syscalls);
        state.finish_later(index, -libc::ECANCELED);
    }

    pub(crate) fn needs_enter(&self, state: &BackendState) -> bool {
        // SAFETY: no other view of either queue exists while `self` is borrowed.
        let (submission, completion) =
            unsafe { (self.ring.submission_shared(), self.ring.completion_shared()) };
        !submission.is_empty()
            || submission.taskrun()
            || submission.cq_overflow()
            || !completion.is_empty()
            || !self.backlog.is_empty()
            || !self.suspended.is_empty()
            || self.watch_lost
            || self.idle_epoll.unwatched().is_some()
            || self.can_resume_starved(state)
    }

    /// True if the completion queue has entries.
    pub(crate) fn has_completions(&self) -> bool {
        // SAFETY: no other view of the queue exists while `self` is borrowed.
        !unsafe { self.ring.completion_shared() }.is_empty()
    }

    /// The memory of the submission queue, the completion queue and the backlog, in bytes.
    pub(crate) fn queues_bytes(&self) -> u64 {
        let parameters = self.ring.params();
        let submission = parameters.sq_entries() as usize * size_of::<Entry>();
        let completion = parameters.cq_entries() as usize * size_of::<io_uring::cqueue::Entry>();
        let backlog = self.backlog.capacity() * size_of::<Entry>();
        (submission + completion + backlog) as u64
    }

    /// True if a receive waits for a buffer and one is free.
    fn can_resume_starved(&self, state: &BackendState) -> bool {
        !self.starved_streams.is_empty() && state.stream.available() > 0
            || !self.starved_datagrams.is_empty() && state.datagram.available() > 0
    }

    pub(crate) fn enter(
        &mut self,
        state: &mut BackendState,
        timeout: Option<Duration>,
    ) -> io::Result<Entered> {
        match self.owner {
            0 => self.start()?,
            // Checked here and not by the kernel: on another thread a registered index belongs to another ring.
            _ if !self.is_owner() => self.change_thread(state)?,
            _ => {}
        }
        if timeout == Some(Duration::ZERO) && self.is_suspended && self.stays_suspended(state) {
            return Ok(Entered::Ready);
        }
        let rested = self.resume(state);
        self.poll_idle_epoll(state, rested);
        self.resume_starved(state);
        self.submit_backlog(&mut state.stats.syscalls);
        // SAFETY: the queue views are dropped before anything else looks at the queues.
        let (queued, must_run, waiting) = unsafe {
            let (submission, completion) =
                (self.ring.submission_shared(), self.ring.completion_shared());
            (
                submission.len() as u32,
                submission.taskrun() || submission.cq_overflow(),
                !completion.is_empty(),
            )
        };
        let waiting = waiting || !state.ready.is_empty();
        let mut block = timeout != Some(Duration::ZERO) && !waiting;
        if !block && queued == 0 && !must_run {
            return Ok(Entered::Ready);
        }
        let already_woken = block && !state.waker.begin_sleep();
        block = block && !already_woken;
        state.stats.enters += 1;
        state.stats.syscalls += 1;
        // The clock is needed only if the kernel's result can be ambiguous (`reason_without_completion`).
        let deadline = match timeout {
            Some(limit) if block && queued > 0 => Instant::now().checked_add(limit),
            _ => None,
        };
        let timeout = timeout.filter(|_| block);
        let result = self.enter_kernel(queued, u32::from(block), timeout);
        // A call that does not block must not consume a wake, which has to end the next sleep.
        let woken = (block || already_woken) && state.waker.end_sleep();
        let expected = [libc::ETIME, libc::EINTR, libc::EAGAIN, libc::EBUSY];
        let result = match result {
            Err(error)
                if !error
                    .raw_os_error()
                    .is_some_and(|errno| expected.contains(&errno)) =>
            {
                return Err(error);
            }
            result => result,
        };
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
            if woken {
                state.waker.restore_wake();
            }
            return Ok(Entered::Interrupted);
        }
        if woken {
            return Ok(Entered::Woken);
        }
        // SAFETY: no other view of the completion queue exists while `self` is borrowed.
        if !block || !unsafe { self.ring.completion_shared() }.is_empty() {
            return Ok(Entered::Ready);
        }
        Ok(reason_without_completion(&result, deadline))
    }

    /// Calls `io_uring_enter` once: submits `queued` entries, runs deferred work, and waits for `wanted` completions.
    fn enter_kernel(&self, queued: u32, wanted: u32, timeout: Option<Duration>) -> io::Result<u32> {
        let timespec;
        let mut arguments = SubmitArgs::new();
        if let Some(limit) = timeout {
            timespec = Timespec::from(limit);
            arguments = arguments.timespec(&timespec);
        }
        let flags = self.enter_flags | ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the descriptor is this driver's ring, or its registered index if the flags contain
        // ENTER_REGISTERED_RING. The argument structure outlives the call. The operation table keeps the memory that
        // queued entries point to until their completion.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                queued,
                wanted,
                flags,
                &raw const arguments,
                mem::size_of::<SubmitArgs<'_, '_>>(),
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(result as u32)
        }
    }

    /// Submits receives again that failed because no buffer was free. Each free buffer allows one receive, and the oldest
    /// receives come first. A receive without a buffer would fail again, which costs a completion.
    fn resume_starved(&mut self, state: &mut BackendState) {
        for _ in 0..state.stream.available() {
            let Some(op) = state.table.next_starved(&mut self.starved_streams) else {
                break;
            };
            self.rearm(state, op);
        }
        for _ in 0..state.datagram.available() {
            let Some(op) = state.table.next_starved(&mut self.starved_datagrams) else {
                break;
            };
            self.rearm(state, op);
        }
    }

    fn rearm(&mut self, state: &mut BackendState, op: OpId) {
        state.stats.rearms += 1;
        let index = op.index();
        if self.queue_weak_poll(state, op) {
            return;
        }
        state.table.set_phase(index, OpPhase::Active);
        let slot = state.table.at(index);
        let entry = match (slot.kind, &slot.payload) {
            // The kernel continues the connection's handshake by itself, so the operation only waits for the end of the
            // handshake.
            (OpKind::Connect, _) => return self.push_readiness(state, index),
            (OpKind::Close, Payload::Descriptor(fd)) => queue_entries::close(op, fd.as_raw_fd()),
            _ => queue_entries::operation(op, slot, &self.receive_header),
        };
        self.push(entry, &mut state.stats.syscalls);
    }

    /// Queues a wait for readiness, after which the operation is tried again.
    fn push_readiness(&mut self, state: &mut BackendState, index: u32) {
        let op = state.table.id_at(index);
        state.table.set_phase(index, OpPhase::Polling);
        let entry = queue_entries::readiness(op, state.table.at(index));
        self.push(entry, &mut state.stats.syscalls);
    }
}

/// The reason why a blocking `io_uring_enter` returned without a completion or a wake. If the call has submitted
/// entries, the kernel returns only their number, so the clock has to tell a time-out from a signal.
fn reason_without_completion(result: &io::Result<u32>, deadline: Option<Instant>) -> Entered {
    match result.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(libc::ETIME)) => Entered::TimedOut,
        // The kernel has no memory for a request, or its list of overflowed completions is full: the host processes
        // completions and enters again.
        Err(_) => Entered::Ready,
        Ok(_) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => Entered::TimedOut,
        Ok(_) => Entered::Interrupted,
    }
}

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
