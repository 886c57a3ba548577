//! The kernel's epoll set: its registrations, and waiting for events.
//!
//! Not here: the choice of registrations, and the handling of events.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::errno::Errno;
use crate::waker::Waker;

pub(super) struct EpollSet {
    fd: OwnedFd,
    /// Memory for the events of a wait.
    events: Vec<libc::epoll_event>,
    /// True if the kernel has `epoll_pwait2` (5.11), with time-outs in nanoseconds.
    exact_timeouts: bool,
}

/// An event of a registered descriptor.
pub(super) struct ReadyEvent {
    /// The descriptor's number at the time of the registration.
    pub(super) fd: RawFd,
    pub(super) generation: u32,
    pub(super) events: u32,
}

impl EpollSet {
    /// Makes a set that contains only the waker's eventfd.
    pub(super) fn new(waker: &Waker) -> io::Result<EpollSet> {
        Ok(EpollSet {
            fd: create(waker)?,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_ITERATION],
            exact_timeouts: true,
        })
    }

    /// Replaces the set by a new one that contains only the waker's eventfd.
    pub(super) fn replace(&mut self, waker: &Waker) -> io::Result<()> {
        self.fd = create(waker)?;
        Ok(())
    }

    pub(super) fn events_bytes(&self) -> usize {
        self.events.len() * size_of::<libc::epoll_event>()
    }

    /// Changes the events of a registration from `was` to `wanted`; 0 means that there is no registration. The call
    /// also works if the descriptor was closed, or its number reused, since the registration.
    pub(super) fn change(
        &self,
        fd: RawFd,
        was: u32,
        wanted: u32,
        generation: u32,
    ) -> Result<(), Errno> {
        let call = |operation| {
            let mut event = libc::epoll_event {
                events: wanted,
                u64: u64::from(generation) << 32 | u64::from(fd as u32),
            };
            // SAFETY: a live event structure.
            match unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) } {
                0 => Ok(()),
                _ => Err(Errno::last()),
            }
        };
        match (was, wanted) {
            (_, 0) => call(libc::EPOLL_CTL_DEL),
            (0, _) => match call(libc::EPOLL_CTL_ADD) {
                Err(Errno(libc::EEXIST)) => call(libc::EPOLL_CTL_MOD),
                result => result,
            },
            _ => match call(libc::EPOLL_CTL_MOD) {
                Err(Errno(libc::ENOENT)) => call(libc::EPOLL_CTL_ADD),
                result => result,
            },
        }
    }

    /// Waits for events and returns their number, at most `most`. Events beyond that number are returned by the next
    /// wait.
    pub(super) fn wait(&mut self, timeout: Option<Duration>, most: usize) -> io::Result<usize> {
        let most = most.clamp(1, EVENTS_PER_ITERATION) as i32;
        if self.exact_timeouts
            && let Some(timeout) = timeout.filter(|timeout| timeout.subsec_nanos() != 0)
        {
            let result = self.wait_exactly(timeout, most);
            let is_lacking = |error: &io::Error| {
                matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
            };
            if !result.as_ref().is_err_and(is_lacking) {
                return result;
            }
            self.exact_timeouts = false;
        }
        // Rounded up, because a wait that ends before the caller's timer would be repeated at once, again and again.
        let milliseconds = timeout.map_or(-1, |timeout| {
            i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let (set, events) = (self.fd.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: `events` has room for `most` entries.
        counted(unsafe { libc::epoll_wait(set, events, most, milliseconds) }.into())
    }

    fn wait_exactly(&mut self, timeout: Duration, most: i32) -> io::Result<usize> {
        let timespec = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos() as _,
        };
        // SAFETY: `events` has room for `most` entries; no signal mask.
        counted(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                most,
                &raw const timespec,
                ptr::null::<libc::sigset_t>(),
                0usize,
            )
        })
    }

    /// Returns an event of the latest wait. `None` if it is the event of the waker.
    pub(super) fn event(&self, index: usize) -> Option<ReadyEvent> {
        let libc::epoll_event { events, u64: data } = self.events[index];
        (data != WAKE).then_some(ReadyEvent {
            fd: data as u32 as RawFd,
            generation: (data >> 32) as u32,
            events,
        })
    }
}

fn counted(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn create(waker: &Waker) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an OwnedFd.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    let set = unsafe { OwnedFd::from_raw_fd(fd) };
    // Edge-triggered: every write is an edge, so the eventfd is never read.
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLET) as u32,
        u64: WAKE,
    };
    // SAFETY: a live event structure.
    let result = unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, waker.fd(), &raw mut event) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(set)
    }
}

const WAKE: u64 = u64::MAX;
const EVENTS_PER_ITERATION: usize = 256;
