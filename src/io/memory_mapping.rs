//! Page-aligned anonymous memory for buffer rings and receive buffers.

use std::{io, ptr};

/// A private anonymous mapping. It is zeroed at first, and unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    length: usize,
}

impl Mapping {
    /// Maps at least `length` bytes; `length` must not be zero.
    pub(crate) fn new(length: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping {
            base: base.cast(),
            length,
        })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Makes the kernel zero this memory in forked children (MADV_WIPEONFORK).
    pub(crate) fn wipe_on_fork(&self) -> io::Result<()> {
        // SAFETY: exactly the range of this mapping.
        let result = unsafe { libc::madvise(self.base.cast(), self.length, libc::MADV_WIPEONFORK) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Leaks the memory and returns its address: for memory that the kernel may still use.
    pub(crate) fn leak(self) -> *mut u8 {
        let base = self.base;
        std::mem::forget(self);
        base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this object owns the range. The owner of this object drops it only when the kernel does not use the
        // memory any more (see `BufferPool`).
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}
