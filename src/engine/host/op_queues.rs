//! Queues of operations on the host's own sockets (asyncio's `sock_*` calls), one for each descriptor and direction.
//!
//! - **Queues.** In each direction a socket has at most one operation in flight, and the others wait in its queue. Two
//!   sends in the kernel could overtake each other. A receive that is being cancelled may still bring bytes, which the
//!   next one must get first. A short send keeps its place at the head of the queue.
//! - **Late starts.** An operation is started at the end of the turn, after the host has checked that the socket still has
//!   its descriptor. Otherwise it could take bytes from a new owner of a number that was closed in this turn.
//! - **Checks.** If a socket is closed while one of its operations is in the kernel, it stays open there, and its peer sees
//!   no end. No event reports a `close()`, so the host checks the sockets from time to time, and once more before it
//!   blocks for long.
//! - **Memory.** A descriptor needs memory while operations of it wait or are in flight, and for some hundred turns after
//!   its last call. The height of its number makes no difference.
//! - **Tries.** Most receives and sends need no operation, because the host tries a system call first. `may_try` says when
//!   that is likely to succeed.
//!
//! The host names a socket by its descriptor and by a number of its own, because descriptors change their owners. It also
//! keeps the callers and handles the results.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use uringcore_io::Outcome;

use crate::host::socket_op::{Attempt, SocketOp};
use crate::slab::Key;
use crate::watchers::Direction;

/// One direction of one descriptor.
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

/// An operation to be started.
pub struct Start {
    pub key: Key,
    pub queue_id: OpQueueId,
    pub op: SocketOp,
}

/// An operation that waits in a queue.
struct WaitingOp {
    key: Key,
    socket: usize,
    op: SocketOp,
}

/// The operation at the head of its queue, to be started or in flight.
struct HeadOp {
    key: Key,
    socket: usize,
    asked: Asked,
}

enum Asked {
    AtMost(usize),
    AllOf(Bytes),
    /// A receive or an accept, when the socket is readable.
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

    /// True if it returned the requested number of bytes.
    fn is_full(&self, outcome: &Outcome) -> bool {
        match (&self.asked, outcome) {
            (Asked::AtMost(most), Outcome::Received(Ok(data))) => data.len() >= *most,
            _ => false,
        }
    }

    /// The unsent rest of a short send.
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

/// Counts system calls that were tried at once in vain. After some of them, the next receives go to the ring.
#[derive(Default, Clone, Copy)]
struct Hint {
    /// Operations to go before the next try.
    skip: u8,
    /// The next value of `skip` after a vain try.
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

    /// A receive has completed. If it returned the requested number of bytes, there may be more.
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
}

#[derive(Default)]
struct Descriptor {
    /// Indexed by direction.
    queues: [OpQueue; 2],
    hint: Hint,
    /// Calls answered without waiting in turn `turn`.
    turn: u64,
    answered: u32,
}

impl Descriptor {
    fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| queue.current.is_some())
    }
}

pub struct OpQueues {
    /// The descriptors in use, by number.
    descriptors: FxHashMap<RawFd, Descriptor>,
    /// The turn in which unused descriptors are removed. `u64::MAX` while there are few.
    next_sweep: u64,
    starting: VecDeque<Start>,
    /// Operations at the head of a queue, or waiting in one.
    len: usize,
    turn: u64,
    next_check: Option<Instant>,
    /// The host's callbacks have run since the last check.
    is_check_due: bool,
}

impl Default for OpQueues {
    fn default() -> Self {
        Self {
            descriptors: FxHashMap::default(),
            next_sweep: u64::MAX,
            starting: VecDeque::new(),
            len: 0,
            turn: 0,
            next_check: None,
            is_check_due: false,
        }
    }
}

impl OpQueues {
    #[inline]
    fn descriptor(&mut self, fd: RawFd) -> &mut Descriptor {
        let (turn, others) = (self.turn, self.descriptors.len());
        let next_sweep = &mut self.next_sweep;
        self.descriptors.entry(fd).or_insert_with(|| {
            if others >= DESCRIPTORS_KEPT {
                *next_sweep = (*next_sweep).min(turn + TURNS_KEPT);
            }
            Descriptor {
                turn,
                ..Descriptor::default()
            }
        })
    }

    /// The number of descriptors with memory here.
    pub fn descriptors(&self) -> usize {
        self.descriptors.len()
    }

