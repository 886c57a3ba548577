//! Readiness watchers: what asyncio calls readers and writers, one entry a descriptor.
//!
//! A watcher is a one-shot poll that is armed again at the flush after the host was told that it fired.
//! The callbacks of a turn run before that flush, so it behaves level-triggered, at no extra system call except
//! where a wake-up has to be checked (`asks_again`); and a host that takes no events for many turns has one event
//! of it.
//!
//! **Invariant.** Every registration has a serial of its own, and an event names the registration that
//! it is about: one that was replaced or removed in the meantime is never told of its predecessor's
//! readiness, for the descriptor's number may belong to another file by then.

use std::collections::HashMap;
use std::os::fd::RawFd;

use uringcore_io::{Backend, Driver, Errno, Interest, OpId, Outcome, net};

use crate::table::Key;
use crate::token::{Owner, Route};

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

struct Watch {
    op: Option<OpId>,
    /// Tells this registration from all others, on whatever descriptor.
    serial: u64,
    /// A poll(2) confirms the wake-up before the host gets its event.
    asks_again: bool,
}

impl Watch {
    /// What the operation's token has room for. It wraps: a poll that was discarded has no completion that names it,
    /// so the one in flight is the only one of its descriptor and direction.
    fn generation(&self) -> u16 {
        self.serial as u16
    }
}

/// A registration that fired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness {
    pub fd: RawFd,
    pub direction: Direction,
    pub serial: u64,
}

#[derive(Default)]
pub(crate) struct Watchers {
    watches: HashMap<(RawFd, u8), Watch>,
    to_arm: Vec<(RawFd, Direction)>,
    last_serial: u64,
    count: [usize; 2],
}

impl Watchers {
    /// Registers, or registers anew: the host has another callback, and perhaps another file under
    /// the same number. The serial is in every event of this registration.
    pub(crate) fn add(&mut self, fd: RawFd, direction: Direction, driver: &mut Driver) -> u64 {
        self.remove(fd, direction, driver);
        self.last_serial += 1;
        let watch = Watch {
            op: None,
            serial: self.last_serial,
            asks_again: driver.backend() == Backend::Uring && net::wakes_for_nothing(fd),
        };
        self.watches.insert((fd, direction.sub()), watch);
        self.count[direction as usize] += 1;
        self.to_arm.push((fd, direction));
        self.last_serial
    }

    /// `None`: it was not registered. Else whether its poll was in flight, and is being cancelled.
    pub(crate) fn remove(
        &mut self,
        fd: RawFd,
        direction: Direction,
        driver: &mut Driver,
    ) -> Option<bool> {
        let watch = self.watches.remove(&(fd, direction.sub()))?;
        if let Some(op) = watch.op {
            // Its slot lives on in the driver, and nobody hears of its completion.
            driver.discard(op);
        }
        self.count[direction as usize] -= 1;
        Some(watch.op.is_some())
    }

    pub(crate) fn flush(&mut self, driver: &mut Driver) {
        for (fd, direction) in self.to_arm.drain(..) {
            let Some(watch) = self.watches.get_mut(&(fd, direction.sub())) else {
                continue;
            };
            if watch.op.is_none() {
                let key = Key {
                    index: fd as u32,
                    generation: watch.generation(),
                };
                let token = Route::new(Owner::Poll, direction.sub(), key).token();
                watch.op = Some(driver.poll(fd, direction.interest(), token));
            }
        }
    }

    /// The watcher that fired, if it is still registered.
    pub(crate) fn handle_completion(
        &mut self,
        sub: u8,
        key: Key,
        outcome: &Outcome,
    ) -> Option<Readiness> {
        let fd = key.index as RawFd;
        let watch = self.watches.get_mut(&(fd, sub))?;
        if watch.generation() != key.generation {
            return None;
        }
        watch.op = None;
        let serial = watch.serial;
        let direction = Direction::of_sub(sub);
        match outcome {
            // The host closed the file and forgot the watcher. What epoll does: it is never told of
            // again. Telling it would repeat for ever.
            Outcome::Done(Err(Errno(libc::EBADF))) => {
                self.watches.remove(&(fd, sub));
                self.count[direction as usize] -= 1;
                None
            }
            // No slot, or cancelled by the kernel: not the descriptor's fault, nothing is ready.
            Outcome::Done(Err(Errno::NO_BUFFERS | Errno::CANCELED)) => {
                self.to_arm.push((fd, direction));
                None
            }
            Outcome::Done(Ok(_))
                if watch.asks_again && !net::is_ready(fd, direction.interest()) =>
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

    /// The host has this event: the watcher is armed again at the next flush, if it still is the same.
    pub(crate) fn reported(&mut self, ready: Readiness) {
        let watch = self.watches.get(&(ready.fd, ready.direction.sub()));
        if watch.is_some_and(|watch| watch.serial == ready.serial) {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use uringcore_io::{Backend, DriverConfig};

    use super::*;

    /// What a turn tells of the watchers.
    fn turn(watchers: &mut Watchers, driver: &mut Driver) -> Vec<u64> {
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

    /// A token has 16 bits of a registration's serial: here the descriptor's next one has the same.
    #[test]
    fn a_registration_with_the_generation_of_an_earlier_one_gets_its_own_events_alone() {
        for backend in [Backend::Uring, Backend::Epoll] {
            let config = DriverConfig {
                backend: Some(backend),
                ..DriverConfig::default()
            };
            let mut driver = Driver::new(&config).unwrap_or_else(|error| panic!("{error}"));
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut watchers = Watchers::default();
            let first = watchers.add(ours.as_raw_fd(), Direction::Read, &mut driver);
            assert_eq!(turn(&mut watchers, &mut driver), []);
            // The poll in flight fires, and nobody has been told when its registration is replaced.
            theirs.write_all(b"1").unwrap();
            watchers.last_serial = first + u64::from(u16::MAX);
            let second = watchers.add(ours.as_raw_fd(), Direction::Read, &mut driver);
            assert_eq!((first as u16, first == second), (second as u16, false));
            let mut reported = Vec::new();
            for _ in 0..100 {
                reported.extend(turn(&mut watchers, &mut driver));
            }
            assert_eq!(reported, [second], "once, and nothing of the first");
        }
    }
}
