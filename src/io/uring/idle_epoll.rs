//! An epoll set for idle connections, so that they cost nothing when a program runs its loop again and again
//! (`run_until_complete` in a loop). An operation that has no completion during a whole run waits in this set
//! afterwards.
//!
//! Without the set each run would submit every operation to the ring and cancel it at the end, which costs 3 to 7 µs
//! for each idle connection. An epoll set belongs to no thread, so its members stay there between runs, and the ring
//! waits for the whole set with one poll. If a member has an event, its operation is armed in the ring, where it
//! stays until it has no completion during a whole run again. A connection in use never enters the set.
//!
//! An epoll set refers to files and not to numbers. So a reused descriptor number causes no event, and the set does
//! not keep a file open that its owner closes.
//!
//! Not here: the choice of the operations (`suspension`).
//!
//! Measured: a run with one echo takes 50 µs, beside 100 and beside 1,000 idle connections. If each run armed all
//! operations, it would take 320 and 7,500 µs. A run without a sleep takes 10 µs instead of 30 and 280. Programs that
//! run their loop repeatedly gain from this: synchronous interfaces of asynchronous clients (telethon.sync), test
//! suites whose loop holds a database pool for the whole session.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::operation_table::OpId;

#[derive(Default)]
pub(super) struct IdleEpoll {
    /// The epoll set. `None` until the first operation moves to it.
    set: Option<OwnedFd>,
    /// The latest member for each descriptor. An earlier member with this number belongs to a file that has lost the
    /// number. It can have one more event, for which no operation is found.
    members: HashMap<RawFd, OpId>,
    /// True while the ring has a poll of the set.
    pub(super) is_watched: bool,
}

impl IdleEpoll {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The descriptor of the epoll set, if operations wait in the set and the ring does not poll it yet.
    pub(super) fn unwatched(&self) -> Option<RawFd> {
        if self.members.is_empty() || self.is_watched {
            return None;
        }
        self.set.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Adds an operation that waits for `events`. False if it cannot be added: a member with this file exists, the file
    /// does not support readiness, or the kernel's limit of registrations is reached.
    pub(super) fn add(&mut self, fd: RawFd, events: u32, op: OpId, syscalls: &mut u64) -> bool {
        if self.set.is_none() {
            *syscalls += 1;
            self.set = create().ok();
        }
        // One-shot: an operation whose descriptor was closed cannot be removed from the set. It must not cause an event
        // in every loop iteration.
        let events = events | libc::EPOLLONESHOT as u32;
        let added = self.control(libc::EPOLL_CTL_ADD, fd, events, op, syscalls);
        if added {
            self.members.insert(fd, op);
        }
        added
    }

    /// Removes an operation that has ended or is armed in the ring. False if it is not a member, or if its descriptor
    /// has another file now.
    pub(super) fn remove(&mut self, fd: RawFd, op: OpId, syscalls: &mut u64) -> bool {
        match self.members.entry(fd) {
            MapEntry::Occupied(member) if *member.get() == op => member.remove(),
            _ => return false,
        };
        self.control(libc::EPOLL_CTL_DEL, fd, 0, op, syscalls)
    }

    /// Returns the operations in the set that have events, each with its events in the format of poll(2). Some of these
    /// operations may have ended. All of them stay in the set.
    pub(super) fn take_ready(&mut self, syscalls: &mut u64) -> Vec<(OpId, u32)> {
        let mut ready = Vec::new();
        let Some(set) = &self.set else {
            return ready;
        };
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        loop {
            *syscalls += 1;
            let room = events.len() as libc::c_int;
            // SAFETY: a live array of `room` entries; no time-out to wait for.
            let count = unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), room, 0) };
            let count = usize::try_from(count).unwrap_or(0);
            ready.extend(
                events[..count]
                    .iter()
                    .map(|event| (OpId::from_u64(event.u64), event.events)),
            );
            if count < events.len() {
                return ready;
            }
        }
    }

    /// Forgets the set and its members: at the end of the driver, and in a forked child, which shares the kernel's
    /// set with its parent.
    pub(super) fn clear(&mut self) {
        *self = IdleEpoll::default();
    }

    fn control(&self, what: i32, fd: RawFd, events: u32, op: OpId, syscalls: &mut u64) -> bool {
        let Some(set) = &self.set else {
            return false;
        };
        *syscalls += 1;
        let mut event = libc::epoll_event {
            events,
            u64: op.as_u64(),
        };
        // SAFETY: a live event structure.
        unsafe { libc::epoll_ctl(set.as_raw_fd(), what, fd, &raw mut event) == 0 }
    }
}

fn create() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an OwnedFd.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The maximum number of events that one wait returns. The wait is repeated while it returns as many.
const EVENTS_MAX: usize = 128;