    /// Removes descriptors that were not used for a while. Most of them are closed, which is not reported here. One that is
    /// used again only begins to count its vain tries anew.
    #[cold]
    fn sweep(&mut self) {
        let oldest = self.turn.saturating_sub(TURNS_KEPT);
        self.descriptors
            .retain(|_, descriptor| descriptor.is_busy() || descriptor.turn > oldest);
        if self.descriptors.len() < self.descriptors.capacity() / 8 {
            self.descriptors.shrink_to(2 * self.descriptors.len());
        }
        self.next_sweep = match self.descriptors.len() > DESCRIPTORS_KEPT {
            true => self.turn + TURNS_KEPT,
            false => u64::MAX,
        };
    }

    fn queue(&mut self, queue_id: OpQueueId) -> &mut OpQueue {
        &mut self.descriptor(queue_id.fd).queues[queue_id.direction as usize]
    }

    // Tries --------------------------------------------------------------------------------------

    /// True if a system call may be tried at once, which is then counted. No operation of that direction may be in flight,
    /// the try must be likely to succeed, and a task whose calls never wait must let others run.
    #[inline]
    pub fn may_try(&mut self, queue_id: OpQueueId) -> bool {
        let turn = self.turn;
        let descriptor = self.descriptor(queue_id.fd);
        if descriptor.queues[queue_id.direction as usize]
            .current
            .is_some()
        {
            return false;
        }
        if descriptor.turn != turn {
            (descriptor.turn, descriptor.answered) = (turn, 0);
        }
        let is_vain = queue_id.direction == Direction::Read && descriptor.hint.skip > 0;
        if is_vain || descriptor.answered >= ANSWERS_PER_TURN {
            return false;
        }
        descriptor.answered += 1;
        true
    }

    /// True if an accept may be tried at once, which is then counted: one in each turn. So a task that accepts in a loop
    /// handles each connection before it accepts the next, and other processes accept the rest.
    pub fn may_accept(&mut self, queue_id: OpQueueId) -> bool {
        let turn = self.turn;
        let descriptor = self.descriptor(queue_id.fd);
        let has_accepted = descriptor.turn == turn && descriptor.answered > 0;
        !has_accepted && self.may_try(queue_id)
    }

    /// A read from `fd` was tried and found something or not.
    #[inline]
    pub fn tried(&mut self, fd: RawFd, something: bool) {
        self.descriptor(fd).hint.tried(something);
    }

    // Operations ---------------------------------------------------------------------------------

    /// The operation at the head of this queue, and the host's number of its socket.
    #[inline]
    pub fn current(&self, queue_id: OpQueueId) -> Option<(Key, usize)> {
        let current = self.holder(queue_id)?;
        Some((current.key, current.socket))
    }

    fn holder(&self, queue_id: OpQueueId) -> Option<&HeadOp> {
        let descriptor = self.descriptors.get(&queue_id.fd)?;
        descriptor.queues[queue_id.direction as usize]
            .current
            .as_ref()
    }

    /// Adds an operation to its queue, and starts it if the queue was empty. `socket` is the host's number of the socket,
    /// which distinguishes sockets that had one descriptor after each other.
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

    /// Takes the next operation to start in this turn. The host starts it or calls [`leave`](Self::leave).
    #[inline]
    pub fn take_start(&mut self) -> Option<Start> {
        self.starting.pop_front()
    }

    /// The receive or the accept for which an operation with this `outcome` has waited. The host makes it, if the
    /// descriptor is still the socket's.
    pub fn attempt_of(&self, queue_id: OpQueueId, key: Key, outcome: &Outcome) -> Option<Attempt> {
        let current = self.holder(queue_id).filter(|current| current.key == key)?;
        match (&current.asked, outcome) {
            (Asked::Attempt(attempt), Outcome::Done(Ok(_))) => Some(*attempt),
            _ => None,
        }
    }

    /// The unsent rest of a short send, for [`go_on`](Self::go_on).
    pub fn rest_of(&self, queue_id: OpQueueId, key: Key, outcome: &Outcome) -> Option<Bytes> {
        let current = self.holder(queue_id)?;
        (current.key == key).then(|| current.rest(outcome))?
    }

