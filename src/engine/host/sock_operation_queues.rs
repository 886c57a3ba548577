//! Queues of operations on the host's own sockets (asyncio's `sock_*` calls), one for each descriptor and direction.
//!
//! - **Queues.** In each direction a socket has at most one operation in flight, and the others wait in its queue. Two
//!   sends in the kernel could overtake each other. A receive that is being cancelled may still complete with bytes,
//!   and the next receive must return these first. A short send stays at the head of the queue until its rest is sent.
//! - **Late starts.** An operation is started at the end of the loop iteration, after the host has checked that the
//!   socket still has its descriptor. Otherwise, if the descriptor was closed in this loop iteration, the operation
//!   could take bytes from another socket that got the same number.
//! - **Checks.** If a program closes a socket while an operation on it is in the kernel, the kernel keeps the socket
//!   open, and the peer sees no end. The engine gets no event for a `close()`, so the host checks its sockets from
//!   time to time, and once more before it blocks for long.
//! - **Memory.** A descriptor needs memory while operations of it wait or are in flight, and for some hundred loop
//!   iterations after its last call. A high descriptor number needs no more memory than a low one.
//! - **Tries.** Most receives and sends need no operation, because the host first tries the system call without
//!   waiting. `may_try` returns true when that is likely to succeed.
//!
//! The host identifies a socket by its descriptor and by a number of its own, because a descriptor number is reused
//! after a close. The host also has the callers and handles the results.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uringcore_io::Outcome;

use crate::generational_slab::Key;
use crate::host::descriptor_table::DescriptorTable;
use crate::host::sock_operation::{Attempt, SocketOp};
use crate::readiness_watchers::Direction;

/// The key of a queue: a descriptor and a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpQueueId {
    pub fd: RawFd,
    pub direction: Direction,
}

impl OpQueueId {
    #[inline]
    pub fn new(fd: RawFd, direction: Direction) -> Self {
        Self { fd, direction }
    }

    #[inline]
    pub fn read(fd: RawFd) -> Self {
        Self::new(fd, Direction::Read)
    }

    #[inline]
    pub fn write(fd: RawFd) -> Self {
        Self::new(fd, Direction::Write)
    }
}

/// An operation that the host has to start now.
pub struct Start {
    pub key: Key,
    pub queue_id: OpQueueId,
    pub op: SocketOp,
}

/// An operation in a queue, behind the operation at the queue's head.
struct WaitingOp {
    key: Key,
    socket: usize,
    op: SocketOp,
}

/// The operation at the head of its queue, which is in flight or has to be started.
struct HeadOp {
    key: Key,
    socket: usize,
    asked: Asked,
}

enum Asked {
    AtMost(usize),
    AllOf(Bytes),
    /// A receive or an accept that the host makes when the socket is readable.
    Attempt(Attempt),
    Something,
}

impl HeadOp {
    fn new(key: Key, socket: usize, op: &SocketOp) -> Self {
        let asked = match op {
            SocketOp::Recv(most) => Asked::AtMost(*most as usize),
            SocketOp::Send(data) => Asked::AllOf(data.clone()),
            SocketOp::RecvFrom(size) => Asked::Attempt(Attempt::Message(*size)),
            SocketOp::Accept => Asked::Attempt(Attempt::Connection),
            _ => Asked::Something,
        };
        Self { key, socket, asked }
    }

    /// True if a receive returned as many bytes as were requested.
    fn is_full(&self, outcome: &Outcome) -> bool {
        match (&self.asked, outcome) {
            (Asked::AtMost(most), Outcome::Received(Ok(data))) => data.len() >= *most,
            _ => false,
        }
    }

    /// The bytes that a short send has not sent.
    fn rest(&self, outcome: &Outcome) -> Option<Bytes> {
        match (&self.asked, outcome) {
            (Asked::AllOf(data), Outcome::Done(Ok(sent))) => {
                let sent = *sent as usize;
                (sent < data.len()).then(|| data.slice(sent..))
            }
            _ => None,
        }
    }
}

/// Counts receives that were tried by a system call and found no data. After some of these, the next receives are
/// queued in the ring without a try.
#[derive(Default, Clone, Copy)]
struct Hint {
    /// The number of operations that are queued in the ring before the next try.
    skip: u8,
    /// The value that `skip` gets after the next failed try.
    backoff: u8,
}

impl Hint {
    fn tried(&mut self, something: bool) {
        if something {
            *self = Self::default();
        } else {
            self.backoff = (self.backoff * 2 + 1).min(BACKOFF_MAX);
            self.skip = self.backoff;
        }
    }

