//! The submission queue, and the backlog of entries that it has no room for or that must not be submitted yet.

use io_uring::IoUring;
use io_uring::squeue::{Entry, Flags};

use super::Uring;
use super::thread_binding::thread_number;

impl Uring {
    /// True if entries must wait in the backlog: the calling thread does not own the ring, or the driver is
    /// suspended, so that another thread may take it over.
    fn must_wait(&self) -> bool {
        self.is_suspended || self.owner != 0 && !self.is_owner()
    }

    /// Queues an entry. A full queue is submitted first.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry, syscalls: &mut u64) {
        if !self.backlog.is_empty() || self.must_wait() || !self.make_room(1, syscalls) {
            return self.backlog.push_back(entry);
        }
        // SAFETY: memory that the entry points to belongs to the operation's slot or is `self.receive_header`. Both
        // outlive the operation. The entries of closes, cancels and polls have no pointers.
        unsafe { self.ring.submission().push(&entry) }.expect("room was made");
    }

    /// Queues two linked entries, which must be submitted together.
    pub(super) fn push_pair(&mut self, first: Entry, second: Entry, syscalls: &mut u64) {
        if !self.backlog.is_empty() || self.must_wait() || !self.make_room(2, syscalls) {
            return self.backlog.extend([first, second]);
        }
        // SAFETY: as in `push`.
        unsafe { self.ring.submission().push_multiple(&[first, second]) }.expect("room was made");
    }

    /// True if the submission queue has room for `count` entries, after submitting it if necessary.
    #[inline]
    fn make_room(&mut self, count: usize, syscalls: &mut u64) -> bool {
        let room = |ring: &mut IoUring| {
            let queue = ring.submission();
            queue.capacity() - queue.len() >= count
        };
        if room(&mut self.ring) {
            return true;
        }
        self.submit(syscalls);
        // The queue is still full if the submission has failed (EAGAIN, EBUSY).
        room(&mut self.ring)
    }

    /// Submits queued entries, unless entries must wait in the backlog.
    pub(crate) fn submit_now(&mut self, syscalls: &mut u64) {
        if self.backlog.is_empty() && !self.must_wait() {
            self.submit(syscalls);
        }
    }

    fn submit(&mut self, syscalls: &mut u64) {
        // Only the thread that has enabled the ring may submit. On other threads, and before the ring is enabled, the
        // queue keeps its entries, and later entries are added to the backlog.
        if self.owner != thread_number() {
            return;
        }
        *syscalls += 1;
        let queued = self.ring.submission().len() as u32;
        // Without GETEVENTS this call produces no completions, so that they appear only in `enter`, between loop
        // iterations. SAFETY: no argument structure is passed. The operation table keeps the memory that the entries
        // point to.
        unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                queued,
                0,
                self.enter_flags,
                std::ptr::null::<u8>(),
                0,
            )
        };
    }

    pub(super) fn submit_backlog(&mut self, syscalls: &mut u64) {
        while let Some(entry) = self.backlog.front() {
            let pair = entry_is_linked(entry);
            if !self.make_room(if pair { 2 } else { 1 }, syscalls) {
                return;
            }
            for _ in 0..if pair { 2 } else { 1 } {
                if let Some(entry) = self.backlog.pop_front() {
                    // SAFETY: as in `push`.
                    unsafe { self.ring.submission().push(&entry) }.expect("room was made");
                }
            }
        }
    }
}

/// True if the entry is linked to the next one. The io-uring crate has no getter for an entry's flags, so this reads
/// them by the kernel's layout.
fn entry_is_linked(entry: &Entry) -> bool {
    // SAFETY: an entry is 64 initialised bytes; byte 1 is `flags` (struct io_uring_sqe).
    let flags = unsafe { std::ptr::from_ref(entry).cast::<u8>().add(1).read() };
    flags & Flags::IO_HARDLINK.bits() != 0
}
