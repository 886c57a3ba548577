//! HTTP/3 on a server's QUIC connection: takes QUIC's events, reports requests to the host, and sends the responses.
//!
//! - `connection`: [`Connection`], the HTTP/3 on a `quic::Connection`. Start here.
//! - `exchanges`, `exchange`: requests with their responses, and their counts.
//! - `stalled_responses`: responses of which the client reads nothing, or too little.
//! - `header_deadlines`: the deadlines of incomplete header sections.
//! - `rapid_reset_limit`: the number of requests that a client may reset. `idle_timer`: the time without requests.
//! - `response_priority`: the order of responses. `datagram`: HTTP datagrams in capsules.
//! - `webtransport_sessions`: WebTransport beside requests, if it is enabled.
//! - `request_head`: converts a request's header section to a head in the terms of any HTTP version.
//! - `event`, `event_queue`: events for the host. `limits`: [`Limits`], the limits of one connection.
//!
//! All of these except `connection` have their own state and do not depend on the connection.
//!
//! The commands of `h3` are carried out on QUIC here, at once. So the host gets requests, pieces of their content and
//! their ends, but never a frame or a QPACK stream. This module does not depend on sockets or applications.

mod connection;
mod datagram;
mod event;
mod event_queue;
mod exchange;
mod exchanges;
mod header_deadlines;
mod idle_timer;
mod limits;
mod rapid_reset_limit;
mod request_head;
mod response_priority;
mod stalled_responses;
mod webtransport_sessions;

pub use connection::Connection;
pub use connection::responses::has_room;
pub use event::Event;
pub use limits::{Limits, Unsafe};
