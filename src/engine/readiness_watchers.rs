//! Readiness watchers: asyncio's readers and writers, one entry for each descriptor and direction.
//!
//! A watcher is a one-shot poll. After the host has taken its event, the next flush arms it again. The callbacks of a
//! loop iteration run before that flush, so the watcher is level-triggered for them. It costs no system call of its
//! own, except if a wake-up has to be confirmed (`must_confirm`). If a host takes no events for many loop iterations,
//! each watcher has only one event queued.
//!
//! **Invariant.** Each registration has a serial number, and each event contains that of its registration. A
//! registration that has replaced another never gets an event of the earlier one, because the descriptor number may
//! belong to another file by then.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uringcore_io::{Backend, Driver, Errno, Interest, OpId, Outcome, net};

use crate::completion_token::{Owner, Route};
use crate::generational_slab::Key;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    fn sub(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_sub(sub: u8) -> Self {
        if sub == Self::Read.sub() {
            Self::Read
        } else {
            Self::Write
        }
    }

    fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::Read,
            Self::Write => Interest::Write,
        }
    }
}

struct Watcher {
    op: Option<OpId>,
    /// The serial number, unique among all registrations of all descriptors.
    serial: u64,
    /// True if a poll(2) has to confirm the wake-up before the host gets an event.
    must_confirm: bool,
}

impl Watcher {
    /// The part of the serial number that fits in a token. It wraps around, but still distinguishes registrations: at
    /// most one poll of a descriptor and direction is in flight, because a discarded poll has no completion.
    fn generation(&self) -> u16 {
        self.serial as u16
    }
}

/// The registration whose descriptor is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness {
    pub fd: RawFd,
    pub direction: Direction,
    pub serial: u64,
}

#[derive(Default)]
pub(crate) struct WatcherTable {
    watchers: FxHashMap<(RawFd, u8), Watcher>,
    to_arm: Vec<(RawFd, Direction)>,
    last_serial: u64,
    count: [usize; 2],
}

impl WatcherTable {
    /// Registers a descriptor. An earlier registration is replaced, because the host has another callback for it, and
    /// perhaps another file has its number. Returns the serial number, which is in each event of this registration.
    pub(crate) fn add(&mut self, fd: RawFd, direction: Direction, driver: &mut Driver) -> u64 {
        self.remove(fd, direction, driver);
        self.last_serial += 1;
        let watcher = Watcher {
            op: None,
            serial: self.last_serial,
            must_confirm: driver.backend() == Backend::Uring && net::wakes_for_nothing(fd),
        };
        self.watchers.insert((fd, direction.sub()), watcher);
        self.count[direction as usize] += 1;
        self.to_arm.push((fd, direction));
        self.last_serial
    }

    /// Ends a registration. True if its poll was in flight and is being cancelled; `None` if there was no
    /// registration.
    pub(crate) fn remove(
        &mut self,
        fd: RawFd,
        direction: Direction,
        driver: &mut Driver,
    ) -> Option<bool> {
        let watcher = self.watchers.remove(&(fd, direction.sub()))?;
        if let Some(op) = watcher.op {
            // The driver keeps the slot of the poll until the poll completes, and then drops that completion.
            driver.discard(op);
        }
        self.count[direction as usize] -= 1;
        Some(watcher.op.is_some())
    }

    pub(crate) fn flush(&mut self, driver: &mut Driver) {
        for (fd, direction) in self.to_arm.drain(..) {
            let Some(watcher) = self.watchers.get_mut(&(fd, direction.sub())) else {
                continue;
            };
            if watcher.op.is_none() {
                let key = Key {
                    index: fd as u32,
                    generation: watcher.generation(),
                };
                let token = Route::new(Owner::Poll, direction.sub(), key).token();
                watcher.op = Some(driver.poll(fd, direction.interest(), token));
            }
        }
    }