    /// Continues the operation at the head of the queue, which keeps its place, by `op` with the new `key`: the rest of a
    /// short send, or another wait for an attempt that found nothing because another process was faster.
    pub fn go_on(&mut self, queue_id: OpQueueId, key: Key, op: SocketOp) {
        if let Some(current) = &mut self.queue(queue_id).current {
            *current = HeadOp::new(key, current.socket, &op);
            self.starting.push_back(Start { key, queue_id, op });
        }
    }

    /// An operation has ended. The next one that `is_wanted` is started.
    pub fn complete(
        &mut self,
        queue_id: OpQueueId,
        key: Key,
        outcome: &Outcome,
        is_wanted: impl Fn(Key) -> bool,
    ) {
        if queue_id.direction == Direction::Read
            && let Some(descriptor) = self.descriptors.get_mut(&queue_id.fd)
        {
            let current = &descriptor.queues[Direction::Read as usize].current;
            let is_full = current.as_ref().is_some_and(|at| at.is_full(outcome));
            descriptor.hint.completed(is_full);
        }
        self.leave(queue_id, key, is_wanted);
    }

    /// An operation leaves the head of its queue, if it is there. The next one that `is_wanted` is started. A waiting
    /// operation that is cancelled need not leave: it is skipped when it reaches the head.
    pub fn leave(&mut self, queue_id: OpQueueId, key: Key, is_wanted: impl Fn(Key) -> bool) {
        let Some(descriptor) = self.descriptors.get_mut(&queue_id.fd) else {
            return;
        };
        let queue = &mut descriptor.queues[queue_id.direction as usize];
        if queue.current.as_ref().is_none_or(|at| at.key != key) {
            return;
        }
        queue.current = None;
        self.len -= 1;
        while let Some(WaitingOp { key, socket, op }) = queue.waiting.pop_front() {
            if is_wanted(key) {
                queue.current = Some(HeadOp::new(key, socket, &op));
                return self.starting.push_back(Start { key, queue_id, op });
            }
            self.len -= 1;
        }
    }

    /// Removes waiting operations that are not wanted any more. A program may cancel one wait after the other on a socket
    /// whose first operation never ends. The host calls this with each check, so that no key here outlives its operation
    /// for long.
    pub fn drop_unwanted(&mut self, is_wanted: impl Fn(Key) -> bool) {
        for queue in self.descriptors.values_mut().flat_map(|at| &mut at.queues) {
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

    // Turns and checks ---------------------------------------------------------------------------

    /// True if a turn has nothing to start or to check. Such a turn is counted.
    #[inline]
    pub fn skip_turn(&mut self) -> bool {
        let is_idle = self.len == 0 && self.starting.is_empty() && self.turn < self.next_sweep;
        self.turn += u64::from(is_idle);
        is_idle
    }

    /// The host's callbacks have run. Returns the operations whose sockets the host has to check now. If a socket is
    /// closed, the host calls [`leave`](Self::leave) for its operation and cancels it.
    #[inline]
    pub fn begin_turn(&mut self, now: impl FnOnce() -> Instant) -> Vec<(Key, OpQueueId)> {
        self.turn += 1;
        if self.turn >= self.next_sweep {
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
        for (&fd, descriptor) in &self.descriptors {
            for direction in [Direction::Read, Direction::Write] {
                let queue_id = OpQueueId::new(fd, direction);
                let keys = descriptor.queues[direction as usize].keys();
                found.extend(keys.map(|key| (key, queue_id)));
            }
        }
        found
    }

    /// The time of the next check, at which a blocked host has to wake up.
    #[inline]
    pub fn next_check(&self) -> Option<Instant> {
        self.next_check.filter(|_| self.is_check_due)
    }

    /// The host runs again after a rest. Its operations, which were taken back from the kernel, will be armed by
    /// descriptor, and a descriptor may have a new owner. So all are checked now.
    pub fn check_now(&mut self, now: Instant) {
        if self.len > 0 {
            self.next_check = Some(now);
        }
    }
}

/// A task whose calls succeed this often in a turn without waiting has to wait once, so that others run.
const ANSWERS_PER_TURN: u32 = 16;
/// The most operations between vain tries.
const BACKOFF_MAX: u8 = 31;
/// The number of descriptors that are always kept. Others are kept for a number of turns after their last use.
const DESCRIPTORS_KEPT: usize = 256;
const TURNS_KEPT: u64 = 512;
/// The longest time that a closed socket stays open in the kernel.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
