//! A fixed set of receive buffers. The kernel fills a buffer, the host gets its data as a [`RecvBuf`], and the buffer
//! becomes free when that is dropped.
//!
//! With io_uring the free buffers are in a ring, from which the kernel takes one when data arrives. With epoll they
//! are on a stack. The size of the pool limits the received bytes that the host has not consumed. If the host holds
//! all buffers, data stays in the sockets, and flow control stops the peers.
//!
//! With `IOU_PBUF_RING_INC` several receives fill one buffer, each behind the other. It becomes free when the kernel
//! has finished it and the last `RecvBuf` of it was dropped.
//!
//! Few buffers stay in the processor's cache. With 64 buffers of 64 KiB for streams instead of 8, an echo of 10 KiB
//! cost 6 % more CPU time with 100 connections, and 25 % more with 1,000.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::memory_mapping::Mapping;
use crate::provided_buffer_ring::BufferRing;

/// Received bytes in a buffer of the driver's pool. The host copies the bytes and drops this object soon, because a
/// driver without free buffers cannot receive. The object cannot leave the driver's thread.
pub struct RecvBuf {
    /// The pool to which the buffer returns. `None` only for the empty buffer that marks the end of a stream.
    pool: Option<Rc<BufferPool>>,
    start: NonNull<u8>,
    length: u32,
    id: u16,
    /// The number of buffers from `id` on that have bytes of this one: 1, and more after [`append`](Self::append).
    buffers: u16,
}

impl RecvBuf {
    /// Makes the empty buffer that marks the end of a stream.
    pub(crate) fn empty() -> RecvBuf {
        RecvBuf {
            pool: None,
            start: NonNull::dangling(),
            length: 0,
            id: 0,
            buffers: 0,
        }
    }

