//! A ring of provided buffers: memory that the kernel takes for a receive when its data arrives.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::memory_mapping::Mapping;

/// This process's view of a ring with `entries` buffers. The owner registers it with the kernel.
pub(crate) struct BufferRing {
    memory: Mapping,
    mask: u16,
    tail: Cell<u16>,
}

impl BufferRing {
    /// Makes an empty ring. `entries` must be a power of two up to 32,768.
    pub(crate) fn new(entries: u16) -> io::Result<BufferRing> {
        if !entries.is_power_of_two() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let memory = Mapping::new(entries as usize * size_of::<BufRingEntry>())?;
        Ok(BufferRing {
            memory,
            mask: entries - 1,
            tail: Cell::new(0),
        })
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.base() as u64
    }

    pub(crate) fn entries(&self) -> u16 {
        self.mask + 1
    }

    /// Passes buffer `id` to the kernel. At most `entries` buffers exist, so the ring never fills.
    #[inline]
    pub(crate) fn publish(&self, id: u16, address: *mut u8, length: u32) {
        let tail = self.tail.get();
        let base = self.memory.base().cast::<BufRingEntry>();
        // SAFETY: the masked index is inside the mapping, and the kernel does not read this entry before the tail,
        // which is stored below, includes it. The fields are set one by one, because the last two bytes of entry 0
        // are the tail.
        unsafe {
            let entry = &mut *base.add(usize::from(tail & self.mask));
            entry.set_addr(address as u64);
            entry.set_len(length);
            entry.set_bid(id);
        }
        self.tail.set(tail.wrapping_add(1));
        // SAFETY: the tail field lies inside entry 0 of the mapping, is two-byte aligned, and is
        // shared with the kernel only through atomic accesses.
        unsafe {
            let shared = BufRingEntry::tail(base).cast_mut();
            AtomicU16::from_ptr(shared).store(self.tail.get(), Ordering::Release);
        }
    }

    /// Leaks the ring's memory, because the kernel may still read it.
    pub(crate) fn leak(self) {
        let _ = self.memory.leak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring's tail counts published buffers modulo 2^16.
    #[test]
    fn buffers_are_published_when_the_tail_wraps() {
        let ring = BufferRing::new(8).unwrap();
        for number in 0..=u32::from(u16::MAX) + 3 {
            ring.publish((number % 8) as u16, std::ptr::dangling_mut(), number);
        }
        assert_eq!(ring.tail.get(), 3);
        let base = ring.memory.base().cast::<BufRingEntry>();
        let lengths = [0, 1, 2, 3].map(|place| {
            // SAFETY: the ring has eight entries, which `publish` has filled, and it is not registered with the kernel.
            let entry = unsafe { &*base.add(place) };
            (entry.bid(), entry.len())
        });
        assert_eq!(
            lengths,
            [(0, 65_536), (1, 65_537), (2, 65_538), (3, 65_531)]
        );
    }
}
