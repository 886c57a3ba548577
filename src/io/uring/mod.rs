//! The io_uring backend: the ring, entering it, reaping it, ending it.
//!
//! | file | noun |
//! | --- | --- |
//! | `setup` | building a ring: flags, the feature probe, buffer rings |
//! | `trial` | one receive through a small ring, to see that the kernel carries it out |
//! | `thread` | the thread that a ring is bound to, and the change to another |
//! | `entry` | submission entries |
//! | `submission` | the submission queue and its backlog |
//! | `completions` | the completion queue |
//! | `suspend` | operations taken back, so that another thread may enter |
//! | `idle_epoll` | operations without a completion in a whole run, moved to an epoll set |
//! | `end` | the end of a ring |
//! | `inherited` | a ring's operations in a forked child |
//!
//! This file has operations from their start to their completion, and `enter`.
//!
//! Some facts about io_uring that shape this:
//!
//! - SINGLE_ISSUER binds the ring to the thread that enables it: `enter` from another one fails with EEXIST.
//!   We enable at the first `enter`. When another thread takes an idle driver over it gets a
//!   second ring; operations cannot follow, because they belong to the thread that submitted them. That
//!   is why they are taken back when the driver comes to rest (`suspend`).
//! - With DEFER_TASKRUN completions appear only inside an `enter` with GETEVENTS. The TASKRUN flag
//!   in shared memory shows if there are any.
//! - A multishot ends with ENOBUFS when the buffer ring is empty; nothing resumes it. The
//!   operation then is [`OpPhase::Starved`] until a buffer is back.

mod completions;
mod end;
mod entry;
mod idle_epoll;
mod inherited;
mod setup;
mod submission;
mod suspend;
mod thread;
mod trial;

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
use idle_epoll::IdleEpoll;
pub(crate) use inherited::Inherited;
use suspend::{Peek, Suspended};

use crate::common::Common;
use crate::completion::Entered;
use crate::config::DriverConfig;
use crate::op::{OpId, OpKind, OpPhase, Payload};
use crate::pool::Pool;
use crate::setup_error::SetupError;
use crate::waker::Waker;

pub(crate) struct Uring {
    ring: ManuallyDrop<IoUring>,
    /// The descriptor argument of `io_uring_enter`: the ring's descriptor, or its registered index.
    enter_fd: i32,
    enter_flags: u32,
    registered: Option<i32>,
    /// The thread that enabled the ring; 0 before.
    owner: u64,
    /// Entries that found the submission queue full when it could not be submitted, and those queued on another
    /// thread. Bounded by the slab: each operation has at most its own entry, a cancel and a re-arm.
    backlog: VecDeque<Entry>,
    /// Receives that wait for a buffer, oldest first.
    starved_streams: VecDeque<OpId>,
    starved_datagrams: VecDeque<OpId>,
    /// Operations to arm again after the current completions.
    rearm: Vec<u32>,
    /// Operations that were taken back from the kernel.
    suspended: Vec<Suspended>,
    peek: Peek,
    /// The suspended operations that wait in an epoll set.
    idle_epoll: IdleEpoll,
    /// The inode that eventfds and similar files share.
    anonymous: Option<FileId>,
    /// The cancel of a suspension has completed.
    suspend_is_answered: bool,
    /// The driver is suspended; queued entries go to the backlog, because another thread's ring may take them.
    resting: bool,
    /// Suspension has ended the watch of the waker's eventfd.
    watch_lost: bool,
    receive_header: Box<libc::msghdr>,
    config: DriverConfig,
    stream_flags: u16,
}

impl Uring {
    pub(crate) fn new(
        config: &DriverConfig,
        waker: &Waker,
    ) -> Result<(Uring, Rc<Pool>, Rc<Pool>), SetupError> {
        let setup::Parts {
            ring,
            stream,
            datagram,
            stream_flags,
        } = setup::set_up(config)?;
        let mut uring = Uring::over(ring, config, stream_flags, waker);
        let mut no_stats = Default::default();
        uring.push(entry::watch_eventfd(waker.fd()), &mut no_stats);
        Ok((uring, stream, datagram))
    }

