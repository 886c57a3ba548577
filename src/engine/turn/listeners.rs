//! The engine's commands on its listening sockets.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::Engine;
use crate::listener::Listener;
use crate::table::Key;

impl Engine {
    /// Accepts on a listening socket that stays the host's, and that nobody else accepts on.
    pub fn listen(&mut self, fd: RawFd) -> Key {
        let key = self.listeners.insert_with(|key| Listener::new(fd, key));
        self.resume_listener(key);
        key
    }

    /// Accepts on a listening socket that other processes or threads may accept on as well: one connection
    /// a turn, and only where the host takes the event.
    pub fn listen_shared(&mut self, fd: RawFd) -> Key {
        let key = self.listeners.insert_with(|key| Listener::new(fd, key));
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.share(&mut self.driver);
        }
        self.resume_listener(key);
        key
    }

    /// Arms a listener again after [`Event::AcceptFailed`].
    pub fn resume_listener(&mut self, key: Key) {
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.arm(&mut self.driver);
        }
    }

    /// Stops accepting and lets go of the socket before returning, so that the host can close it and
    /// the address is free. One system call.
    pub fn stop_listener(&mut self, key: Key) -> io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.stop(&mut self.driver);
            if listener.has_ended() {
                self.listeners.remove(key);
                return Ok(());
            }
            if !self.driver.is_suspended() {
                self.driver.enter(Some(Duration::ZERO))?;
            }
        }
        Ok(())
    }
}
