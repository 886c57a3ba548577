//! QUIC (RFC 9000, 9001, 9002, 9221) as a state machine without sockets or clocks: datagrams and
//! the time go in, datagrams and events come out.
//!
//! - `settings`: what a host may set, checked and built once.
//! - `endpoint`: one UDP socket's worth of connections: routing, accepting, timers, fairness.
//! - `admission`: who may come in: the limits of a server.
//! - `connection_ids`: the connection IDs that we issue.
//! - `hello`: a client's first packets, read for the tickets in them.
//! - `connection`: one connection: commands in, [`Event`]s out.
//! - `event`, `lost`: what the host gets to see, and how a connection's end is put into words.
//! - `streams`, `stream`, `own_streams`, `send_queue`: what is done for streams around the state
//!   machine.
//! - `path`, `connection::migration`, `endpoint::migration`: changes of address (RFC 9000 section 9).
//! - `parameters`: what the state machine does not tell of the peer's transport parameters.
//! - `congestion`: controllers by name, and a gauge on each.
//! - `priority`: RFC 9218's urgencies as what the state machine sorts by.
//! - `datagrams`: DATAGRAM frames that wait.
//! - `watch`, `frames`: a look at packets in the clear, for what the state machine does not tell.
//! - `tokens`: address validation tokens, kept and used once.
//! - `ids`: which connection IDs lead to a connection.
//! - `timers`: which connection is to be woken next.
//! - `error`: what a host's own calls can raise.
//! - `stats`: counters.
//! - `arrival`: datagrams on their way in.
//! - `wire`, `negotiation`: packets of QUIC version 2 and of none, and a client that begins again
//!   with another version.
//!
//! The protocol itself is quinn-proto's, unforked. What it lacks is added around it: here, and in
//! the crypto session of [`tls`](crate::tls).

mod admission;
mod arrival;
mod congestion;
mod connection;
mod connection_ids;
mod datagrams;
mod endpoint;
mod error;
mod event;
pub(crate) mod frames;
mod hello;
mod ids;
mod lost;
mod negotiation;
mod own_streams;
mod parameters;
mod path;
mod priority;
mod send_queue;
mod settings;
mod stats;
mod stream;
mod streams;
mod timers;
mod tokens;
mod watch;
mod wire;

pub use crate::tls::{VERSION_1, VERSION_2};
pub use admission::AcceptRate;
pub use congestion::Congestion;
pub use connection::Connection;
pub use connection_ids::Worker;
pub use endpoint::{ANSWER_PATIENCE, ConnectionKey, DatagramMeta, Endpoint, Transmit};
pub use error::{ConnectError, DatagramError, MigrationError, StreamError};
pub use event::{Chunks, CloseKind, Event};
pub use priority::Priority;
pub use settings::{
    AckFrequency, ClientSettings, ClientSetup, EndpointSettings, Retry, ServerSettings,
    ServerSetup, TransportSettings,
};
pub use stats::{ConnectionStats, EcnCounters, EndpointStats};
