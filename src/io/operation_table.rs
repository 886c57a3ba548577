//! The operation slab: operations in flight by descriptor, with the memory that the kernel may access.
//!
//! Invariants, kept here and relied upon by every `unsafe` block of the backends:
//!
//! - A slot, and with it its payload, lives until the operation's **last** completion. Cancelling or discarding
//!   only marks it.
//! - Memory that the kernel points at never moves: payloads are heap memory (`Bytes`, `Vec`, `Box`) whose address
//!   does not depend on the slot's position.
//! - An identifier names one use of a slot: the generation is incremented when the slot is freed, so a stale identifier
//!   finds nothing.
//! - Operations of one descriptor form a list. `close` takes that list over: the kernel may reuse the descriptor's
//!   number before the last old completion is processed, so old operations belong to the close from then on, no
//!   longer to the number.
//!
//! Not here: the execution of an operation (the backends).

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use socket2::SockAddr;

use crate::file_operations::FileRequest;
use crate::outgoing_message::{GatherPayload, MessagePayload};
use crate::stable_vec::StableVec;

/// The caller's own routing value, returned in every completion of the operation.
pub type Token = u64;

/// Identifies an operation: `kind:8 | generation:24 | index:32`.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct OpId(NonZeroU64);

impl OpId {
    /// An identifier that no operation ever has.
    pub const NONE: OpId = OpId(NonZeroU64::new(u64::MAX >> 1).unwrap());

    /// No identifier has the highest bit set: there are fewer kinds than that.
    pub(crate) const FREE_BIT: u32 = 63;

    /// The raw value, for logs and for storing.
    pub fn as_u64(self) -> u64 {
        self.0.get()
    }

    /// Converts a raw value, which may be anything that the kernel returns: no kind is 0.
    pub(crate) fn from_u64(raw: u64) -> OpId {
        NonZeroU64::new(raw).map_or(OpId::NONE, OpId)
    }

    fn new(kind: OpKind, generation: u32, index: u32) -> OpId {
        OpId::from_u64((kind as u64) << 56 | u64::from(generation) << 32 | u64::from(index))
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.as_u64() as u32
    }

    #[inline]
    fn generation(self) -> u32 {
        (self.as_u64() >> 32) as u32 & GENERATION_MASK
    }
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[repr(u8)]
pub(crate) enum OpKind {
    Accept = 1,
    Recv,
    RecvMsg,
    Send,
    SendVectored,
    SendMsg,
    Connect,
    Poll,
    Close,
    File,
    RecvOnce,
}

/// The memory and other resources of one operation.
pub(crate) enum Payload {
    None,
    /// `send`.
    Bytes(Bytes),
    /// `send_vectored`.
    Gather(Box<GatherPayload>),
    /// `send_msg`.
    Message(Box<MessagePayload>),
    /// `connect`.
    Address(Box<SockAddr>),
    /// `recv_once`: the limit in bytes.
    Most(u32),
    /// `poll`.
    Events(u32),
    /// `poll_again`.
    EventsAgain(u32),
    /// `poll_weak`.
    EventsWeak(u32),
    /// `close`, until the kernel has taken the descriptor.
    Descriptor(OwnedFd),
    /// `file`.
    File(Box<FileRequest>),
}

/// An operation's state in the backends, besides its payload.
pub(crate) struct Slot {
    generation: u32,
    pub(crate) kind: OpKind,
    /// True if occupied; a free slot links to the next free one through `next`.
    live: bool,
    /// Never report: release the resources of each result.
    pub(crate) discarded: bool,
    /// `cancel` was called: no re-arm, no retry.
    pub(crate) cancelled: bool,
    /// The backend's state. Changed only by `OpTable::set_phase`, which counts.
    pub(crate) phase: OpPhase,
    pub(crate) fd: RawFd,
    pub(crate) token: Token,
    pub(crate) payload: Payload,
    /// Bytes already sent (epoll).
    pub(crate) progress: u32,
    /// No completion since the current run of the loop began (uring).
    pub(crate) is_silent: bool,
    /// The close operation that waits for this operation.
    owner: u32,
    /// For a close operation: the number of operations that it still waits for.
    pub(crate) waiting_for: u32,
    /// For a close operation: its own result once available.
    pub(crate) close_result: Option<i32>,
    next: u32,
    previous: u32,
}

// There is one slot for each idle connection.
const _: () = assert!(size_of::<Slot>() <= 104);

/// The state of an operation.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum OpPhase {
    /// Queued or in the kernel.
    Active,
    /// A readiness wait replaces the operation, which returned EAGAIN.
    Polling,
    /// Waits for a receive buffer.
    Starved,
    /// Taken back from the kernel while the driver is suspended.
    Suspended,
}

