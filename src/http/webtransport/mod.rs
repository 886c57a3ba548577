//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3): the sessions of one connection, both roles.
//!
//! - `sessions`: [`Sessions`], who comes and goes. Start here.
//! - `handle`: [`Handle`], its commands, as both roles lend them.
//! - `client`: [`Client`], HTTP/3 attached to a client's connection for sessions alone. A server's sessions
//!   are beside its requests, in `http3`.
//! - `stream_routing`: which event is a session's; `header`: the first bytes of a stream.
//! - `streams`: data streams; `flow`: credit of a session; `early`: what comes before its session.
//! - `connect_stream`: what is said on CONNECT streams; `capsule`: how; `protocols`: what is agreed before.
//! - `session`: one session; `draft`: which draft is spoken; `code`: error codes.
//! - `limits`: bounds for one peer; `event`: what sessions report to their host.
//!
//! Bytes of streams and datagrams do not pass through here: they are read out of QUIC when somebody asks, and
//! written into its queues. It knows neither an application nor what a request is beside its fields.

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
