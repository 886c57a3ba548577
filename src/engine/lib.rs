//! Sockets, timers and protocols on one loop iteration, without Python.
//!
//! A host (the Python bindings, or a native program) owns one [`Engine`] for each thread. It repeats four steps,
//! together a *loop iteration*:
//!
//! 1. [`Engine::flush`] submits the commands that the callbacks of the last loop iteration gave.
//! 2. [`Engine::enter`] enters the kernel once.
//! 3. [`Engine::process`] routes the completions to their owners.
//! 4. The host takes each [`EngineEvent`] from [`Engine::next_event`] and runs its callbacks.
//!
//! | file | content |
//! | --- | --- |
//! | `engine` | [`Engine`]: the steps of a loop iteration, the routing of completions |
//! | `callback_hooks` | methods that a host calls when callbacks begin and end; they send held bytes |
//! | `callback_progress` | [`CallbackProgress`]: the counts of the host's callbacks |
//! | `event` | [`EngineEvent`]: the events for a host |
//! | `event_queue` | the events that the host has not taken yet, in order |
//! | `completion_token` | the token of an operation, from which its completion finds the owner |
//! | `generational_slab` | [`Slab`]: a table whose keys have a generation |
//! | `listener` | [`Listeners`]: listening sockets |
//! | `readiness_watchers` | [`Watchers`]: readiness watchers (`add_reader` and `add_writer`) |
//! | `one_shot_operations` | [`Operations`]: single operations for whose result a host waits |
//! | `held_writes` | the transports and connections whose written bytes are held |
//! | `write_delay` | decides which written bytes are held to share a system call with others, and how long |
//! | `completion_budget` | the limit of completions in a loop iteration in which the host receives |
//! | `stats` | [`EngineStats`]: the counters |
//! | `transport/` | streams and datagram sockets |
//! | `quic/` | QUIC endpoints on UDP sockets |
//! | `host/` | parts that only a host uses: timers, queues of operations, poll time-out, cache, clock |
//!
//! This crate does not use Python, and reaches the kernel only through `uringcore_io`. An exception is the certificate
//! store, which is read when a host makes a configuration and never in a loop iteration.

#![forbid(unsafe_code)]

mod callback_hooks;
mod callback_progress;
mod completion_budget;
mod completion_token;
mod engine;
mod event;
mod event_queue;
mod generational_slab;
mod held_writes;
mod host;
mod listener;
mod one_shot_operations;
mod quic;
mod readiness_watchers;
mod stats;
mod transport;
mod write_delay;

pub use callback_progress::CallbackProgress;
pub use completion_token::{Owner, Route};
pub use engine::Engine;
pub use event::{CopiedDatagram, EngineEvent, Received, StreamBytes};
pub use generational_slab::{Key, Slab};
pub use host::{
    Attempt, ByteQueue, DirectMappedCache, OpQueueId, OpQueues, PollTimeout, SocketOp, Start,
    SystemClock, TimerKey, Timers, system_roots,
};
pub use listener::Listeners;
pub use one_shot_operations::Operations;
pub use quic::{QuicSocket, SocketFd};
pub use readiness_watchers::{Direction, Readiness, Watchers};
pub use stats::EngineStats;
pub use transport::{
    DatagramSize, HIGH_MARK_BYTES, NextReceive, Piece, SharedState, Transports, WriteOutcome,
};
