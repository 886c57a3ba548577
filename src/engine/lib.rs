//! The join: sockets, timers and protocols on one turn, without Python.
//!
//! A host (the Python bindings, or a native program) owns one [`Engine`] per thread and repeats four
//! steps, a *turn*: [`Engine::flush`] what the last turn's callbacks queued, [`Engine::enter`] the
//! kernel once, [`Engine::process`] the completions, and hand each [`Event`] of
//! [`Engine::next_event`] to whoever waits for it.
//!
//! | file | noun |
//! | --- | --- |
//! | `turn` | [`Engine`]: the routing of completions, the turn; in its folder the commands on each kind of thing |
//! | `event` | [`Event`]: what a host is told |
//! | `queue` | what the host is to hear, in order |
//! | `token` | how a completion finds its owner |
//! | `table` | generation-tagged slots |
//! | `transports` | the streams and datagram sockets by key |
//! | `transport` | what a stream and a datagram socket have in common |
//! | `lifecycle` | how a transport begins, reads, is held back and ends |
//! | `shared_state` | [`SharedState`]: what any thread may ask about a transport |
//! | `stream` | the bytes of a stream: write queue, receive |
//! | `write_coalescer` | small writes of a stream, gathered |
//! | `datagram` | the datagrams of a socket |
//! | `write_delay` | how long written bytes wait for others to leave with |
//! | `receive_budget` | how much a turn takes on where the host receives |
//! | `backlog` | what arrived for a reader that had paused |
//! | `listener` | one listening socket |
//! | `poll` | readiness watchers (`add_reader` and `add_writer`) |
//! | `ops` | operations that a host waits for one by one |
//! | `op_queues` | whose operation is next on a host's own sockets |
//! | `socket_op` | what is asked of such a socket |
//! | `socket` | who closes a descriptor |
//! | `poll_timeout` | how long a turn may sleep |
//! | `direct_cache` | what a host has met, for its own look-ups |
//! | `timers` | what is due when, for a host's own timers |
//! | `stats` | what the engine counts |
//! | `system` | this machine's clock and certificate store, for the protocols |
//! | `quic_sockets` | the QUIC endpoints: which have work, whose timer is next |
//! | `quic_socket` | one UDP socket joined with the QUIC state machines |
//!
//! This room never knows Python, and asks the kernel for things only through `uringcore_io`, but for
//! the certificate store, which is read when a host makes a setup and never in a turn.

#![forbid(unsafe_code)]

mod backlog;
mod datagram;
mod direct_cache;
mod event;
mod lifecycle;
mod listener;
mod op_queues;
mod ops;
mod poll;
mod poll_timeout;
mod queue;
mod quic_socket;
mod quic_sockets;
mod receive_budget;
mod shared_state;
mod socket;
mod socket_op;
mod stats;
mod stream;
mod system;
mod table;
mod timers;
mod token;
mod transport;
mod transports;
mod turn;
mod write_coalescer;
mod write_delay;

pub use datagram::DatagramSize;
pub use direct_cache::DirectMappedCache;
pub use event::{CopiedDatagram, Event, Received, StreamBytes};
pub use lifecycle::WriteOutcome;
pub use op_queues::{OpQueueId, OpQueues, Start};
pub use poll::{Direction, Readiness};
pub use poll_timeout::PollTimeout;
pub use quic_socket::QuicSocket;
pub use shared_state::{HIGH_MARK_BYTES, SharedState};
pub use socket::SocketFd;
pub use socket_op::{Attempt, SocketOp};
pub use stats::EngineStats;
pub use stream::NextReceive;
pub use system::{SystemClock, system_roots};
pub use table::{Key, Table};
pub use timers::{TimerKey, Timers};
pub use token::{Owner, Route};
pub use turn::{Engine, Piece};
