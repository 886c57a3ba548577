//! HTTP/3 attached to QUIC, a server's side: QUIC's events in, requests out, and responses the other way.
//!
//! - `connection`: [`Connection`], which joins an `h3::Connection` to a `quic::Connection`. Start here.
//! - `responses`: what the host sends.
//! - `sessions`: WebTransport beside requests, where it is on.
//! - `early`: requests that come before the handshake is complete.
//! - `head`: a request's header section, as any HTTP version has it.
//! - `exchange`: one request and its response, as far as both are told to the other side.
//! - `header_deadlines`: how long a client may take, for the clock that the host winds.
//! - `priority`: which response goes first.
//! - `stalls`: responses of which their client takes nothing, or too little.
//! - `limits`: [`Limits`], what one client may ask of a server.
//! - `datagram`: HTTP datagrams of requests that have any, and capsules.
//! - `event`: what comes out.
//!
//! What HTTP/3 wants of QUIC is done here and at once: the host sees requests, pieces of their content and
//! their ends, never a frame or a stream of QPACK's. It knows neither a socket nor an application.

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
pub use responses::SendError;
pub use stalls::TooSlow;
