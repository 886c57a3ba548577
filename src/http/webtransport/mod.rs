//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3): the sessions of one connection, both roles.
//!
//! - `sessions`: [`Sessions`], the table of sessions. Start here.
//! - `handle`: [`Handle`], the commands, for both roles.
//! - `client`: [`Client`], HTTP/3 attached to a client's connection for sessions only. `http3` attaches a server's
//!   sessions beside its requests.
//! - `stream_routing`: dispatches events to sessions; `header`: the first bytes of a stream.
//! - `streams`: data streams; `flow`: credit of a session; `early`: input before its session.
//! - `connect_stream`: data on CONNECT streams; `capsule`: its encoding; `protocols`: negotiation of a protocol.
//! - `session`: one session; `draft`: choice of a draft; `code`: error codes.
//! - `limits`: bounds for one peer; `event`: events for the host.
//!
//! Bytes of streams and datagrams do not pass through this module: the host reads them directly from QUIC, and writes
//! them into its queues. The module does not depend on applications, and uses only the fields of a request.

pub mod capsule;
mod client;
pub mod code;
mod connect_stream;
mod draft;
mod early;
mod event;
mod flow;
mod handle;
pub mod header;
mod limits;
mod protocols;
mod session;
mod sessions;
mod stream_routing;
mod streams;

pub use client::{Client, Request};
pub use code::NO_CODE;
pub(crate) use draft::names_h3;
pub use draft::{Draft, is_token};
pub use event::{Event, What};
pub use handle::Handle;
pub use limits::Limits;
pub use protocols::offered;
pub use session::{Error, SessionStats};
pub(crate) use sessions::Below;
pub use sessions::{Asked, Sessions};
