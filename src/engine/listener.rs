//! One listening socket, lent by the host: how connections are accepted on it, and the end of that.
//!
//! A listener that is the loop's alone has a multishot accept, which brings connections without a system
//! call for each. In the kernel that accept waits *exclusively*: each client wakes one waiter, always the
//! first. On a socket that other processes or threads accept on as well, the first one would get all
//! clients, also while it computes or is stopped. So a *shared* listener waits for readiness, which wakes
//! all waiters, and accepts one connection where the host takes the event: a turn that computes leaves the
//! next client to the others, and a listener that is stopped before that has accepted nothing.
//!
//! A shared listener costs a connection 2 µs more, of 25. Two workers share 60 requests as 33 and 27 (stock
//! asyncio: 31 and 29). If a request computes for 20 ms, they share 60 as 31 and 29; stock asyncio, which accepts
//! its whole backlog at once, as 48 and 12; uvloop as 32 and 28.

use std::os::fd::{OwnedFd, RawFd};

use uringcore_io::net::{self, FileId};
use uringcore_io::{Backend, Completion, Driver, Errno, Interest, OpId, Outcome};

use crate::event::Event;
use crate::event_queue::Queue;
use crate::table::Key;
use crate::token::{Owner, Route};

pub(crate) struct Listener {
    fd: RawFd,
    key: Key,
    op: Option<OpId>,
    stopping: bool,
    shared: Option<Shared>,
}

/// What a listener needs that others accept on as well.
struct Shared {
    /// The socket, unless it could not be asked for. The host may close it and another one get its number.
    file: Option<FileId>,
    /// A wait for readiness has ended, and the number was the socket's then: the next wait needs no other
    /// registration.
    has_waited: bool,
    /// The host is to take a connection in its place among the events.
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

    /// Others accept on the socket from now on.
    pub(crate) fn share(&mut self, driver: &mut Driver) {
        if self.shared.is_none() {
            self.shared = Some(Shared {
                file: net::file_of(self.fd),
                has_waited: false,
                is_queued: false,
            });
            // Its last completion begins the wait for readiness.
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
            Some(Shared {
                is_queued: true, ..
            }) => return,
            Some(Shared {
                has_waited: true, ..
            }) if driver.backend() == Backend::Epoll => {
                driver.poll_again(self.fd, Interest::Read, token)
            }
            // The socket is the program's, which may close it: nobody is accepted from then on.
            Some(_) => driver.poll_unheld(self.fd, Interest::Read, token),
        };
        self.op = Some(op);
    }

    pub(crate) fn stop(&mut self, driver: &mut Driver) {
        self.stopping = true;
        if let Some(op) = self.op {
            driver.cancel(op);
        }
    }

    /// True once nothing of a stopped listener is in flight.
    pub(crate) fn has_ended(&self) -> bool {
        self.stopping && self.op.is_none()
    }

    pub(crate) fn handle_completion(
        &mut self,
        completion: Completion,
        driver: &mut Driver,
        events: &mut Queue,
    ) {
        if !completion.more() {
            self.op = None;
        }
        match completion.outcome {
            // An orphan of a stopped listener: dropping the descriptor closes it.
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

    /// The host takes what comes of a readiness: one connection, a failure, or nothing where somebody else
    /// was faster.
    pub(crate) fn accept_one(&mut self, driver: &mut Driver) -> Option<Event> {
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

    fn failed(&mut self, error: Errno, driver: &mut Driver) -> Option<Event> {
        match error {
            // The client gave up between SYN and accept, or another process has it: more may come.
            Errno(libc::ECONNABORTED | libc::EINTR | libc::EAGAIN) => self.arm(driver),
            // The multishot accept that `share` has cancelled, or one whose last connection is the parent's.
            Errno::CANCELED => self.arm(driver),
            // The host closed the socket: there is nothing left to accept on, and nothing to report.
            Errno(libc::EBADF) => {}
            error => {
                return Some(Event::AcceptFailed {
                    listener: self.key,
                    error,
                });
            }
        }
        None
    }

    fn accepted(&self, fd: OwnedFd) -> Event {
        Event::Accepted {
            listener: self.key,
            fd,
        }
    }
}
