//! HTTP/3 as a sans-IO state machine: both roles, QPACK included (RFC 9114, 9204, 9220, 9297).
//!
//! - `connection`: [`Connection`], its events and streams. Start here. `quic_sink`: [`Sink`], its output.
//! - `queued_connection`: [`QueuedConnection`], whose output is queued until the host takes it.
//! - `send_commands`: the commands that send. `request_streams`: requests from their first byte to their end. `push`:
//!   server push.
//! - `unidirectional_stream`: receives the peer's unidirectional streams. `control_frame_parser`: splits its control
//!   stream into frames. `control_stream`: the reaction to them.
//! - `request`: parses the data of a request stream.
//! - `field_validation`, `request_target`: detect malformed messages. `settings`, `frame_header`, `priority`:
//!   codecs. `frame_type`, `stream_type`: the types of frames and streams. `stream_id`: the bits of a stream
//!   identifier.
//! - `capsule`: splits the content of a request that uses the Capsule Protocol.
//! - `pending_input_budget`, `useless_frame_budget`: bounds on a peer's unusable data and useless frames.
//! - `qpack`: field compression.
//! - `event`, `error`: events and errors. `qlog_entries`: qlog entries for the host.
//! - `critical_streams`, `request_stream_ids`, `goaway`, `peer_capabilities`: parts of a connection's state, each with
//!   its rules; `early_priorities`, `abandoned_streams`: two more of these parts.
//! - `stream_id_map`: a hash map with stream identifiers as keys.
//!
//! In the comments, the *host* is the program that drives a connection and owns the QUIC connection below it; the host
//! of a URI, or the field `host`, is always named as such.
//!
//! This crate does not depend on `uringcore_quic`. Of QUIC it uses only the structure of stream identifiers (RFC 9000
//! section 2.1).

#![forbid(unsafe_code)]

mod abandoned_streams;
pub mod capsule;
pub mod connection;
mod control_frame_parser;
mod control_stream;
mod critical_streams;
mod early_priorities;
pub mod error;
pub mod event;
pub mod field_validation;
pub mod frame_header;
pub mod frame_type;
mod goaway;
mod peer_capabilities;
mod pending_input_budget;
pub mod priority;
mod push;
mod qlog_entries;
pub mod qpack;
mod queued_connection;
mod quic_sink;
mod request;
mod request_stream_ids;
mod request_streams;
mod request_target;
mod send_commands;
pub mod settings;
pub mod stream_id;
mod stream_id_map;
pub mod stream_type;
mod unidirectional_stream;
mod useless_frame_budget;

pub use connection::Connection;
pub use error::{Code, ConnectionError, LocalError};
pub use event::{Event, HeadersKind, Role};
pub use field_validation::TargetCheck;
pub use priority::{Priority, Signal};
pub use qlog_entries::{Logged, LoggedFrame};
pub use qpack::Field;
pub use queued_connection::{Output, QueuedConnection};
pub use quic_sink::Sink;
pub use request::Half;
pub use request_streams::Place;
pub use settings::{PeerSettings, Settings};
pub use uringcore_wire::varint;
