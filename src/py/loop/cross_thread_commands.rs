//! Commands for the engine that other threads queue and that the loop's thread executes in its next loop iteration.
//!
//! Only the thread that runs the loop may use its engine: a ring belongs to one thread, and while that thread is in
//! the kernel the engine is not in its cell. asyncio's `add_reader`, `remove_reader` and `Server.close` are not
//! thread-safe, but with epoll they work from another thread, and programs rely on that. So such a call changes the
//! Python objects at once and queues the change of the engine.
//!
//! `call_soon_threadsafe` releases the interpreter lock around the system call that wakes the loop. The woken loop
//! needs the lock first and would otherwise sleep again for it. On one processor this doubles the number of round
//! trips a second.

use std::os::fd::RawFd;

use pyo3::prelude::*;
use uringcore_engine::{Engine, Key};

use crate::event_loop::fd_watchers::direction;
use crate::event_loop::loop_core::{LoopCore, current_thread_id};
use crate::event_loop::loop_flags::AtomicFlags;

/// A change of the engine that the loop's thread makes in its next loop iteration.
pub enum CrossThreadCommand {
    StopListener(Key),
    /// The process has forked: from now on other processes use the listening and datagram sockets too.
    ShareSockets,
    /// Registers the descriptor with the engine if it has a watcher in
    /// [`EngineObjects`](super::engine_key_objects::EngineObjects), or removes it otherwise. True for a writer, false for a
    /// reader.
    Watch(RawFd, bool),
}

impl LoopCore {
    /// True if a thread other than the calling one runs this loop.
    pub fn runs_elsewhere(&self, py: Python<'_>) -> bool {
        self.flags
            .with(py, |flags| flags.runner)
            .is_some_and(|id| id != current_thread_id())
    }

    /// True in a forked child if the engine was in use by a thread of the parent, which does not exist here. Watchers
    /// are only kept as Python objects then.
    pub fn has_no_engine(&self, py: Python<'_>) -> bool {
        self.flags.with(py, |flags| flags.forked) && self.engine.with(py, |engine| engine.is_none())
    }

    pub fn queue_command(&self, py: Python<'_>, command: CrossThreadCommand) {
        self.objects
            .with(py, |objects| objects.commands.push(command));
        self.atomic_flags.set(AtomicFlags::QUEUED_COMMANDS, true);
        self.wake(py);
    }

    /// Executes the queued commands.
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
                    // An error is ignored: `engine.enter` of this loop iteration fails with the same error and reports
                    // it.
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
                                // An error is ignored: `engine.enter` of this loop iteration fails with the same error
                                // and reports it.
                                let _ = engine.watchers().remove(fd, direction(write));
                            }
                        });
                }
            }
        }
    }
}
