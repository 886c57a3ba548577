//! HTTP/3 on a server's QUIC connection: takes QUIC's events, reports requests to the host, and sends the responses.
//!
//! - `connection`: [`Connection`], the HTTP/3 on a `quic::Connection`. Start here.
//! - `header_deadlines`: the deadlines of incomplete header sections.
//! - `webtransport_sessions`: WebTransport beside requests, if it is enabled.
//! - `event`, `event_queue`: events for the host.
//!
//! All of these except `connection` have their own state and do not depend on the connection.
//!
//! `concurrent_requests` has the parts that HTTP/2 needs as well: exchanges, limits, and slowly read
//! responses.
//!
//! The commands of `h3` are carried out on QUIC here, at once. So the host gets requests, pieces of their content and
//! their ends, but never a frame or a QPACK stream. This module does not depend on sockets or applications.

mod connection;
mod event;
mod event_queue;
mod header_deadlines;
mod webtransport_sessions;

pub use crate::concurrent_requests::{Limits, Unsafe};
pub use connection::Connection;
pub use connection::response_commands::has_room;
pub use event::Event;
