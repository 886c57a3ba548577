//! HTTP/3 as a sans-IO state machine: both roles, QPACK included (RFC 9114, 9204, 9220, 9297).
//!
//! - `connection`: [`Connection`], its events and streams. Start here. `sink`: [`Sink`], its output.
//! - `queued`: [`QueuedConnection`], whose output waits for the host.
//! - `send`: its commands. `streams`: the lifecycle of its requests. `control`: the peer's unidirectional streams.
//! - `request`, `uni`: parse the data of one stream. `push`: server push, both roles.
//! - `field`, `target`: detect malformed messages. `settings`, `frame`, `priority`: codecs.
//! - `capsule`: splits the data of a request with the Capsule Protocol.
//! - `pending_input`, `useless_frames`: bounds on a peer's unusable data and useless frames.
//! - `qpack`: field compression.
//! - `event`, `error`: events and errors. `log`: log entries for the host.
//! - `critical_streams`, `request_ids`, `goaway`, `peer`, `early_priorities`, `abandoned`: parts of the connection's
//!   state, each with its rules.
//! - `stream_map`: streams by their identifiers.
//!
//! This crate handles stream identifiers and bytes; it uses only RFC 9000's structure of stream identifiers, and does
//! not depend on `uringcore_quic`.

#![forbid(unsafe_code)]

mod abandoned;
pub mod capsule;
pub mod connection;
mod control;
mod critical_streams;
mod early_priorities;
pub mod error;
pub mod event;
pub mod field;
pub mod frame;
mod goaway;
mod log;
mod peer;
mod pending_input;
pub mod priority;
mod push;
pub mod qpack;
mod queued;
mod request;
mod request_ids;
mod send;
pub mod settings;
mod sink;
mod stream_map;
mod streams;
mod target;
mod uni;
mod useless_frames;

pub use connection::Connection;
pub use error::{Code, ConnectionError, LocalError};
pub use event::{Event, HeadersKind, Role};
pub use field::TargetCheck;
pub use log::{Logged, LoggedFrame};
pub use priority::{Priority, Signal};
pub use qpack::Field;
pub use queued::{Output, QueuedConnection};
pub use request::Half;
pub use settings::{PeerSettings, Settings};
pub use sink::Sink;
pub use streams::Place;
pub use uringcore_wire::varint;
