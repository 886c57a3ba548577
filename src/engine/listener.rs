//! One listening socket, lent by the host: a multishot accept and its end.

use std::os::fd::RawFd;

use uringcore_io::{Completion, Driver, Errno, OpId, Outcome};

use crate::event::Event;
use crate::queue::Queue;
use crate::table::Key;
use crate::token::{Owner, Route};

pub(crate) struct Listener {
    fd: RawFd,
    key: Key,
    op: Option<OpId>,
    stopping: bool,
}

impl Listener {
    pub(crate) fn new(fd: RawFd, key: Key) -> Self {
        Self {
            fd,
            key,
            op: None,
            stopping: false,
        }
    }

    pub(crate) fn arm(&mut self, driver: &mut Driver) {
        if self.op.is_none() && !self.stopping {
            let token = Route::new(Owner::Listener, 0, self.key).token();
            self.op = Some(driver.accept(self.fd, token));
        }
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
            Outcome::Accepted(Ok(fd)) if !self.stopping => {
                events.push(Event::Accepted {
                    listener: self.key,
                    fd,
                });
                self.arm(driver);
            }
            // The client gave up between SYN and accept: nothing to tell, more may come.
            Outcome::Accepted(Err(Errno(libc::ECONNABORTED | libc::EINTR | libc::EAGAIN)))
                if !self.stopping =>
            {
                self.arm(driver);
            }
            // The host closed the socket: there is nothing left to accept on, and nothing to tell.
            Outcome::Accepted(Err(Errno(libc::EBADF))) => {}
            Outcome::Accepted(Err(error)) | Outcome::Done(Err(error)) if !self.stopping => {
                events.push(Event::AcceptFailed {
                    listener: self.key,
                    error,
                });
            }
            _ => {}
        }
    }
}
