//! The table of operations in flight. Each operation has a slot, which owns the memory that the kernel may access for
//! it.
//!
//! The `unsafe` blocks of the backends rely on these invariants:
//!
//! - A slot and its payload live until the operation's **last** completion. Cancelling or discarding an operation
//!   only marks its slot.
//! - Memory that the kernel has a pointer to never moves: payloads are heap memory (`Bytes`, `Vec`, `Box`), whose
//!   address does not depend on the slot.
//! - An identifier is valid for one use of a slot. Freeing the slot increments its generation, so a stale identifier
//!   finds nothing.
//! - The operations of a descriptor form a list. A close takes over that list, because the kernel may give the number
//!   to another file before the completions of the old operations are processed. From then on the old operations
//!   belong to the close and not to the number.
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

/// A value of the caller, which every completion of the operation returns: the caller finds the operation's owner by
/// it.
pub type Token = u64;

/// Identifies an operation: `kind:8 | generation:24 | index:32`.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct OpId(NonZeroU64);

impl OpId {
    /// An identifier that no operation has.
    pub const NONE: OpId = OpId(NonZeroU64::new(u64::MAX >> 1).unwrap());

    /// The highest bit of an identifier, which is never set, because there are fewer than 128 kinds.
    pub(crate) const FREE_BIT: u32 = 63;

    /// The identifier as a number, for logs and for the kernel's `user_data`.
    pub fn as_u64(self) -> u64 {
        self.0.get()
    }

    /// Converts a number. It may be any `user_data` of the kernel, including those of internal entries, whose kind is
    /// 0.
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
    /// `recv_once`: the maximum number of bytes.
    Most(u32),
    /// `poll`.
    Events(u32),
    /// `poll_again`.
    EventsAgain(u32),
    /// `poll_weak`.
    EventsWeak(u32),
    /// `close`: the descriptor, until the kernel has closed it.
    Descriptor(OwnedFd),
    /// `file`.
    File(Box<FileRequest>),
}

/// An operation in flight: its state in the backend, and its payload.
pub(crate) struct Slot {
    generation: u32,
    pub(crate) kind: OpKind,
    /// True while an operation uses the slot. The `next` of a free slot is the next free slot.
    live: bool,
    /// True if no result is reported, and the resources of each result are released instead.
    pub(crate) discarded: bool,
    /// True if the operation was cancelled: it is neither armed again nor repeated.
    pub(crate) cancelled: bool,
    /// The operation's phase. Only `OpTable::set_phase` changes it, because the table counts operations by phase.
    pub(crate) phase: OpPhase,
    pub(crate) fd: RawFd,
    pub(crate) token: Token,
    pub(crate) payload: Payload,
    /// The number of bytes that a send has sent so far. Only the epoll backend uses this field.
    pub(crate) progress: u32,
    /// True if the operation had no completion since the loop's current run began. Only the io_uring backend uses it.
    pub(crate) is_silent: bool,
    /// The slot of the close that waits for this operation; `NIL` if there is none.
    owner: u32,
    /// For a close: the number of other operations on the descriptor that have not ended.
    pub(crate) waiting_for: u32,
    /// For a close: the kernel's result, kept until the other operations on the descriptor have ended.
    pub(crate) close_result: Option<i32>,
    next: u32,
    previous: u32,
}

// Each idle connection has a slot, so the size of a slot is part of a connection's memory.
const _: () = assert!(size_of::<Slot>() <= 104);

/// The phase of an operation: where it waits at present.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum OpPhase {
    /// The operation is queued, or the kernel executes it.
    Active,
    /// The operation returned EAGAIN. In its place the backend waits until the descriptor is ready.
    Polling,
    /// The receive waits until a buffer is free.
    Starved,
    /// The operation was taken back from the kernel and is armed again later.
    Suspended,
}

impl OpPhase {
    /// True if the operation is not in the kernel.
    fn is_idle(self) -> bool {
        matches!(self, OpPhase::Starved | OpPhase::Suspended)
    }
}

/// All operations of a driver that are in flight.
pub(crate) struct OpTable {
    slots: StableVec<Slot>,
    free: u32,
    live: usize,
    /// The number of operations in flight that are not in the kernel.
    idle: usize,
    /// The number of `poll` operations in the kernel.
    polls: usize,
    max: usize,
    /// The first slot of the list of operations of each descriptor; the index is the descriptor.
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

    /// The number of `poll` operations that are queued or in the kernel. They use no memory and their results carry no
    /// resource.
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
        // A close is never rejected, because that would leak the descriptor.
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

    /// The slot of the operation in flight that `id` identifies. `None` if that operation has ended, even if its slot
    /// is used again, or if `id` is a `user_data` that belongs to no operation.
    #[inline]
    pub(crate) fn get(&mut self, id: OpId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        (slot.live && slot.generation == id.generation() && id.as_u64() >> 56 == slot.kind as u64)
            .then_some(slot)
    }

    /// Removes and returns the oldest receive in `queue` that still waits for a buffer of the ring. Receives that have
    /// ended or got a buffer since they were queued are removed as well, and skipped.
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

    /// Frees a slot after the operation's last completion. Returns the payload, and the close that now waits for no
    /// other operation, if there is one.
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
        // The generation may wrap. Owners drop an identifier with the operation's last completion, so none is older
        // than 2^24 uses of its slot; the kernel has no identifier of a free slot.
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

    /// Replaces the content of `out` by the slots of the descriptor's operations, newest first.
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

    /// The slots of all operations in flight.
    pub(crate) fn indexes(&self) -> Vec<u32> {
        (0..self.slots.len() as u32)
            .filter(|&index| self.slots[index as usize].live)
            .collect()
    }

    /// Makes the close wait for all other operations of its descriptor, and empties the descriptor's list.
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
        // The close is on no list any more. The -1 keeps the later release of this slot from changing the list of a
        // file that has got the same descriptor number meanwhile.
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
        // The bits of the kind are above those of the generation, so they do not change.
        assert_eq!(next.as_u64() >> 56, OpKind::Poll as u64);
        assert!(table.get(last).is_none() && table.get(next).is_some());
    }
}
