//! The events of a connection for its host.

use bytes::Bytes;

use super::request_head::{Head, Refusal};
use super::stalled_responses::TooSlow;
use crate::webtransport::Draft;

/// An event of a request. Events of one request are in order, `Request` first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request's header section. `ended`: no content follows. A request with a refusal must be answered with it.
    Request {
        stream_id: u64,
        head: Head,
        refusal: Option<Refusal>,
        ended: bool,
    },
    /// A request for a WebTransport session, which [`Connection::webtransport`](super::Connection::webtransport)
    /// accepts or refuses; that also has all further events of the session. Emitted once the client's draft is
    /// known and the handshake is complete.
    Session {
        session_id: u64,
        head: Head,
        /// The protocols that the client offers, the preferred one first.
        protocols: Vec<String>,
        draft: Draft,
    },
    /// Content of a request, in the pieces in which it arrived; they pin their receive buffers. Empty only to carry
    /// `ended`; trailers have no other effect.
    Body {
        stream_id: u64,
        pieces: Vec<Bytes>,
        ended: bool,
    },
    /// An HTTP datagram of a request whose protocol has them (RFC 9297), in either encoding.
    Datagram { stream_id: u64, data: Bytes },
    /// The content that the host waits for is too slow. No other event reports it.
    BodyTimedOut { stream_id: u64 },
    /// A response was abandoned because its client reads nothing of it, or too little. For counting: `Aborted`
    /// follows for the stream, unless the host has finished the request.
    TooSlow(TooSlow),
    /// The response is not needed any more: the client abandoned the request, its message was malformed, or it
    /// reads nothing of the response, or too little. Both directions of the stream have ended.
    Aborted { stream_id: u64 },
    /// There is room for more of this response, after [`Connection::is_held_up`](super::Connection::is_held_up)
    /// returned true.
    Writable { stream_id: u64 },
    /// No request is open or incomplete, and everything sent has been acknowledged.
    Drained,
    /// The client has made as many requests as one connection may: the host should send GOAWAY.
    UsedUp,
    /// There were no requests for the keep-alive time: the connection should be closed.
    Idle,
}