    /// Records a completed receive. If it returned all the bytes that were requested, the socket may have more, so that
    /// a try is likely to succeed.
    fn completed(&mut self, is_full: bool) {
        self.skip = if is_full {
            0
        } else {
            self.skip.saturating_sub(1)
        };
    }
}

#[derive(Default)]
struct OpQueue {
    current: Option<HeadOp>,
    waiting: VecDeque<WaitingOp>,
}

impl OpQueue {
    fn keys(&self) -> impl Iterator<Item = Key> {
        let current = self.current.iter().map(|current| current.key);
        current.chain(self.waiting.iter().map(|waiting| waiting.key))
    }

    /// Replaces the operation `key`, if it is at the head, by the next operation for which `is_wanted` returns true,
    /// and starts that. Returns the number of operations that were removed.
    fn leave(
        &mut self,
        queue_id: OpQueueId,
        key: Key,
        is_wanted: impl Fn(Key) -> bool,
        starting: &mut VecDeque<Start>,
    ) -> usize {
        if self.current.as_ref().is_none_or(|at| at.key != key) {
            return 0;
        }
        self.current = None;
        let mut left = 1;
        while let Some(WaitingOp { key, socket, op }) = self.waiting.pop_front() {
            if is_wanted(key) {
                self.current = Some(HeadOp::new(key, socket, &op));
                starting.push_back(Start { key, queue_id, op });
                break;
            }
            left += 1;
        }
        left
    }
}

#[derive(Default)]
struct Descriptor {
    /// The queues of a descriptor: one for reading, one for writing.
    queues: [OpQueue; 2],
    hint: Hint,
    /// The loop iteration of the last call that succeeded without waiting.
    iteration: u64,
    /// The number of calls that succeeded without waiting in that loop iteration.
    answered: u32,
}

impl Descriptor {
    fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| queue.current.is_some())
    }
}

pub struct OpQueues {
    /// The descriptors in use, by number.
    descriptors: DescriptorTable<Descriptor>,
    /// The loop iteration in which the entries of unused descriptors are removed next. `u64::MAX` while there are few
    /// entries.
    next_sweep: u64,
    starting: VecDeque<Start>,
    /// The number of operations in all queues, including those at the heads.
    len: usize,
    iteration: u64,
    next_check: Option<Instant>,
    /// True if the host's callbacks have run since the last check of the sockets.
    is_check_due: bool,
}

impl Default for OpQueues {
    fn default() -> Self {
        Self {
            descriptors: DescriptorTable::default(),
            next_sweep: u64::MAX,
            starting: VecDeque::new(),
            len: 0,
            iteration: 0,
            next_check: None,
            is_check_due: false,
        }
    }
}

impl OpQueues {
    #[inline]
    fn descriptor(&mut self, fd: RawFd) -> &mut Descriptor {
        let (iteration, others) = (self.iteration, self.descriptors.len());
        let next_sweep = &mut self.next_sweep;
        self.descriptors.get_or_insert_with(fd, || {
            if others >= DESCRIPTORS_KEPT {
                *next_sweep = (*next_sweep).min(iteration + ITERATIONS_KEPT);
            }
            Descriptor {
                iteration,
                ..Descriptor::default()
            }
        })
    }

    /// The number of descriptors that have an entry.
    pub fn descriptors(&self) -> usize {
        self.descriptors.len()
    }

    /// Removes descriptors that were not used for a while. Most of them are closed, which no event reports. If a
    /// removed one is used again, only its count of failed tries is lost.
    #[cold]
    fn sweep(&mut self) {
        let oldest = self.iteration.saturating_sub(ITERATIONS_KEPT);
        self.descriptors
            .retain(|descriptor| descriptor.is_busy() || descriptor.iteration > oldest);
        self.next_sweep = match self.descriptors.len() > DESCRIPTORS_KEPT {
            true => self.iteration + ITERATIONS_KEPT,
            false => u64::MAX,
        };
    }

    fn queue(&mut self, queue_id: OpQueueId) -> &mut OpQueue {
        &mut self.descriptor(queue_id.fd).queues[queue_id.direction as usize]
    }

    // Tries --------------------------------------------------------------------------------------

    /// True if the host may try a system call now; the try is counted. It may not while an operation of that direction
    /// is in flight, while tries are likely to fail, or if the task's calls have succeeded so often in this loop
    /// iteration that other tasks must run first.
    #[inline]
    pub fn may_try(&mut self, queue_id: OpQueueId) -> bool {
        let iteration = self.iteration;
        let descriptor = self.descriptor(queue_id.fd);
        if descriptor.queues[queue_id.direction as usize]
            .current
            .is_some()
        {
            return false;
        }
        if descriptor.iteration != iteration {
            (descriptor.iteration, descriptor.answered) = (iteration, 0);
        }
        let is_vain = queue_id.direction == Direction::Read && descriptor.hint.skip > 0;
        if is_vain || descriptor.answered >= ANSWERS_PER_ITERATION {
            return false;
        }
        descriptor.answered += 1;
        true
    }