    /// True if these bytes reach the end of their buffer. Then the kernel may have continued the received data in
    /// another buffer.
    #[inline]
    pub fn ends_its_buffer(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| {
            let last = pool.address(self.id + self.buffers - 1);
            self.end() == last as usize + pool.buffer_size as usize
        })
    }

    /// Appends `next` without a copy, if these bytes end at the end of their buffer and `next` is at the beginning of
    /// the following one, as is usual. Otherwise returns `next`.
    pub fn append(&mut self, mut next: RecvBuf) -> Result<(), RecvBuf> {
        let is_one_pool = match (&self.pool, &next.pool) {
            (Some(pool), Some(other)) => Rc::ptr_eq(pool, other),
            _ => false,
        };
        let follows =
            next.id == self.id + self.buffers && next.start.as_ptr() as usize == self.end();
        if !is_one_pool || !follows {
            return Err(next);
        }
        self.length += next.length;
        self.buffers += next.buffers;
        // This object now has the references to the buffers of `next`, so `next` must not release them.
        next.pool = None;
        Ok(())
    }

    fn end(&self) -> usize {
        self.start.as_ptr() as usize + self.length as usize
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start + length` was written by the kernel inside the pool's mapping, which `pool` keeps
        // alive; while this reference is counted in each of its buffers the range is not returned to the kernel or
        // given to another receive (`BufferPool::release`). Buffers with consecutive numbers are adjacent
        // (`BufferPool::address`).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }
}

impl AsRef<[u8]> for RecvBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for RecvBuf {
    #[inline]
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.release(self.id);
            // Nearly all have one buffer.
            for id in self.id + 1..self.id + self.buffers {
                pool.release(id);
            }
        }
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBuf")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The state of one buffer.
#[derive(Copy, Clone, Default)]
struct BufferState {
    /// The number of `RecvBuf`s with bytes of this buffer.
    references: u32,
    /// Bytes that were filled since the buffer was free. With shared buffers the next receive continues there.
    filled: u32,
    /// True if receives may fill the buffer: it is in the kernel's ring, on the stack, or the epoll backend's current
    /// one.
    available: bool,
}

pub(crate) struct BufferPool {
    memory: ManuallyDrop<Mapping>,
    buffer_size: u32,
    buffers: Box<[Cell<BufferState>]>,
    ring: RefCell<Option<BufferRing>>,
    free: RefCell<Vec<u16>>,
    /// The buffer that the epoll backend fills next.
    open: Cell<Option<u16>>,
    available: Cell<u32>,
    out: Cell<u32>,
    leaked: Cell<bool>,
}

impl BufferPool {
    /// Makes `count` free buffers of `buffer_size` bytes.
    pub(crate) fn new(count: u16, buffer_size: u32) -> io::Result<Rc<BufferPool>> {
        let memory = Mapping::new(count as usize * buffer_size as usize)?;
        let pool = BufferPool {
            memory: ManuallyDrop::new(memory),
            buffer_size,
            buffers: vec![Cell::new(BufferState::default()); count as usize].into_boxed_slice(),
            ring: RefCell::new(None),
            free: RefCell::new(Vec::with_capacity(count as usize)),
            open: Cell::new(None),
            available: Cell::new(0),
            out: Cell::new(0),
            leaked: Cell::new(false),
        };
        for id in 0..count {
            pool.give_back(id);
        }
        Ok(Rc::new(pool))
    }

    pub(crate) fn buffer_size(&self) -> u32 {
        self.buffer_size
    }

    pub(crate) fn len(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// The number of buffers of which a `RecvBuf` exists.
    pub(crate) fn held(&self) -> u32 {
        self.out.get()
    }

    /// The number of buffers that receives may fill, as of the last processed completion.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        self.available.get()
    }

    /// Makes the `RecvBuf` of `length` bytes that a receive has written to buffer `id`. If `kernel_keeps` (the kernel's
    /// BUF_MORE flag), the next receive continues in this buffer.
    #[inline]
    pub(crate) fn filled(
        self: &Rc<BufferPool>,
        id: u16,
        length: u32,
        kernel_keeps: bool,
    ) -> RecvBuf {
        let cell = &self.buffers[id as usize];
        let mut buffer = cell.get();
        let offset = buffer.filled;
        assert!(
            offset + length <= self.buffer_size,
            "the kernel overran a receive buffer"
        );
        buffer.filled += length;
        if buffer.references == 0 {
            self.out.set(self.out.get() + 1);
        }
        buffer.references += 1;
        if !kernel_keeps {
            buffer.available = false;
            self.available.set(self.available.get() - 1);
        }
        cell.set(buffer);
        // SAFETY: `id` and `offset` are inside the mapping, checked by the index and the assertion; no
        // mapping is at address zero.
        let start = unsafe { NonNull::new_unchecked(self.address(id).add(offset as usize)) };
        RecvBuf {
            pool: Some(Rc::clone(self)),
            start,
            length,
            id,
            buffers: 1,
        }
    }

    /// Frees buffer `id`, which the kernel took for a receive without data.
    pub(crate) fn return_empty(&self, id: u16, kernel_keeps: bool) {
        if !kernel_keeps {
            self.take_from_available(id);
            if self.buffers[id as usize].get().references == 0 {
                self.give_back(id);
            }
        }
    }

    /// Memory for a receive of the epoll backend: the unfilled part of the current buffer, or of a new one. `None` if
    /// no buffer is free. After the receive [`received`](Self::received) must be called.
    pub(crate) fn free_space(&self) -> Option<(*mut u8, usize)> {
        let id = self.open.get().or_else(|| self.take())?;
        self.open.set(Some(id));
        let cell = &self.buffers[id as usize];
        let mut buffer = cell.get();
        if buffer.references == 0 {
            // No `RecvBuf` uses the buffer any more, so it is filled from its start again, which is still in the
            // processor's cache.
            buffer.filled = 0;
            cell.set(buffer);
        }
        // SAFETY: `filled` is never more than the buffer's size.
        let start = unsafe { self.address(id).add(buffer.filled as usize) };
        Some((start, (self.buffer_size - buffer.filled) as usize))
    }

    /// Makes the `RecvBuf` of `length` bytes that were received into [`free_space`](Self::free_space). A buffer with
    /// less than a quarter left is not filled further.
    pub(crate) fn received(self: &Rc<BufferPool>, length: u32) -> RecvBuf {
        let Some(id) = self.open.get() else {
            return RecvBuf::empty();
        };
        let rest = self.buffer_size - self.buffers[id as usize].get().filled - length;
        let keep = rest >= self.buffer_size / 4;
        if !keep {
            self.open.set(None);
        }
        self.filled(id, length, keep)
    }

    /// Takes a free buffer (epoll). The caller passes it to [`filled`](Self::filled) if it received data, and to
    /// [`put_back`](Self::put_back) otherwise.
    pub(crate) fn take(&self) -> Option<u16> {
        self.free.borrow_mut().pop()
    }

    /// Returns a buffer that was taken but not filled.
    pub(crate) fn put_back(&self, id: u16) {
        self.free.borrow_mut().push(id);
    }

    /// The first byte of buffer `id`.
    pub(crate) fn address(&self, id: u16) -> *mut u8 {
        assert!((id as usize) < self.buffers.len());
        // SAFETY: inside the mapping by the assertion and the mapping's size.
        unsafe {
            self.memory
                .base()
                .add(id as usize * self.buffer_size as usize)
        }
    }

    /// Puts all free buffers, and those that become free from now on, into `ring`. No receive that uses an earlier ring
    /// may be in flight.
    pub(crate) fn attach(&self, ring: BufferRing) {
        *self.ring.borrow_mut() = Some(ring);
        self.free.borrow_mut().clear();
        for (id, cell) in self.buffers.iter().enumerate() {
            let mut buffer = cell.get();
            if !buffer.available {
                continue;
            }
            buffer.available = false;
            cell.set(buffer);
            self.available.set(self.available.get() - 1);
            // A buffer with `RecvBuf`s becomes free when the last of them is dropped.
            if buffer.references == 0 {
                self.give_back(id as u16);
            }
        }
    }

    /// Removes the ring, which the kernel does not use any more. Buffers that become free go to the stack from now on.
    pub(crate) fn detach(&self) -> Option<BufferRing> {
        self.ring.borrow_mut().take()
    }

    /// Leaks the memory of the pool, because the kernel may still write to it.
    pub(crate) fn leak(&self) {
        self.leaked.set(true);
        if let Some(ring) = self.detach() {
            ring.leak();
        }
    }

    #[inline]
    fn release(&self, id: u16) {
        let cell = &self.buffers[id as usize];
        let mut buffer = cell.get();
        buffer.references -= 1;
        cell.set(buffer);
        if buffer.references == 0 {
            self.out.set(self.out.get() - 1);
            if !buffer.available {
                self.give_back(id);
            }
        }
    }

    fn take_from_available(&self, id: u16) {
        let cell = &self.buffers[id as usize];
        let mut buffer = cell.get();
        buffer.available = false;
        cell.set(buffer);
        self.available.set(self.available.get() - 1);
    }

    #[inline]
    fn give_back(&self, id: u16) {
        self.buffers[id as usize].set(BufferState {
            references: 0,
            filled: 0,
            available: true,
        });
        self.available.set(self.available.get() + 1);
        match &*self.ring.borrow() {
            Some(ring) => ring.publish(id, self.address(id), self.buffer_size),
            None => self.free.borrow_mut().push(id),
        }
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        if !self.leaked.get() {
            // SAFETY: dropped once, here. No `RecvBuf` exists any more, because each holds the Rc; the driver has
            // waited for every receive to complete or has called `leak`.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
