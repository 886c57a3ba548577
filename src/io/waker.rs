//! Wakes a sleeping driver from another thread.
//!
//! One atomic word avoids needless system calls: a waker writes the eventfd only if the driver is asleep or about
//! to sleep, so waking a busy loop costs one swap. The word has three values and each side changes it with one
//! atomic operation, so no wake can be lost:
//!
//! - the driver goes AWAKE → ASLEEP before it blocks; if it finds NOTIFIED it does not block;
//! - a waker swaps in NOTIFIED; if it finds ASLEEP it writes the eventfd;
//! - the driver swaps in AWAKE when it returns.
//!
//! The eventfd is never read: both backends watch it edge-triggered, every write is an edge, and its 64-bit counter
//! does not fill up in the lifetime of a machine.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, io};

/// Wakes its driver; cheap to clone, usable from any thread and after the driver has ended.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<SharedWaker>,
}

struct SharedWaker {
    state: AtomicU32,
    eventfd: OwnedFd,
}

impl Waker {
    /// Makes the current or the next blocking [`enter`](crate::Driver::enter) return at once. Never lost, never
    /// blocks; several wakes may merge into one.
    pub fn wake(&self) {
        if self.notify() {
            self.write_eventfd();
        }
    }

    /// The first half of [`wake`](Self::wake), and all of it if the driver does not sleep. True if the driver
    /// sleeps and [`write_eventfd`](Self::write_eventfd) has to follow.
    #[must_use]
    pub fn notify(&self) -> bool {
        // AcqRel: earlier writes of the waker (a queued callback) are visible to the driver after its own swap, and
        // the driver's ASLEEP is visible here.
        self.shared.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP
    }

    /// The second half: the system call.
    pub fn write_eventfd(&self) {
        let one: u64 = 1;
        // SAFETY: eight readable bytes; the descriptor lives as long as `self`. The result need not be checked:
        // EAGAIN would mean a full counter, which is a pending edge already.
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

    /// In a forked child: from now on every clone wakes this process's driver instead of the parent's, by an
    /// eventfd of its own under the same number.
    pub(crate) fn leave_to_parent(&self) -> io::Result<()> {
        let own = eventfd()?;
        // SAFETY: two open descriptors; the second one's number stays this object's, with another file.
        if unsafe { libc::dup3(own.as_raw_fd(), self.fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent's thread sleeps, not this process's. A wake in progress may be for this process.
        let state = &self.shared.state;
        let _ = state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.shared.eventfd.as_raw_fd()
    }

    /// The driver is about to block. False: a wake has arrived and it must not.
    pub(crate) fn begin_sleep(&self) -> bool {
        let change =
            self.shared
                .state
                .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        change.is_ok()
    }

    /// True if a wake has arrived that was not reported.
    pub(crate) fn is_notified(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) == NOTIFIED
    }

    /// The driver has returned. True: a wake arrived, and this call consumes it.
    pub(crate) fn end_sleep(&self) -> bool {
        self.shared.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// The wake from [`end_sleep`](Self::end_sleep) could not be reported: keeps it for later.
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