    /// True if the host may try an accept now; the try is counted. One is allowed in each loop iteration. So a task
    /// that accepts in a loop handles each connection before it accepts the next, and other processes can accept the
    /// others.
    pub fn may_accept(&mut self, queue_id: OpQueueId) -> bool {
        let iteration = self.iteration;
        let descriptor = self.descriptor(queue_id.fd);
        let has_accepted = descriptor.iteration == iteration && descriptor.answered > 0;
        !has_accepted && self.may_try(queue_id)
    }

    /// Records the result of a receive from `fd` that was tried by a system call. `something` is true if it returned
    /// data.
    #[inline]
    pub fn tried(&mut self, fd: RawFd, something: bool) {
        self.descriptor(fd).hint.tried(something);
    }

    // Operations ---------------------------------------------------------------------------------

    /// The operation at the head of this queue, with the host's number of its socket.
    #[inline]
    pub fn current(&self, queue_id: OpQueueId) -> Option<(Key, usize)> {
        let current = self.holder(queue_id)?;
        Some((current.key, current.socket))
    }

    /// Returns the operations at the heads of both queues of a descriptor, as [`current`](Self::current) does for one
    /// queue.
    #[inline]
    pub fn current_of_both(&self, fd: RawFd) -> [Option<(Key, usize)>; 2] {
        let Some(descriptor) = self.descriptors.get(fd) else {
            return [None; 2];
        };
        let head = |queue: &OpQueue| queue.current.as_ref().map(|at| (at.key, at.socket));
        [head(&descriptor.queues[0]), head(&descriptor.queues[1])]
    }

    fn holder(&self, queue_id: OpQueueId) -> Option<&HeadOp> {
        let descriptor = self.descriptors.get(queue_id.fd)?;
        descriptor.queues[queue_id.direction as usize]
            .current
            .as_ref()
    }

    /// Adds an operation to its queue. If the queue was empty the operation will be started. `socket` is the host's
    /// number of the socket, which distinguishes sockets that had the same descriptor one after another.
    #[inline]
    pub fn join(&mut self, key: Key, fd: RawFd, socket: usize, op: SocketOp) {
        self.len += 1;
        let queue_id = OpQueueId::new(fd, op.direction());
        let queue = self.queue(queue_id);
        if queue.current.is_some() {
            return queue.waiting.push_back(WaitingOp { key, socket, op });
        }
        queue.current = Some(HeadOp::new(key, socket, &op));
        self.starting.push_back(Start { key, queue_id, op });
    }

    /// Takes the next operation to start in this loop iteration. The host starts it, or removes it with
    /// [`leave`](Self::leave).
    #[inline]
    pub fn take_start(&mut self) -> Option<Start> {
        self.starting.pop_front()
    }

