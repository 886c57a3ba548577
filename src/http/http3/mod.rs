//! HTTP/3 attached to QUIC, a server's side: QUIC's events in, requests out, and responses the other way.
//!
//! - `connection`: [`Connection`], which joins an `h3::Connection` to a `quic::Connection`. Start here.
//! - `responses`: the host's commands.
//! - `sessions`: WebTransport beside requests, if it is enabled.
//! - `early`: requests before the handshake is complete.
//! - `head`: a request's header section, in the terms of any HTTP version.
//! - `exchange`: one request and its response.
//! - `header_deadlines`: the time of incomplete header sections.
//! - `priority`: the order of responses.
//! - `stalls`: responses of which the client reads nothing, or too little.
//! - `limits`: [`Limits`], the bounds for one client.
//! - `datagram`: HTTP datagrams of requests, and capsules.
//! - `event`: events for the host.
//!
//! HTTP/3's commands are carried out on QUIC here, at once: the host gets requests, pieces of their content and
//! their ends, never a frame or a QPACK stream. This module does not depend on sockets or applications.

mod connection;
mod datagram;
mod early;
mod event;
mod exchange;
mod head;
mod header_deadlines;
mod limits;
mod priority;
mod responses;
mod sessions;
mod stalls;

pub use connection::Connection;
pub use early::Unsafe;
pub use event::Event;
pub use head::{Head, Refusal};
pub use limits::Limits;
pub use responses::{SendError, has_room};
pub use stalls::TooSlow;
