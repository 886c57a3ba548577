//! QUIC (RFC 9000, 9001, 9002, 9221) as a state machine without sockets or clocks: datagrams and the time go in,
//! datagrams and events come out. The *application* in this crate's comments is the program that calls it, and that
//! has the sockets.
//!
//! - `settings`: the application's settings, checked and built once.
//! - `endpoint`: the connections of one UDP socket: routing, accepting, timers, fairness.
//! - `accept_policy`: the admission of new clients: the limits of a server, and a client's first packets.
//! - `address_tokens`: address validation tokens and their single use.
//! - `connection`: one connection: commands in, [`Event`]s out.
//! - `streams`: extends quinn-proto's streams.
//! - `paths`: the addresses and sockets of a connection (RFC 9000 section 9).
//! - `deadline_set`, `datagram_frame_queue`: collections that several of these use.
//! - `event`, `error`, `stats`: types that the application gets.
//! - `read_on_demand`: streams and datagrams that a program reads on demand.
//! - `tls`: certificates, verification, the crypto session under QUIC; `qlog`: qlog events from packets.
//! - `workarounds`: workarounds for gaps of quinn-proto and rustls, one a file.
//! - `fuzzing`: private parsers, opened for fuzz targets.
//!
//! quinn-proto, unforked, implements the protocol. Additions are around it: here, in the crypto session of
//! [`tls`](crate::tls), and, if they depend on its internals, in `workarounds`.

#![forbid(unsafe_code)]

mod accept_policy;
mod address_tokens;
mod connection;
mod datagram_frame_queue;
mod deadline_set;
mod endpoint;
mod error;
mod event;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod paths;
pub mod qlog;
pub mod read_on_demand;
mod settings;
mod stats;
mod streams;
pub mod tls;
mod workarounds;

pub use accept_policy::client_hello_reader::{ClientHelloReader, Reading};
pub use connection::{
    Connection,
    pre_connect_commands::{Command, CommandError, PreConnectCommands},
};
pub use deadline_set::{Deadlines, earliest};
pub use endpoint::{ConnectionKey, DatagramMeta, Endpoint, GSO_SEGMENTS_MAX, Taking, Transmit};
pub use error::{ConnectError, DatagramError, MigrationError, StreamError};
pub use event::{Chunks, CloseKind, Event, Received, StreamEnd};
pub use settings::{
    AckFrequency, ClientSettings, ClientSetup, Congestion, EmptyPlaces, EndpointSettings, Retry,
    ServerSettings, ServerSetup, TransportSettings, Worker,
};
pub use stats::{ConnectionStats, EcnCounters, EndpointStats};
pub use streams::{StreamState, priority::Priority};
pub use uringcore_wire::packet_header::{VERSION_1, VERSION_2};