    /// Returns the receive or the accept that the operation `key` has waited for. The host executes it if the
    /// descriptor still belongs to the socket.
    pub fn attempt_of(&self, queue_id: OpQueueId, key: Key, outcome: &Outcome) -> Option<Attempt> {
        // A receive from a stream has completed with its bytes (`Outcome::Received`), so no attempt follows it.
        let Outcome::Done(Ok(_)) = outcome else {
            return None;
        };
        match self
            .holder(queue_id)
            .filter(|current| current.key == key)?
            .asked
        {
            Asked::Attempt(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// The bytes that a short send has not sent, for [`go_on`](Self::go_on).
    pub fn rest_of(&self, queue_id: OpQueueId, key: Key, outcome: &Outcome) -> Option<Bytes> {
        let current = self.holder(queue_id)?;
        (current.key == key).then(|| current.rest(outcome))?
    }

    /// Replaces the operation at the head of the queue by `op` with the new `key`: the rest of a short send, or
    /// another wait because an attempt found nothing (another process was faster).
    pub fn go_on(&mut self, queue_id: OpQueueId, key: Key, op: SocketOp) {
        if let Some(current) = &mut self.queue(queue_id).current {
            *current = HeadOp::new(key, current.socket, &op);
            self.starting.push_back(Start { key, queue_id, op });
        }
    }

    /// Removes an operation that has completed. The next operation in the queue that `is_wanted` will be started.
    pub fn complete(
        &mut self,
        queue_id: OpQueueId,
        key: Key,
        outcome: &Outcome,
        is_wanted: impl Fn(Key) -> bool,
    ) {
        let Some(descriptor) = self.descriptors.get_mut(queue_id.fd) else {
            return;
        };
        let queue = &mut descriptor.queues[queue_id.direction as usize];
        if queue_id.direction == Direction::Read {
            let is_full = queue.current.as_ref().is_some_and(|at| at.is_full(outcome));
            descriptor.hint.completed(is_full);
        }
        self.len -= queue.leave(queue_id, key, is_wanted, &mut self.starting);
    }

    /// Removes the operation `key` if it is at the head of its queue. The next operation for which `is_wanted` returns
    /// true is then started. A cancelled operation behind the head may stay: it is skipped when it reaches the head.
    pub fn leave(&mut self, queue_id: OpQueueId, key: Key, is_wanted: impl Fn(Key) -> bool) {
        if let Some(descriptor) = self.descriptors.get_mut(queue_id.fd) {
            let queue = &mut descriptor.queues[queue_id.direction as usize];
            self.len -= queue.leave(queue_id, key, is_wanted, &mut self.starting);
        }
    }

    /// Removes operations that are no longer wanted from the queues. They could accumulate if a program cancels many
    /// operations on a socket whose first operation never ends. The host calls this with each check, so no key stays
    /// here long after its operation was cancelled.
    pub fn drop_unwanted(&mut self, is_wanted: impl Fn(Key) -> bool) {
        for queue in self.descriptors.iter_mut().flat_map(|at| &mut at.queues) {
            let before = queue.waiting.len();
            if before > 0 {
                queue.waiting.retain(|waiting| is_wanted(waiting.key));
                self.len -= before - queue.waiting.len();
                if queue.waiting.len() < queue.waiting.capacity() / 8 {
                    queue.waiting.shrink_to_fit();
                }
            }
        }
    }

    // Iterations and checks ----------------------------------------------------------------------

    /// True if this loop iteration has no operation to start and no socket to check. The loop iteration is counted.
    #[inline]
    pub fn skip_iteration(&mut self) -> bool {
        let is_idle = self.len == 0 && self.starting.is_empty() && self.iteration < self.next_sweep;
        self.iteration += u64::from(is_idle);
        is_idle
    }

    /// Called after the host's callbacks have run. Returns the operations whose sockets the host has to check now. If
    /// a socket is closed, the host calls [`leave`](Self::leave) for its operation and cancels it.
    #[inline]
    pub fn begin_iteration(&mut self, now: impl FnOnce() -> Instant) -> Vec<(Key, OpQueueId)> {
        self.iteration += 1;
        if self.iteration >= self.next_sweep {
            self.sweep();
        }
        if self.len == 0 {
            self.is_check_due = false;
            return Vec::new();
        }
        let now = now();
        let next = *self.next_check.get_or_insert(now + CHECK_INTERVAL);
        self.is_check_due = now < next;
        if self.is_check_due {
            return Vec::new();
        }
        self.next_check = Some(now + CHECK_INTERVAL);
        self.all()
    }

    fn all(&self) -> Vec<(Key, OpQueueId)> {
        let mut found = Vec::with_capacity(self.len);
        for (fd, descriptor) in self.descriptors.iter() {
            for direction in [Direction::Read, Direction::Write] {
                let queue_id = OpQueueId::new(fd, direction);
                let keys = descriptor.queues[direction as usize].keys();
                found.extend(keys.map(|key| (key, queue_id)));
            }
        }
        found
    }

    /// The time of the next check of the sockets. A blocked host has to wake up then.
    #[inline]
    pub fn next_check(&self) -> Option<Instant> {
        self.next_check.filter(|_| self.is_check_due)
    }

    /// Called when the host runs again after it was stopped. Its operations were taken back from the kernel and will
    /// be armed again by descriptor number, which may belong to another socket by now. So all sockets are checked at
    /// once.
    pub fn check_now(&mut self, now: Instant) {
        if self.len > 0 {
            self.next_check = Some(now);
        }
    }
}

/// If calls of a task succeed this often in a loop iteration without waiting, the next call waits for the next loop
/// iteration, so that other tasks run.
const ANSWERS_PER_ITERATION: u32 = 16;
/// The maximum number of operations that are queued in the ring between two failed tries.
const BACKOFF_MAX: u8 = 31;
/// The number of descriptors whose entries are always kept. Other entries are removed some loop iterations after their
/// last use.
const DESCRIPTORS_KEPT: usize = 256;
const ITERATIONS_KEPT: u64 = 512;
/// The interval of the checks. So a closed socket stays open in the kernel for at most this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
