//! What a connection tells its host.

use bytes::Bytes;

use super::head::{Head, Refusal};
use super::stalls::TooSlow;
use crate::webtransport::Draft;

/// Something that happened to a request. Those of one request come in order, `Request` first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request's header section. `ended`: no content follows. One with a refusal is to be answered with that.
    Request {
        stream_id: u64,
        head: Head,
        refusal: Option<Refusal>,
        ended: bool,
    },
    /// A request for a WebTransport session, to be accepted or refused by
    /// [`Connection::webtransport`](super::Connection::webtransport), which tells all else of it. Told when it
    /// is known what the client speaks, and the handshake is complete.
    Session {
        session_id: u64,
        head: Head,
        /// The protocols that the client offers, the most wanted first.
        protocols: Vec<String>,
        draft: Draft,
    },
    /// Content of a request, in the pieces in which it arrived at once; they pin the memory that they were
    /// received in. None only to say `ended`; trailers say no more than that.
    Body {
        stream_id: u64,
        pieces: Vec<Bytes>,
        ended: bool,
    },
    /// An HTTP datagram of a request whose protocol has them (RFC 9297), however it came.
    Datagram { stream_id: u64, data: Bytes },
    /// The content that the host waits for is too slow in coming. Nobody has been told yet.
    BodyTimedOut { stream_id: u64 },
    /// A response was given up because its client takes nothing of it, or too little. For counting: `Aborted`
    /// follows with the stream, unless the host is done with the request.
    TooSlow(TooSlow),
    /// Nobody waits for the response: the client gave the request up, what it sent was malformed, or it takes
    /// nothing of the response, or too little. Both directions of the stream have ended.
    Aborted { stream_id: u64 },
    /// There is room for more of this response, after [`Connection::is_held_up`](super::Connection::is_held_up)
    /// has said that there was none.
    Writable { stream_id: u64 },
    /// No request is open or on its way in, and all that was sent of responses has been acknowledged.
    Drained,
    /// The client has made as many requests as one connection may: it is to be told to go away.
    UsedUp,
    /// Nothing has been asked for so long that the connection is to be closed.
    Idle,
}
