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
//! | `view` | [`View`]: what any thread may ask about a transport |
//! | `stream` | the bytes of a stream: write queue, receive |
//! | `tail` | small writes of a stream, gathered |
//! | `datagram` | the datagrams of a socket |
//! | `write_delay` | how long written bytes wait for others to leave with |
//! | `pace` | how much a turn takes on where the host receives |
//! | `backlog` | what arrived for a reader that had paused |
//! | `listener` | one listening socket |
//! | `poll` | readiness watchers (`add_reader` and `add_writer`) |
//! | `ops` | operations that a host waits for one by one |
//! | `lanes` | whose operation is next on a host's own sockets |
//! | `socket_op` | what is asked of such a socket |
//! | `socket` | who closes a descriptor |
//! | `sleep` | how long a turn may sleep |
//! | `places` | what a host has met, for its own look-ups |
//! | `timers` | what is due when, for a host's own timers |
//! | `stats` | what the engine counts |
//! | `system` | this machine's clock and certificate store, for the protocols |
//! | `endpoints` | the QUIC endpoints: which have work, whose timer is next |
//! | `hosted_endpoint` | one UDP socket joined with the QUIC state machines |
//!
//! This room never knows Python, and asks the kernel for things only through `uringcore_io`, but for
//! the certificate store, which is read when a host makes a setup and never in a turn.

#![forbid(unsafe_code)]

mod backlog;
mod datagram;
mod endpoints;
mod event;
mod hosted_endpoint;
mod lanes;
mod lifecycle;
mod listener;
mod ops;
mod pace;
mod places;
mod poll;
mod queue;
mod sleep;
mod socket;
mod socket_op;
mod stats;
mod stream;
mod system;
mod table;
mod tail;
mod timers;
mod token;
mod transport;
mod transports;
mod turn;
mod view;
mod write_delay;

pub use datagram::DatagramSize;
pub use event::{CopiedDatagram, Event, Received, StreamBytes};
pub use hosted_endpoint::HostedEndpoint;
pub use lanes::{Lane, Lanes, Start};
pub use lifecycle::WriteOutcome;
pub use places::Places;
pub use poll::{Direction, Readiness};
pub use sleep::Sleep;
pub use socket::SocketFd;
pub use socket_op::{Attempt, SocketOp};
pub use stats::EngineStats;
pub use stream::NextReceive;
pub use system::{SystemClock, system_roots};
pub use table::{Key, Table};
pub use timers::{TimerKey, Timers};
pub use token::{Owner, Route};
pub use turn::{Engine, Piece};
pub use view::{HIGH_MARK_BYTES, View};
