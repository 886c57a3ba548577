//! Who is next on the sockets that are the host's own (asyncio's `sock_*` calls).
//!
//! - **Queues.** In each direction a socket has at most one operation in flight; the others wait in its queue.
//!   Two sends in the kernel could overtake each other, and a receive that is being cancelled may
//!   still bring bytes, which the next one must get first. A send that came back short keeps its place at the head.
//! - **Late starts.** An operation is started at the end of the turn, after the host had a look whether its
//!   socket still has its descriptor: a number that was closed and given away within the turn must not
//!   cost its new owner a byte.
//! - **Looks.** A socket that is closed while an operation of it is in the kernel stays open there, and its
//!   peer sees no end. Nothing tells of a `close()`, so the host looks from time to time, and once more
//!   before it sleeps for long.
//! - **Memory.** A descriptor takes room while operations of it wait or are in flight, and for some hundred turns
//!   after its last call. How high its number is makes no difference.
//! - **Tries.** Most receives and sends need no operation: the host tries a system call first. It is told
//!   when that is worth its while.
//!
//! Not here: what a socket is to the host, who waits for an operation, and what is done with a result. The
//! host names a socket by its descriptor and, because numbers change their owners, by a number of its own.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use uringcore_io::Outcome;

use crate::host::socket_op::{Attempt, SocketOp};
use crate::table::Key;
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

/// An operation that is up.
pub struct Start {
    pub key: Key,
    pub queue_id: OpQueueId,
    pub op: SocketOp,
}

/// An operation that waits in a queue.
struct Waiting {
    key: Key,
    socket: usize,
    op: SocketOp,
}

/// The operation at the head of its queue: it is up or in flight.
struct Current {
    key: Key,
    socket: usize,
    asked: Asked,
}

enum Asked {
    AtMost(usize),
    AllOf(Bytes),
    /// What is tried when the socket is readable.
    Attempt(Attempt),
    Something,
}

impl Current {
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

    /// It brought as much as was asked for.
    fn is_full(&self, outcome: &Outcome) -> bool {
        match (&self.asked, outcome) {
            (Asked::AtMost(most), Outcome::Received(Ok(data))) => data.len() >= *most,
            _ => false,
        }
    }

    /// What a send has left that came back short.
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

/// How often a system call tried at once found nothing: then the next ones are left to the ring.
#[derive(Default, Clone, Copy)]
struct Hint {
    /// Operations to go before the next try.
    skip: u8,
    /// What `skip` becomes after a vain try.
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

