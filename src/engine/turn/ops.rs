//! The engine's commands on operations that a host waits for one by one.

use std::io;
use std::time::{Duration, Instant};

use uringcore_io::{Driver, OpId, Outcome, Token};

use super::Engine;
use crate::event::Event;
use crate::table::Key;

impl Engine {
    /// A key for an operation that [`start_op`](Self::start_op) starts later.
    pub fn reserve_op(&mut self) -> Key {
        self.ops.reserve()
    }

    /// Starts the one-shot operation of a reserved key; `start` queues it on the driver with the token
    /// that it is given. Its one result is [`Event::OpDone`]. False if the key was cancelled before.
    pub fn start_op(&mut self, key: Key, start: impl FnOnce(&mut Driver, Token) -> OpId) -> bool {
        self.ops.start(key, &mut self.driver, start)
    }

    /// Asks an operation to end. Its result still comes, ECANCELED or a real one that was faster,
    /// unless this answers true: it was never started, and its key is gone.
    pub fn cancel_op(&mut self, key: Key) -> bool {
        self.ops.cancel(key, &mut self.driver)
    }

    /// Ends an operation now instead of in a later turn, and gives its outcome, which is no event then.
    /// `None`: it never began, its end was told, or the kernel does not let go of it yet.
    pub fn settle_op(&mut self, key: Key, now: Instant) -> io::Result<Option<Outcome>> {
        for _ in 0..SETTLE_TRIES {
            let reported = |event: &Event| matches!(event, Event::OpDone { op, .. } if *op == key);
            if let Some(Event::OpDone { outcome, .. }) = self.events.take_first(reported) {
                self.ops.release(key);
                return Ok(Some(outcome));
            }
            if self.cancel_op(key) {
                return Ok(None);
            }
            self.driver.enter(Some(Duration::ZERO))?;
            self.process(now);
        }
        Ok(None)
    }
}

/// A cancel takes one entry into the kernel; the others are for a completion queue that was full.
const SETTLE_TRIES: usize = 3;