    /// Returns the registration whose poll has completed. `None` if the registration was removed meanwhile.
    pub(crate) fn handle_completion(
        &mut self,
        sub: u8,
        key: Key,
        outcome: &Outcome,
    ) -> Option<Readiness> {
        let fd = key.index as RawFd;
        let watcher = self.watchers.get_mut(&(fd, sub))?;
        if watcher.generation() != key.generation {
            return None;
        }
        watcher.op = None;
        let serial = watcher.serial;
        let direction = Direction::of_sub(sub);
        match outcome {
            // The host has closed the file without removing the watcher. It is removed without an event, as from an
            // epoll set, because an event would be repeated forever.
            Outcome::Done(Err(Errno(libc::EBADF))) => {
                self.watchers.remove(&(fd, sub));
                self.count[direction as usize] -= 1;
                None
            }
            // The driver had no slot for the poll, or the kernel cancelled it. The descriptor is not ready.
            Outcome::Done(Err(Errno::NO_BUFFERS | Errno::CANCELED)) => {
                self.to_arm.push((fd, direction));
                None
            }
            Outcome::Done(Ok(_))
                if watcher.must_confirm && !net::is_ready(fd, direction.interest()) =>
            {
                self.to_arm.push((fd, direction));
                None
            }
            _ => Some(Readiness {
                fd,
                direction,
                serial,
            }),
        }
    }

    /// Called when the host has taken an event. The next flush arms the watcher again, unless it was replaced.
    pub(crate) fn reported(&mut self, ready: Readiness) {
        let watcher = self.watchers.get(&(ready.fd, ready.direction.sub()));
        if watcher.is_some_and(|watcher| watcher.serial == ready.serial) {
            self.to_arm.push((ready.fd, ready.direction));
        }
    }

    pub(crate) fn needs_flush(&self) -> bool {
        !self.to_arm.is_empty()
    }

    pub(crate) fn count(&self, direction: Direction) -> usize {
        self.count[direction as usize]
    }
}

/// The commands for the readiness watchers of an [`Engine`](crate::Engine).
pub struct Watchers<'a> {
    pub(crate) watchers: &'a mut WatcherTable,
    pub(crate) driver: &'a mut Driver,
}

impl Watchers<'_> {
    /// Watches `fd`, and replaces an earlier registration. Returns the serial number that the events of this
    /// registration contain.
    pub fn add(&mut self, fd: RawFd, direction: Direction) -> u64 {
        self.watchers.add(fd, direction, self.driver)
    }

    /// Ends a registration. True if there was one. Afterwards the kernel holds no reference to the file: when the
    /// caller closes it, the peer sees the end, and the address is free. A poll in the ring would hold a reference
    /// until the ring is entered, so the ring is entered here. (An epoll set would need an `epoll_ctl`.)
    pub fn remove(&mut self, fd: RawFd, direction: Direction) -> io::Result<bool> {
        let driver = &mut *self.driver;
        let was_in_flight = self.watchers.remove(fd, direction, driver);
        let is_uring = driver.backend() == Backend::Uring;
        if was_in_flight == Some(true) && is_uring && !driver.is_suspended() {
            driver.enter(Some(Duration::ZERO))?;
        }
        Ok(was_in_flight.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use uringcore_io::DriverConfig;

    use super::*;

    /// Runs a loop iteration. Returns the serial numbers in its events.
    fn iterate(watchers: &mut WatcherTable, driver: &mut Driver) -> Vec<u64> {
        let mut done = VecDeque::new();
        watchers.flush(driver);
        driver.enter(Some(Duration::ZERO)).unwrap();
        driver.take_completions(&mut done);
        let routes = done.iter().filter_map(|completion| {
            let route = Route::parse(completion.token)?;
            watchers.handle_completion(route.sub, route.key, &completion.outcome)
        });
        routes.map(|ready| ready.serial).collect()
    }

    /// A token has 16 bits of the serial number. Here two registrations of a descriptor have the same 16 bits.
    #[test]
    fn a_registration_with_the_generation_of_an_earlier_one_gets_its_own_events_alone() {
        for backend in [Backend::Uring, Backend::Epoll] {
            let config = DriverConfig {
                backend: Some(backend),
                ..DriverConfig::default()
            };
            let mut driver = Driver::new(&config).unwrap_or_else(|error| panic!("{error}"));
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut watchers = WatcherTable::default();
            let first = watchers.add(ours.as_raw_fd(), Direction::Read, &mut driver);
            assert_eq!(iterate(&mut watchers, &mut driver), []);
            // The poll in flight completes, and its registration is replaced before the event is taken.
            theirs.write_all(b"1").unwrap();
            watchers.last_serial = first + u64::from(u16::MAX);
            let second = watchers.add(ours.as_raw_fd(), Direction::Read, &mut driver);
            assert_eq!((first as u16, first == second), (second as u16, false));
            let mut reported = Vec::new();
            for _ in 0..100 {
                reported.extend(iterate(&mut watchers, &mut driver));
            }
            assert_eq!(reported, [second], "one event, of the second registration");
        }
    }
}
