//! Wakes a sleeping driver from another thread.
//!
//! An atomic word shows whether the driver sleeps, so waking a busy driver costs one swap and no system call. The
//! driver and the waker change the word by single atomic operations, so no wake is lost:
//!
//! - Before it blocks, the driver changes AWAKE to ASLEEP. If it finds NOTIFIED, it does not block.
//! - A waker stores NOTIFIED. If it replaces ASLEEP, it writes to the eventfd, which ends the driver's sleep.
//! - After it has blocked, the driver stores AWAKE.
//!
//! The eventfd is never read. Both backends wait for it edge-triggered, and every write is an edge. Its 64-bit
//! counter does not fill up in the lifetime of a machine.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, io};

/// Wakes its driver. It is cheap to clone, and may be used on any thread and after the end of the driver.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<SharedWaker>,
}

struct SharedWaker {
    state: AtomicU32,
    eventfd: OwnedFd,
}

impl Waker {
    /// Makes the current or the next blocking [`enter`](crate::Driver::enter) return at once. Several wakes may result
    /// in one return. This never blocks.
    pub fn wake(&self) {
        if self.notify() {
            self.write_eventfd();
        }
    }

    /// Marks the wake. True if the driver sleeps: then the caller must call [`write_eventfd`](Self::write_eventfd).
    #[must_use]
    pub fn notify(&self) -> bool {
        // AcqRel: earlier writes of this thread (a queued callback) become visible to the driver with its own swap, and
        // the driver's ASLEEP becomes visible to this thread.
        self.shared.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP
    }

    /// Ends the driver's sleep with a system call.
    pub fn write_eventfd(&self) {
        let one: u64 = 1;
        // SAFETY: eight readable bytes; the descriptor lives as long as `self`. The result is not checked: EAGAIN means
        // that the counter is full, and then the eventfd is readable already.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker {
            shared: Arc::new(SharedWaker {
                state: AtomicU32::new(AWAKE),
                eventfd: eventfd()?,
            }),
        })
    }

    /// Replaces the eventfd that a forked child shares with its parent by a new one with the same number. From then on
    /// all clones of this waker wake the child's driver.
    pub(crate) fn leave_to_parent(&self) -> io::Result<()> {
        let own = eventfd()?;
        // SAFETY: both descriptors are open. This object keeps owning the second number, which now has another file.
        if unsafe { libc::dup3(own.as_raw_fd(), self.fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // ASLEEP is about the parent's thread. NOTIFIED stays, because that wake may be for this process.
        let state = &self.shared.state;
        let _ = state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.shared.eventfd.as_raw_fd()
    }

    /// Called before the driver blocks. False if a wake is pending: then the driver must not block.
    pub(crate) fn begin_sleep(&self) -> bool {
        let change =
            self.shared
                .state
                .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        change.is_ok()
    }

    /// True if a wake is pending.
    pub(crate) fn is_notified(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) == NOTIFIED
    }

    /// Called after the driver has blocked. True if a wake was pending, which this call consumes.
    pub(crate) fn end_sleep(&self) -> bool {
        self.shared.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Makes a wake pending again that [`end_sleep`](Self::end_sleep) has consumed and the driver cannot report.
    pub(crate) fn restore_wake(&self) {
        self.shared.state.store(NOTIFIED, Ordering::Release);
    }
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an OwnedFd.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker")
            .field("eventfd", &self.fd())
            .finish()
    }
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const NOTIFIED: u32 = 2;
