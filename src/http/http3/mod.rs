//! HTTP/3 attached to QUIC, a server's side: QUIC's events in, requests out, and responses the other way.
//!
//! - `connection`: [`Connection`], which joins HTTP/3 to a `quic::Connection`. Start here.
//! - `exchanges`, `exchange`: requests and their responses, and their counts.
//! - `stalled_responses`: responses of which the client reads nothing, or too little.
//! - `header_deadlines`: the time of incomplete header sections.
//! - `rapid_reset_limit`: the number of requests that a client may reset. `idle_timer`: the time without requests.
//! - `response_priority`: the order of responses. `datagram`: HTTP datagrams in capsules.
//! - `webtransport_sessions`: WebTransport beside requests, if it is enabled.
//! - `request_head`: a request's header section, in the terms of any HTTP version.
//! - `event`, `event_queue`: events for the host. `limits`: [`Limits`], the bounds for one client.
//!
//! Each of them but `connection` owns its state and does not depend on the connection.
//!
//! HTTP/3's commands are carried out on QUIC here, at once: the host gets requests, pieces of their content and
//! their ends, never a frame or a QPACK stream. This module does not depend on sockets or applications.

mod rapid_reset_limit;
mod connection;
mod datagram;
mod event;
mod event_queue;
mod exchange;
mod exchanges;
mod request_head;
mod header_deadlines;
mod limits;
mod response_priority;
mod idle_timer;
mod webtransport_sessions;
mod stalled_responses;

pub use connection::Connection;
pub use connection::responses::{SendError, has_room};
pub use event::Event;
pub use request_head::{Head, Refusal};
pub use limits::{Limits, Unsafe};
pub use stalled_responses::TooSlow;
