//! The engine's commands on its readiness watchers.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use uringcore_io::Backend;

use super::Engine;
use crate::watchers::Direction;

impl Engine {
    /// Watches `fd`, anew if it was watched already. The serial is in this registration's events.
    pub fn watch(&mut self, fd: RawFd, direction: Direction) -> u64 {
        self.watchers.add(fd, direction, &mut self.driver)
    }

    /// True when `fd` was watched. Nothing holds its file afterwards: once the caller closes it, its peer
    /// hears of the end and its address is free. A poll in the ring would hold it until the next enter,
    /// so there is one here, where epoll has its `epoll_ctl`.
    pub fn unwatch(&mut self, fd: RawFd, direction: Direction) -> io::Result<bool> {
        let driver = &mut self.driver;
        let waiting = self.watchers.remove(fd, direction, driver);
        if waiting == Some(true) && driver.backend() == Backend::Uring && !driver.is_suspended() {
            driver.enter(Some(Duration::ZERO))?;
        }
        Ok(waiting.is_some())
    }
}
