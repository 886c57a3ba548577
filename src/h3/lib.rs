//! HTTP/3 as a sans-IO state machine: both roles, QPACK included (RFC 9114, 9204, 9220, 9297).
//!
//! - `connection`: [`Connection`], its queues and streams. Start here.
//! - `send`: its commands. `streams`: the lives of its requests. `control`: what the peer's
//!   unidirectional streams do to it.
//! - `request`, `uni`: what arrives on one stream. `push`: server push, both roles.
//! - `field`, `target`: what makes a message malformed. `settings`, `frame`, `priority`:
//!   what is on the wire. `origin`: what a server says of other origins.
//! - `capsule`: what is cut out of the data of a request whose protocol has capsules.
//! - `unusable`, `useless_frames`: how much a peer may make us keep, and do for nothing.
//! - `qpack`: field compression.
//! - `event`, `error`: what comes out, and what can go wrong. `log`: what a host may want to write down.
//! - `critical_streams`, `request_ids`, `goaway`, `peer`, `early_priorities`, `abandoned`: parts of the
//!   connection's state, each with its rules.
//! - `stream_map`: streams by their identifiers.
//!
//! This crate knows stream identifiers and bytes; of QUIC only what RFC 9000 says about identifiers.

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
pub mod origin;
mod peer;
pub mod priority;
mod push;
pub mod qpack;
mod request;
mod request_ids;
mod send;
pub mod settings;
mod stream_map;
mod streams;
mod target;
mod uni;
mod unusable;
mod useless_frames;

pub use connection::Connection;
pub use error::{Code, ConnectionError, LocalError};
pub use event::{Event, HeadersKind, Output, Role};
pub use field::TargetCheck;
pub use log::{Logged, LoggedFrame};
pub use priority::{Priority, Signal};
pub use qpack::Field;
pub use request::Half;
pub use settings::{PeerSettings, Settings};
pub use streams::Place;
pub use uringcore_wire::varint;
