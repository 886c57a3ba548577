//! Readiness watchers: what asyncio calls readers and writers, one entry a descriptor.
//!
//! A watcher is a one-shot poll that is armed again at the flush after it fired. The callbacks of a
//! turn run before that flush, so it behaves level-triggered, at no extra system call.

use std::collections::HashMap;
use std::os::fd::RawFd;

use uringcore_io::{Driver, Interest, OpId};

use crate::table::Key;
use crate::token::{Kind, Route};

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
            Self::Read => Interest::READ,
            Self::Write => Interest::WRITE,
        }
    }
}

#[derive(Default)]
struct Watch {
    wanted: bool,
    op: Option<OpId>,
    /// Tells this registration's operation from one that an earlier registration left behind.
    serial: u16,
}

#[derive(Default)]
pub(crate) struct Watchers {
    watches: HashMap<(RawFd, u8), Watch>,
    to_arm: Vec<(RawFd, Direction)>,
    serial: u16,
    wanted: [usize; 2],
}

impl Watchers {
    pub(crate) fn add(&mut self, fd: RawFd, direction: Direction) {
        let watch = self.watches.entry((fd, direction.sub())).or_default();
        if !watch.wanted {
            self.serial = self.serial.wrapping_add(1);
            watch.wanted = true;
            watch.serial = self.serial;
            self.wanted[direction as usize] += 1;
            self.to_arm.push((fd, direction));
        }
    }

    pub(crate) fn remove(&mut self, fd: RawFd, direction: Direction, driver: &mut Driver) -> bool {
        let Some(watch) = self.watches.remove(&(fd, direction.sub())) else {
            return false;
        };
        if let Some(op) = watch.op {
            // Its slot lives on in the driver; the completion finds no watch with its serial.
            driver.discard(op);
        }
        self.wanted[direction as usize] -= usize::from(watch.wanted);
        true
    }

    pub(crate) fn flush(&mut self, driver: &mut Driver) {
        for (fd, direction) in self.to_arm.drain(..) {
            let Some(watch) = self.watches.get_mut(&(fd, direction.sub())) else {
                continue;
            };
            if watch.wanted && watch.op.is_none() {
                let key = Key {
                    index: fd as u32,
                    generation: watch.serial,
                };
                let token = Route::new(Kind::Poll, direction.sub(), key).token();
                watch.op = Some(driver.poll(fd, direction.interest(), token));
            }
        }
    }

    /// The watcher that fired, if it is still registered.
    pub(crate) fn handle_completion(&mut self, sub: u8, key: Key) -> Option<(RawFd, Direction)> {
        let fd = key.index as RawFd;
        let watch = self.watches.get_mut(&(fd, sub))?;
        if watch.serial != key.generation {
            return None;
        }
        watch.op = None;
        let direction = Direction::of_sub(sub);
        self.to_arm.push((fd, direction));
        Some((fd, direction))
    }

    pub(crate) fn needs_flush(&self) -> bool {
        !self.to_arm.is_empty()
    }

    pub(crate) fn count(&self, direction: Direction) -> usize {
        self.wanted[direction as usize]
    }
}
