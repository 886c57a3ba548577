//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3): the sessions of one connection, both roles.
//!
//! - `sessions`: [`Sessions`], the table of sessions. Start here.
//! - `session_commands`: [`SessionCommands`], the commands of a host, for both roles.
//! - `client`: [`Client`], HTTP/3 attached to a client's connection for sessions only. `http3` attaches a server's
//!   sessions beside its requests.
//! - `stream_routing`: dispatches events to sessions; `stream_header`: the first bytes of a stream.
//! - `streams`: data streams; `flow_control`: credit of a session.
//! - `pre_session_buffer`: streams and datagrams that arrive before their session is open.
//! - `connect_stream`: data on CONNECT streams; `capsule`: its encoding.
//! - `protocol_negotiation`: the application's protocol within a session.
//! - `session`: one session; `draft`: choice of a draft; `error_code`: error codes.
//! - `limits`: bounds for one peer; `event`: events for the host.
//!
//! Bytes of streams and datagrams do not pass through this module: the host reads them directly from QUIC, and writes
//! them into its queues. The module does not depend on applications, and uses only the fields of a request.

pub mod capsule;
mod client;
pub mod error_code;
mod connect_stream;
mod draft;
mod pre_session_buffer;
mod event;
mod flow_control;
mod session_commands;
pub mod stream_header;
mod limits;
mod protocol_negotiation;
mod session;
mod sessions;
mod stream_routing;
mod streams;

pub use client::{Client, Request};
pub use error_code::NO_CODE;
pub(crate) use draft::names_h3;
pub use draft::{Draft, is_token};
pub use event::{Event, EventKind};
pub use session_commands::SessionCommands;
pub use limits::Limits;
pub use protocol_negotiation::offered;
pub use session::{Error, SessionStats};
pub(crate) use sessions::LowerLayers;
pub use sessions::{SessionRequest, Sessions};
