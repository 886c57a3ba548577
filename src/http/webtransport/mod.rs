//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3): the sessions of one connection, both roles. "The draft" in
//! comments means the newest one that the module `draft_versions` lists.
//!
//! - `sessions`: [`Sessions`], the table of sessions. Start here.
//! - `session_commands`: [`SessionCommands`], the commands of a host, for both roles.
//! - `client_connection`: [`Client`], HTTP/3 on a client's connection for sessions only. `http3` has a server's
//!   sessions beside its requests.
//! - `event_routing`: passes events to HTTP/3 or to sessions; `stream_header`: the first bytes of a stream.
//! - `data_streams`: data streams; `flow_control`: credit of a session.
//! - `pre_session_buffer`: streams and datagrams that arrive before their session is open.
//! - `connect_stream`: data on CONNECT streams; `session_capsule`: its encoding.
//! - `protocol_negotiation`: the application's protocol within a session.
//! - `session`: one session; `draft_versions`: the choice of a draft; `error_code`: error codes.
//! - `limits`: limits for one peer; `event`: events for the host.
//!
//! The data of streams and datagrams does not pass through this module: the host reads it directly from QUIC, and
//! writes it into QUIC's queues. The module does not depend on applications; of a request it uses only the fields.

mod client_connection;
mod connect_stream;
mod data_streams;
mod draft_versions;
pub mod error_code;
mod event;
mod event_routing;
mod flow_control;
mod limits;
mod pre_session_buffer;
mod protocol_negotiation;
mod session;
pub mod session_capsule;
mod session_commands;
mod sessions;
pub mod stream_header;

pub use client_connection::{Client, Request};
pub(crate) use draft_versions::names_h3;
pub use draft_versions::{Draft, is_token};
pub use error_code::NO_CODE;
pub use event::{Event, EventKind};
pub use limits::Limits;
pub use protocol_negotiation::offered;
pub use session::{Error, SessionStats};
pub use session_commands::SessionCommands;
pub(crate) use sessions::LowerLayers;
pub use sessions::{SessionRequest, Sessions};
