//! Listening sockets of the host: how connections are accepted on them, and how that is stopped.
//!
//! On a socket that only this loop accepts on, a multishot accept is armed, which delivers connections without a
//! system call for each. The kernel queues such accepts as *exclusive* waiters: a new client wakes only one waiter,
//! and always the first. If other processes or threads accept on the same socket too, the first one would get all
//! clients, even while it is busy or stopped. So a *shared* listener waits for readiness instead, which wakes all
//! waiters, and accepts one connection when the host takes the event. While one process is busy, the others accept the
//! next clients. A listener that is stopped before the host takes its event has accepted nothing.
//!
//! On a shared listener a connection costs 2 µs more, of 25. Two workers share 60 requests as 33 and 27 (stock
//! asyncio: 31 and 29). If each request computes for 20 ms, they share 60 as 31 and 29; stock asyncio, which accepts
//! its whole backlog at once, shares them as 48 and 12, and uvloop as 32 and 28.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use uringcore_io::net::{self, FileId};
use uringcore_io::{Backend, Completion, Driver, Errno, Interest, OpId, Outcome};

use crate::completion_token::{Owner, Route};
use crate::event::EngineEvent;
use crate::event_queue::EventQueue;
use crate::generational_slab::{Key, Slab};

pub(crate) struct Listener {
    fd: RawFd,
    key: Key,
    op: Option<OpId>,
    stopping: bool,
    shared: Option<SharedListener>,
}

/// The state of a listener on which other processes or threads accept too.
struct SharedListener {
    /// The identity of the socket, if the kernel has returned one. The host may close the socket, and another file may
    /// get its descriptor number.
    file: Option<FileId>,
    /// True if a wait for readiness has ended while the number belonged to this socket. The next wait then uses the
    /// same registration.
    has_waited: bool,
    /// True if the event queue has an entry for a connection to accept.
    is_queued: bool,
}

impl Listener {
    pub(crate) fn new(fd: RawFd, key: Key) -> Self {
        Self {
            fd,
            key,
            op: None,
            stopping: false,
            shared: None,
        }
    }

    /// Marks the listener as shared, because other processes or threads accept on its socket too.
    pub(crate) fn share(&mut self, driver: &mut Driver) {
        if self.shared.is_none() {
            self.shared = Some(SharedListener {
                file: net::file_of(self.fd),
                has_waited: false,
                is_queued: false,
            });
            // The multishot accept is cancelled. Its last completion starts the wait for readiness.
            if let Some(op) = self.op {
                driver.cancel(op);
            }
        }
    }

    pub(crate) fn arm(&mut self, driver: &mut Driver) {
        if self.op.is_some() || self.stopping {
            return;
        }
        let token = Route::new(Owner::Listener, 0, self.key).token();
        let op = match &self.shared {
            None => driver.accept(self.fd, token),
            Some(SharedListener {
                is_queued: true, ..
            }) => return,
            Some(SharedListener {
                has_waited: true, ..
            }) if driver.backend() == Backend::Epoll => {
                driver.poll_again(self.fd, Interest::Read, token)
            }
            // The program owns the socket and may close it to stop accepting. A poll of the ring would keep the socket
            // open, so a weak poll is used.
            Some(_) => driver.poll_weak(self.fd, Interest::Read, token),
        };
        self.op = Some(op);
    }

    pub(crate) fn stop(&mut self, driver: &mut Driver) {
        self.stopping = true;
        if let Some(op) = self.op {
            driver.cancel(op);
        }
    }

    /// True if the listener was stopped and no operation of it is in flight.
    pub(crate) fn has_ended(&self) -> bool {
        self.stopping && self.op.is_none()
    }

    pub(crate) fn handle_completion(
        &mut self,
        completion: Completion,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        if !completion.more() {
            self.op = None;
        }
        match completion.outcome {
            // A connection that a stopped listener has accepted: dropping the descriptor closes it.
            _ if self.stopping => {}
            Outcome::Accepted(Ok(fd)) => {
                events.push(self.accepted(fd));
                self.arm(driver);
            }
            Outcome::Done(Ok(_)) => {
                if let Some(shared) = &mut self.shared {
                    shared.is_queued = true;
                    events.push_acceptable(self.key);
                }
            }
            Outcome::Accepted(Err(error)) | Outcome::Done(Err(error)) => {
                if let Some(event) = self.failed(error, driver) {
                    events.push(event);
                }
            }
            _ => {}
        }
    }

    /// Accepts one connection, when the host takes the entry for a readable listener. `None` if another process was
    /// faster.
    pub(crate) fn accept_one(&mut self, driver: &mut Driver) -> Option<EngineEvent> {
        let shared = self.shared.as_mut()?;
        shared.is_queued = false;
        if self.stopping {
            return None;
        }
        let is_another = |first: FileId| net::file_of(self.fd).is_none_or(|file| file != first);
        if shared.file.is_some_and(is_another) {
            return None;
        }
        shared.has_waited = true;
        match net::accept(self.fd) {
            Ok((fd, _)) => {
                self.arm(driver);
                Some(self.accepted(fd))
            }
            Err(error) => self.failed(Errno(error.raw_os_error().unwrap_or(libc::EIO)), driver),
        }
    }

    fn failed(&mut self, error: Errno, driver: &mut Driver) -> Option<EngineEvent> {
        match error {
            // The client has given up between its SYN and the accept, or another process has accepted it. The listener
            // waits for more clients.
            Errno(libc::ECONNABORTED | libc::EINTR | libc::EAGAIN) => self.arm(driver),
            // `share` has cancelled the multishot accept. Or this is a forked child, and its parent has the connection.
            Errno::CANCELED => self.arm(driver),
            // The host has closed the socket. No more connections can be accepted, and no event is needed.
            Errno(libc::EBADF) => {}
            error => {
                return Some(EngineEvent::AcceptFailed {
                    listener: self.key,
                    error,
                });
            }
        }
        None
    }

    fn accepted(&self, fd: OwnedFd) -> EngineEvent {
        EngineEvent::Accepted {
            listener: self.key,
            fd,
        }
    }
}

/// The commands for the listening sockets of an [`Engine`](crate::Engine).
pub struct Listeners<'a> {
    pub(crate) listeners: &'a mut Slab<Listener>,
    pub(crate) driver: &'a mut Driver,
}

impl Listeners<'_> {
    /// Accepts on a listening socket of the host that no other process accepts on.
    pub fn open(&mut self, fd: RawFd) -> Key {
        let key = self.listeners.insert_with(|key| Listener::new(fd, key));
        self.resume(key);
        key
    }

    /// Accepts on a listening socket on which other processes or threads may accept too: one connection in each loop
    /// iteration, when the host takes the event.
    pub fn open_shared(&mut self, fd: RawFd) -> Key {
        let key = self.listeners.insert_with(|key| Listener::new(fd, key));
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.share(self.driver);
        }
        self.resume(key);
        key
    }

    /// Accepts again on a listener, after [`EngineEvent::AcceptFailed`].
    pub fn resume(&mut self, key: Key) {
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.arm(self.driver);
        }
    }

    /// Stops accepting. When this returns the kernel no longer uses the socket, so the host can close it, and its
    /// address is free. Costs one system call.
    pub fn stop(&mut self, key: Key) -> io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.stop(self.driver);
            if listener.has_ended() {
                self.listeners.remove(key);
            } else if !self.driver.is_suspended() {
                self.driver.enter(Some(Duration::ZERO))?;
            }
        }
        Ok(())
    }
}