    /// An operation came back. Where it brought all that was asked for, there may be more.
    fn came(&mut self, is_full: bool) {
        self.skip = if is_full {
            0
        } else {
            self.skip.saturating_sub(1)
        };
    }
}

#[derive(Default)]
struct OpQueue {
    current: Option<Current>,
    waiting: VecDeque<Waiting>,
}

impl OpQueue {
    fn keys(&self) -> impl Iterator<Item = Key> {
        let current = self.current.iter().map(|current| current.key);
        current.chain(self.waiting.iter().map(|waiting| waiting.key))
    }
}

#[derive(Default)]
struct Descriptor {
    /// By direction.
    lines: [OpQueue; 2],
    hint: Hint,
    /// Calls answered without waiting in turn `turn`.
    turn: u64,
    answered: u32,
}

impl Descriptor {
    fn is_busy(&self) -> bool {
        self.lines.iter().any(|queue| queue.current.is_some())
    }
}

pub struct OpQueues {
    /// Those in use, by number.
    descriptors: FxHashMap<RawFd, Descriptor>,
    /// The turn in which descriptors that are out of use are forgotten; `u64::MAX` while there are few.
    next_sweep: u64,
    starting: VecDeque<Start>,
    /// Operations at the head of a queue, or waiting in one.
    len: usize,
    turn: u64,
    next_look: Option<Instant>,
    /// The host's callbacks ran since the last look.
    look_is_due: bool,
}

impl Default for OpQueues {
    fn default() -> Self {
        Self {
            descriptors: FxHashMap::default(),
            next_sweep: u64::MAX,
            starting: VecDeque::new(),
            len: 0,
            turn: 0,
            next_look: None,
            look_is_due: false,
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

    /// Descriptors that have room here.
    pub fn descriptors(&self) -> usize {
        self.descriptors.len()
    }

    /// Forgets descriptors that were not used for a while. Most of them are closed, of which nothing is known here.
    /// One that is used again has only lost how often its receives found nothing.
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
        &mut self.descriptor(queue_id.fd).lines[queue_id.direction as usize]
    }

    // Tries --------------------------------------------------------------------------------------

    /// True if a system call may be tried at once, and counts it: nothing of that direction may be in
    /// flight, a try must be likely to succeed, and a task whose calls never wait must let others run.
    #[inline]
    pub fn may_try(&mut self, queue_id: OpQueueId) -> bool {
        let turn = self.turn;
        let descriptor = self.descriptor(queue_id.fd);
        if descriptor.lines[queue_id.direction as usize]
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

    /// True if an accept may be tried at once, and counts it. One a turn: then a task that accepts in a loop
    /// handles each connection before it accepts the next, and other processes accept the rest.
    pub fn may_accept(&mut self, queue_id: OpQueueId) -> bool {
        let turn = self.turn;
        let descriptor = self.descriptor(queue_id.fd);
        let has_accepted = descriptor.turn == turn && descriptor.answered > 0;
        !has_accepted && self.may_try(queue_id)
    }

    /// What a try to read from `fd` found.
    #[inline]
    pub fn tried(&mut self, fd: RawFd, something: bool) {
        self.descriptor(fd).hint.tried(something);
    }

    // Operations ---------------------------------------------------------------------------------

    /// The operation at the head of this queue, and its socket.
    #[inline]
    pub fn current(&self, queue_id: OpQueueId) -> Option<(Key, usize)> {
        let current = self.holder(queue_id)?;
        Some((current.key, current.socket))
    }

    fn holder(&self, queue_id: OpQueueId) -> Option<&Current> {
        let descriptor = self.descriptors.get(&queue_id.fd)?;
        descriptor.lines[queue_id.direction as usize]
            .current
            .as_ref()
    }

    /// A new operation gets in line, and is up if nobody else is. `socket` tells sockets apart that have
    /// the same number one after the other.
    #[inline]
    pub fn join(&mut self, key: Key, fd: RawFd, socket: usize, op: SocketOp) {
        self.len += 1;
        let queue_id = OpQueueId::new(fd, op.direction());
        let queue = self.queue(queue_id);
        if queue.current.is_some() {
            return queue.waiting.push_back(Waiting { key, socket, op });
        }
        queue.current = Some(Current::new(key, socket, &op));
        self.starting.push_back(Start { key, queue_id, op });
    }

    /// What is to be started in this turn, one after the other. The host answers each with an operation
    /// in flight or [`leave`](Self::leave).
    #[inline]
    pub fn take_start(&mut self) -> Option<Start> {
        self.starting.pop_front()
    }

    /// The receive or the accept that an operation whose completion says `outcome` has waited for. The host
    /// makes it, if the descriptor still is the socket's.
    pub fn attempt_of(&self, queue_id: OpQueueId, key: Key, outcome: &Outcome) -> Option<Attempt> {
        let current = self.holder(queue_id).filter(|current| current.key == key)?;
        match (&current.asked, outcome) {
            (Asked::Attempt(attempt), Outcome::Done(Ok(_))) => Some(*attempt),
            _ => None,
        }
    }

    /// An attempt found nothing, for somebody else was faster: it is made again after another wait, the
    /// operation `key`, which keeps the head of the queue.
    pub fn try_again(&mut self, queue_id: OpQueueId, key: Key, attempt: Attempt) {
        if let Some(current) = &mut self.queue(queue_id).current {
            let op = attempt.into_op();
            *current = Current::new(key, current.socket, &op);
            self.starting.push_back(Start { key, queue_id, op });
        }
    }

    /// What a send has left that came back short. The host may let it [`go_on`](Self::go_on).
    pub fn rest_of(&self, queue_id: OpQueueId, key: Key, outcome: &Outcome) -> Option<Bytes> {
        let current = self.holder(queue_id)?;
        (current.key == key).then(|| current.rest(outcome))?
    }

    /// The rest of a short send is an operation of its own, `key`, that keeps the head of the queue.
    pub fn go_on(&mut self, queue_id: OpQueueId, key: Key, rest: Bytes) {
        if let Some(current) = &mut self.queue(queue_id).current {
            let op = SocketOp::Send(rest);
            *current = Current::new(key, current.socket, &op);
            self.starting.push_back(Start { key, queue_id, op });
        }
    }

    /// An operation has ended. The next one that `is_wanted` is up.
    pub fn land(
        &mut self,
        queue_id: OpQueueId,
        key: Key,
        outcome: &Outcome,
        is_wanted: impl Fn(Key) -> bool,
    ) {
        if queue_id.direction == Direction::Read
            && let Some(descriptor) = self.descriptors.get_mut(&queue_id.fd)
        {
            let current = &descriptor.lines[Direction::Read as usize].current;
            let is_full = current.as_ref().is_some_and(|at| at.is_full(outcome));
            descriptor.hint.came(is_full);
        }
        self.leave(queue_id, key, is_wanted);
    }

    /// An operation leaves the head of its queue, if it was there: the next one that `is_wanted` is up. One that stands in
    /// line needs not come here: it is passed over when it would be up and is not wanted any more.
    pub fn leave(&mut self, queue_id: OpQueueId, key: Key, is_wanted: impl Fn(Key) -> bool) {
        let Some(descriptor) = self.descriptors.get_mut(&queue_id.fd) else {
            return;
        };
        let queue = &mut descriptor.lines[queue_id.direction as usize];
        if queue.current.as_ref().is_none_or(|at| at.key != key) {
            return;
        }
        queue.current = None;
        self.len -= 1;
        while let Some(Waiting { key, socket, op }) = queue.waiting.pop_front() {
            if is_wanted(key) {
                queue.current = Some(Current::new(key, socket, &op));
                return self.starting.push_back(Start { key, queue_id, op });
            }
            self.len -= 1;
        }
    }

    /// Removes operations that stand in line and are not wanted any more: a program may give up one wait after the
    /// other on a socket whose first operation never ends. The host calls this with each look, so that no key here
    /// outlives its operation for long.
    pub fn drop_unwanted(&mut self, is_wanted: impl Fn(Key) -> bool) {
        for queue in self.descriptors.values_mut().flat_map(|at| &mut at.lines) {
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

    // Turns and looks ----------------------------------------------------------------------------

    /// True if a turn has nothing to start or to look at; it is counted as one.
    #[inline]
    pub fn skip_turn(&mut self) -> bool {
        let is_idle = self.len == 0 && self.starting.is_empty() && self.turn < self.next_sweep;
        self.turn += u64::from(is_idle);
        is_idle
    }

    /// The host's callbacks have run. The operations whose sockets it is to look at now: it lets one whose
    /// socket is closed [`leave`](Self::leave), and cancels it.
    #[inline]
    pub fn begin_turn(&mut self, now: impl FnOnce() -> Instant) -> Vec<(Key, OpQueueId)> {
        self.turn += 1;
        if self.turn >= self.next_sweep {
            self.sweep();
        }
        if self.len == 0 {
            self.look_is_due = false;
            return Vec::new();
        }
        let now = now();
        let next = *self.next_look.get_or_insert(now + LOOK_INTERVAL);
        self.look_is_due = now < next;
        if self.look_is_due {
            return Vec::new();
        }
        self.next_look = Some(now + LOOK_INTERVAL);
        self.all()
    }

    fn all(&self) -> Vec<(Key, OpQueueId)> {
        let mut found = Vec::with_capacity(self.len);
        for (&fd, descriptor) in &self.descriptors {
            for direction in [Direction::Read, Direction::Write] {
                let queue_id = OpQueueId::new(fd, direction);
                let keys = descriptor.lines[direction as usize].keys();
                found.extend(keys.map(|key| (key, queue_id)));
            }
        }
        found
    }

    /// When a host that sleeps has to be awake for a look.
    #[inline]
    pub fn next_look(&self) -> Option<Instant> {
        self.next_look.filter(|_| self.look_is_due)
    }

    /// The host runs again after a rest: what it took back from the kernel will be armed by number, and a
    /// number may have changed its owner since.
    pub fn look_now(&mut self, now: Instant) {
        if self.len > 0 {
            self.next_look = Some(now);
        }
    }
}

/// A task that is answered without waiting this often in a turn waits once, so that the others run.
const ANSWERS_PER_TURN: u32 = 16;
/// The longest pause between vain tries, in operations.
const BACKOFF_MAX: u8 = 31;
/// So many descriptors are kept without a look at their use, and others for so many turns after it.
const DESCRIPTORS_KEPT: usize = 256;
const TURNS_KEPT: u64 = 512;
/// How long a closed socket may stay open in the kernel.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