impl OpPhase {
    /// True if the operation is not in the kernel.
    fn is_idle(self) -> bool {
        matches!(self, OpPhase::Starved | OpPhase::Suspended)
    }
}

/// All operations of a driver.
pub(crate) struct OpTable {
    slots: StableVec<Slot>,
    free: u32,
    live: usize,
    /// The number of live operations that are not in the kernel.
    idle: usize,
    /// The number of readiness waits in the kernel.
    polls: usize,
    max: usize,
    /// Head of the list of live operations, by descriptor.
    heads: Vec<u32>,
}

impl OpTable {
    pub(crate) fn new(max: usize) -> OpTable {
        OpTable {
            slots: StableVec::default(),
            free: NIL,
            live: 0,
            idle: 0,
            polls: 0,
            max: max.min(NIL as usize),
            heads: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// The number of operations that are queued or in the kernel.
    pub(crate) fn in_kernel(&self) -> usize {
        self.live - self.idle
    }

    /// The number of them without a resource: no memory, no bytes, no connection.
    pub(crate) fn polls_in_kernel(&self) -> usize {
        self.polls
    }

    pub(crate) fn set_phase(&mut self, index: u32, phase: OpPhase) {
        let slot = &mut self.slots[index as usize];
        let was = std::mem::replace(&mut slot.phase, phase);
        let (before, after) = (usize::from(was.is_idle()), usize::from(phase.is_idle()));
        self.idle = self.idle + after - before;
        if slot.kind == OpKind::Poll {
            self.polls = self.polls + before - after;
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let slots = self.slots.capacity() * size_of::<Slot>();
        (slots + self.heads.capacity() * size_of::<u32>()) as u64
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn insert(
        &mut self,
        kind: OpKind,
        fd: RawFd,
        token: Token,
        payload: Payload,
    ) -> Result<OpId, Payload> {
        // A close frees more than it takes, and rejecting it would leak the descriptor.
        if self.live >= self.max && kind != OpKind::Close {
            return Err(payload);
        }
        let index = self.allocate();
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation;
        *slot = Slot {
            generation,
            live: true,
            fd,
            token,
            payload,
            ..Slot::vacant(kind)
        };
        self.live += 1;
        self.polls += usize::from(kind == OpKind::Poll);
        self.link(index);
        Ok(OpId::new(kind, generation, index))
    }

    /// The slot of a live operation; `None` for a stale or foreign identifier.
    #[inline]
    pub(crate) fn get(&mut self, id: OpId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        (slot.live && slot.generation == id.generation() && id.as_u64() >> 56 == slot.kind as u64)
            .then_some(slot)
    }

    /// The oldest starved receive that is live and uncancelled; cancelled ones were finished.
    pub(crate) fn next_starved(&mut self, queue: &mut VecDeque<OpId>) -> Option<OpId> {
        while let Some(op) = queue.pop_front() {
            if self
                .get(op)
                .is_some_and(|slot| slot.phase == OpPhase::Starved)
            {
                return Some(op);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    pub(crate) fn id_at(&self, index: u32) -> OpId {
        let slot = &self.slots[index as usize];
        OpId::new(slot.kind, slot.generation, index)
    }

    /// Frees a slot after its last completion. Second value: the close operation that waited only for this one.
    pub(crate) fn remove(&mut self, index: u32) -> (Payload, Option<u32>) {
        let owner = self.slots[index as usize].owner;
        if owner == NIL {
            self.unlink(index);
        }
        let free = self.free;
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.live);
        let payload = std::mem::replace(&mut slot.payload, Payload::None);
        slot.live = false;
        if slot.phase.is_idle() {
            self.idle -= 1;
        } else if slot.kind == OpKind::Poll {
            self.polls -= 1;
        }
        // The generation may wrap: an owner drops an identifier with the last completion, so none outlives 2^24
        // others of its slot, and the kernel has no identifier of a free slot.
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.next = free;
        self.free = index;
        self.live -= 1;
        if owner == NIL {
            return (payload, None);
        }
        let close = &mut self.slots[owner as usize];
        close.waiting_for -= 1;
        (payload, (close.waiting_for == 0).then_some(owner))
    }

    /// The live operations of `fd`, oldest last. `out` is the caller's scratch vector.
    pub(crate) fn on_fd(&self, fd: RawFd, out: &mut Vec<u32>) {
        out.clear();
        let mut index = self.head(fd);
        while index != NIL {
            out.push(index);
            index = self.slots[index as usize].next;
        }
    }

    pub(crate) fn is_live(&self, index: u32) -> bool {
        self.slots[index as usize].live
    }

    /// All live operations.
    pub(crate) fn indexes(&self) -> Vec<u32> {
        (0..self.slots.len() as u32)
            .filter(|&index| self.slots[index as usize].live)
            .collect()
    }

    /// Makes `close` the owner of all other operations of its descriptor, and removes the close itself from the
    /// descriptor's list.
    pub(crate) fn adopt(&mut self, close: u32) {
        let fd = self.slots[close as usize].fd;
        let mut waiting_for = 0;
        let mut index = self.head(fd);
        while index != NIL {
            let slot = &mut self.slots[index as usize];
            let next = slot.next;
            if index != close {
                slot.owner = close;
                waiting_for += 1;
            }
            slot.next = NIL;
            slot.previous = NIL;
            index = next;
        }
        self.heads[fd as usize] = NIL;
        let slot = &mut self.slots[close as usize];
        slot.waiting_for = waiting_for;
        // The slot is on no list any more; `remove` of an unlinked head must not change the list.
        slot.fd = -1;
    }

    fn allocate(&mut self) -> u32 {
        if self.free != NIL {
            let index = self.free;
            self.free = self.slots[index as usize].next;
            return index;
        }
        self.slots.push(Slot::vacant(OpKind::Poll));
        (self.slots.len() - 1) as u32
    }

    fn head(&self, fd: RawFd) -> u32 {
        usize::try_from(fd)
            .ok()
            .and_then(|fd| self.heads.get(fd))
            .copied()
            .unwrap_or(NIL)
    }

    fn link(&mut self, index: u32) {
        let Ok(fd) = usize::try_from(self.slots[index as usize].fd) else {
            return;
        };
        if fd >= self.heads.len() {
            self.heads.resize(fd + 1, NIL);
        }
        let next = std::mem::replace(&mut self.heads[fd], index);
        self.slots[index as usize].next = next;
        if next != NIL {
            self.slots[next as usize].previous = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Slot {
            fd, next, previous, ..
        } = self.slots[index as usize];
        if fd < 0 {
            return;
        }
        match previous {
            NIL => self.heads[fd as usize] = next,
            previous => self.slots[previous as usize].next = next,
        }
        if next != NIL {
            self.slots[next as usize].previous = previous;
        }
    }
}

impl Slot {
    fn vacant(kind: OpKind) -> Slot {
        Slot {
            generation: 0,
            kind,
            live: false,
            discarded: false,
            cancelled: false,
            phase: OpPhase::Active,
            fd: -1,
            token: 0,
            payload: Payload::None,
            progress: 0,
            is_silent: false,
            owner: NIL,
            waiting_for: 0,
            close_result: None,
            next: NIL,
            previous: NIL,
        }
    }
}

const NIL: u32 = u32::MAX;
const GENERATION_MASK: u32 = 0xff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_of_the_last_generation_does_not_match_the_first_one() {
        let mut table = OpTable::new(8);
        let insert = |table: &mut OpTable| {
            let id = table.insert(OpKind::Poll, 3, 0, Payload::Events(1));
            id.unwrap_or_else(|_| unreachable!("the table has room"))
        };
        let first = insert(&mut table);
        table.remove(first.index());
        table.at(first.index()).generation = GENERATION_MASK;
        let last = insert(&mut table);
        assert_eq!(last.generation(), GENERATION_MASK);
        assert!(table.get(last).is_some());
        table.remove(last.index());
        let next = insert(&mut table);
        assert_eq!((next.index(), next.generation()), (last.index(), 0));
        // The kind's bits are above the generation's and do not change.
        assert_eq!(next.as_u64() >> 56, OpKind::Poll as u64);
        assert!(table.get(last).is_none() && table.get(next).is_some());
    }
}
