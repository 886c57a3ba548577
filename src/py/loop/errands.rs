//! What the loop's own thread does for other threads.
//!
//! Only the thread that runs the loop may speak to its engine: a ring belongs to one thread, and the
//! engine is out of reach while that thread is in the kernel. asyncio's `add_reader`, `remove_reader`
//! and `Server.close` are not thread-safe, yet on epoll they work from another thread, and programs
//! rely on it. So the host's side changes at once and an errand brings the engine's side to it.
//!
//! `call_soon_threadsafe` releases the interpreter lock around the system call that wakes the loop: the loop wants
//! that lock first of all and would sleep again for it. On one processor this doubles the number of round trips.

use std::os::fd::RawFd;

use pyo3::prelude::*;
use uringcore_engine::{Engine, Key};

use crate::event_loop::loop_core::{LoopCore, current_thread_id};
use crate::event_loop::mode::Mode;
use crate::event_loop::watchers::direction;

/// What the loop's thread does for another one at its next turn.
pub enum Errand {
    StopListener(Key),
    /// The process has forked.
    ShareSockets,
    /// Brings the engine's watcher of a descriptor (true: its writer) to what the hosts say.
    Watch(RawFd, bool),
}

impl LoopCore {
    /// Another thread than the caller's runs this loop.
    pub fn runs_elsewhere(&self, py: Python<'_>) -> bool {
        self.flags
            .with(py, |flags| flags.runner)
            .is_some_and(|id| id != current_thread_id())
    }

    /// A forked child whose parent's thread had the engine: nothing is registered here.
    pub fn has_no_engine(&self, py: Python<'_>) -> bool {
        self.flags.with(py, |flags| flags.forked) && self.engine.with(py, |engine| engine.is_none())
    }

    pub fn leave_errand(&self, py: Python<'_>, errand: Errand) {
        self.hosts.with(py, |hosts| hosts.errands.push(errand));
        self.mode.set(Mode::ERRANDS, true);
        self.wake(py);
    }

    /// Does what other threads have asked for, with the engine in hand.
    pub fn run_errands(&self, py: Python<'_>, engine: &mut Engine) {
        if !self.mode.has(Mode::ERRANDS) {
            return;
        }
        self.mode.set(Mode::ERRANDS, false);
        let errands = self
            .hosts
            .with(py, |hosts| std::mem::take(&mut hosts.errands));
        for errand in errands {
            match errand {
                Errand::StopListener(key) => {
                    // What it fails with, the enter of this turn fails with too.
                    let _ = engine.listeners().stop(key);
                }
                Errand::ShareSockets => engine.share_sockets(),
                Errand::Watch(fd, write) => {
                    self.hosts
                        .with(py, |hosts| match hosts.watchers.get_mut(&(fd, write)) {
                            Some(watcher) => {
                                watcher.serial = engine.watchers().add(fd, direction(write))
                            }
                            None => {
                                let _ = engine.watchers().remove(fd, direction(write)); // as above
                            }
                        });
                }
            }
        }
    }
}
