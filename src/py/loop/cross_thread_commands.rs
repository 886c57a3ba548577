//! Changes of the engine that the loop's thread makes for other threads.
//!
//! Only the thread that runs the loop may use its engine, because a ring belongs to one thread, and the engine is out of
//! reach while that thread is in the kernel. asyncio's `add_reader`, `remove_reader` and `Server.close` are not
//! thread-safe, but with epoll they work from another thread, and programs rely on it. So the Python side changes at
//! once, and the loop's thread changes the engine in its next turn.
//!
//! `call_soon_threadsafe` releases the interpreter lock around the system call that wakes the loop, because the loop needs
//! that lock first and would sleep again for it. On one processor this doubles the number of round trips.

use std::os::fd::RawFd;

use pyo3::prelude::*;
use uringcore_engine::{Engine, Key};

use crate::event_loop::atomic_flags::AtomicFlags;
use crate::event_loop::fd_watchers::direction;
use crate::event_loop::loop_core::{LoopCore, current_thread_id};

/// A change that the loop's thread makes in its next turn.
pub enum CrossThreadCommand {
    StopListener(Key),
    /// The process has forked.
    ShareSockets,
    /// Makes the engine's watcher of a descriptor (true: its writer) the same as the registration of the loop.
    Watch(RawFd, bool),
}

impl LoopCore {
    /// True if another thread than the caller's runs this loop.
    pub fn runs_elsewhere(&self, py: Python<'_>) -> bool {
        self.flags
            .with(py, |flags| flags.runner)
            .is_some_and(|id| id != current_thread_id())
    }

    /// True in a forked child whose parent's thread had the engine. Nothing is registered then.
    pub fn has_no_engine(&self, py: Python<'_>) -> bool {
        self.flags.with(py, |flags| flags.forked) && self.engine.with(py, |engine| engine.is_none())
    }

    pub fn queue_command(&self, py: Python<'_>, command: CrossThreadCommand) {
        self.objects
            .with(py, |objects| objects.commands.push(command));
        self.atomic_flags.set(AtomicFlags::QUEUED_COMMANDS, true);
        self.wake(py);
    }

    /// Makes the changes for other threads.
    pub fn run_queued_commands(&self, py: Python<'_>, engine: &mut Engine) {
        if !self.atomic_flags.has(AtomicFlags::QUEUED_COMMANDS) {
            return;
        }
        self.atomic_flags.set(AtomicFlags::QUEUED_COMMANDS, false);
        let commands = self
            .objects
            .with(py, |objects| std::mem::take(&mut objects.commands));
        for command in commands {
            match command {
                CrossThreadCommand::StopListener(key) => {
                    // If this fails, the enter of this turn fails with the same error.
                    let _ = engine.listeners().stop(key);
                }
                CrossThreadCommand::ShareSockets => engine.share_sockets(),
                CrossThreadCommand::Watch(fd, write) => {
                    self.objects
                        .with(py, |objects| match objects.watchers.get_mut(&(fd, write)) {
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