    fn over(ring: IoUring, config: &DriverConfig, stream_flags: u16, waker: &Waker) -> Uring {
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
            peek: Peek::default(),
            idle_epoll: IdleEpoll::default(),
            anonymous: file_of(waker.fd()),
            suspend_is_answered: false,
            resting: false,
            watch_lost: false,
            receive_header: entry::receive_header(),
            config: config.clone(),
            stream_flags,
        }
    }

    pub(crate) fn queue(&mut self, common: &mut Common, op: OpId) {
        let index = op.index();
        if common.table.at(index).kind == OpKind::Close {
            return self.queue_close(common, op);
        }
        if self.waits_unheld(common, op) {
            return;
        }
        let entry = entry::of(op, common.table.at(index), &self.receive_header);
        self.push(entry, &mut common.stats.syscalls);
    }

    fn queue_close(&mut self, common: &mut Common, op: OpId) {
        let fd = common.table.at(op.index()).fd;
        let mut others = mem::take(&mut common.scratch);
        common.table.on_fd(fd, &mut others);
        let mut in_kernel = false;
        for &index in others.iter().rev() {
            if index == op.index() {
                continue;
            }
            let slot = common.table.at(index);
            slot.cancelled = true;
            match slot.phase {
                OpPhase::Starved | OpPhase::Suspended => self.finish_idle(common, index),
                OpPhase::Active | OpPhase::Polling => in_kernel = true,
            }
        }
        common.scratch = others;
        common.table.adopt(op.index());
        if in_kernel {
            let [cancel, close] = entry::cancel_and_close(op, fd);
            self.push_pair(cancel, close, &mut common.stats.syscalls);
        } else {
            self.push(entry::close(op, fd), &mut common.stats.syscalls);
        }
    }

    /// The caller has marked the slot already.
    pub(crate) fn cancel(&mut self, common: &mut Common, op: OpId) {
        match common.table.at(op.index()).phase {
            OpPhase::Starved | OpPhase::Suspended => self.finish_idle(common, op.index()),
            OpPhase::Active | OpPhase::Polling if self.resting => {
                self.cancel_at_rest(common, entry::cancel(op));
            }
            OpPhase::Active | OpPhase::Polling => {
                self.push(entry::cancel(op), &mut common.stats.syscalls);
            }
        }
    }

    /// Ends an operation that is not in the ring at the moment; the list that contains it skips it later.
    fn finish_idle(&mut self, common: &mut Common, index: u32) {
        let (op, fd) = (common.table.id_at(index), common.table.at(index).fd);
        self.idle_epoll.remove(fd, op, &mut common.stats.syscalls);
        common.finish_later(index, -libc::ECANCELED);
    }

    pub(crate) fn needs_enter(&self, common: &Common) -> bool {
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
            || self.has_food(common)
    }

    /// True if the completion queue has entries.
    pub(crate) fn has_completions(&self) -> bool {
        // SAFETY: no other view of the queue exists while `self` is borrowed.
        !unsafe { self.ring.completion_shared() }.is_empty()
    }

    /// Bytes of both queues and the backlog.
    pub(crate) fn queues_bytes(&self) -> u64 {
        let parameters = self.ring.params();
        let submission = parameters.sq_entries() as usize * size_of::<Entry>();
        let completion = parameters.cq_entries() as usize * size_of::<io_uring::cqueue::Entry>();
        let backlog = self.backlog.capacity() * size_of::<Entry>();
        (submission + completion + backlog) as u64
    }

    /// True if a starved receive could continue.
    fn has_food(&self, common: &Common) -> bool {
        !self.starved_streams.is_empty() && common.stream.available() > 0
            || !self.starved_datagrams.is_empty() && common.datagram.available() > 0
    }

    pub(crate) fn enter(
        &mut self,
        common: &mut Common,
        timeout: Option<Duration>,
    ) -> io::Result<Entered> {
        match self.owner {
            0 => self.start()?,
            // Checked here, because with a registered index the kernel would use another ring on another thread.
            _ if !self.is_owner() => self.change_thread(common)?,
            _ => {}
        }
        if timeout == Some(Duration::ZERO) && self.resting && self.rests_on(common) {
            return Ok(Entered::Ready);
        }
        let rested = self.resume(common);
        self.poll_idle_epoll(common, rested);
        self.feed_starved(common);
        self.submit_backlog(&mut common.stats.syscalls);
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
        let waiting = waiting || !common.ready.is_empty();
        let mut block = timeout != Some(Duration::ZERO) && !waiting;
        if !block && queued == 0 && !must_run {
            return Ok(Entered::Ready);
        }
        let already_woken = block && !common.waker.fall_asleep();
        block = block && !already_woken;
        common.stats.enters += 1;
        common.stats.syscalls += 1;
        // The clock is read only if the kernel's result could be ambiguous, see `why_empty`.
        let deadline = match timeout {
            Some(limit) if block && queued > 0 => Instant::now().checked_add(limit),
            _ => None,
        };
        let timeout = timeout.filter(|_| block);
        let result = self.enter_kernel(queued, u32::from(block), timeout);
        // Only a reported wake is consumed: one that arrives during an `enter` that does not block must still end
        // the next sleep.
        let woken = (block || already_woken) && common.waker.get_up();
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
                common.waker.keep();
            }
            return Ok(Entered::Interrupted);
        }
        if woken {
            return Ok(Entered::Woken);
        }
        // SAFETY: as above.
        if !block || !unsafe { self.ring.completion_shared() }.is_empty() {
            return Ok(Entered::Ready);
        }
        Ok(why_empty(&result, deadline))
    }

    /// One `io_uring_enter`: submits `queued` entries, runs deferred work, and waits for `wanted` completions. It
    /// uses only the ring, so it may run without Python's lock.
    fn enter_kernel(&self, queued: u32, wanted: u32, timeout: Option<Duration>) -> io::Result<u32> {
        let timespec;
        let mut arguments = SubmitArgs::new();
        if let Some(limit) = timeout {
            timespec = Timespec::from(limit);
            arguments = arguments.timespec(&timespec);
        }
        let flags = self.enter_flags | ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the descriptor is this driver's ring (or its registered index, as the flags say); the argument
        // structure outlives the call. The slab keeps memory that queued entries point to until their completion.
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

    /// Arms as many starved receives as there are buffers, oldest first. Arming all of them would only starve the
    /// rest again, at the cost of a completion each.
    fn feed_starved(&mut self, common: &mut Common) {
        for _ in 0..common.stream.available() {
            let Some(op) = common.table.next_starved(&mut self.starved_streams) else {
                break;
            };
            self.arm_again(common, op);
        }
        for _ in 0..common.datagram.available() {
            let Some(op) = common.table.next_starved(&mut self.starved_datagrams) else {
                break;
            };
            self.arm_again(common, op);
        }
    }

    fn arm_again(&mut self, common: &mut Common, op: OpId) {
        common.stats.rearms += 1;
        let index = op.index();
        if self.waits_unheld(common, op) {
            return;
        }
        common.table.set_phase(index, OpPhase::Active);
        let slot = common.table.at(index);
        let entry = match (slot.kind, &slot.payload) {
            // The handshake continues in the kernel; another connect after its end returns its result.
            (OpKind::Connect, _) => return self.push_readiness(common, index),
            (OpKind::Close, Payload::Descriptor(fd)) => entry::close(op, fd.as_raw_fd()),
            _ => entry::of(op, slot, &self.receive_header),
        };
        self.push(entry, &mut common.stats.syscalls);
    }

    /// Queues a readiness wait instead of the operation.
    fn push_readiness(&mut self, common: &mut Common, index: u32) {
        let op = common.table.id_at(index);
        common.table.set_phase(index, OpPhase::Polling);
        let entry = entry::readiness(op, common.table.at(index));
        self.push(entry, &mut common.stats.syscalls);
    }
}

/// A blocking enter returned without a completion or a wake. If it also submitted something the kernel reports only
/// that, and only the clock distinguishes a time-out from a signal.
fn why_empty(result: &io::Result<u32>, deadline: Option<Instant>) -> Entered {
    match result.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(libc::ETIME)) => Entered::TimedOut,
        // No memory for a request or a full overflow list: process completions and try again.
        Err(_) => Entered::Ready,
        Ok(_) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => Entered::TimedOut,
        Ok(_) => Entered::Interrupted,
    }
}

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
