//! The events of a connection for its host.

use bytes::Bytes;

use crate::request_head::Head;
use crate::response_errors::{Refusal, TooSlow};

/// An event of a request. Events of one request are in order, `Request` first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The header section of a request. `ended` is true if no content follows. If there is a refusal, the host must
    /// answer with it instead of calling the application.
    Request {
        stream_id: u64,
        head: Head,
        refusal: Option<Refusal>,
        ended: bool,
    },
    /// Content of a request, in the pieces in which it arrived. No pieces occur only with `ended`. Trailers only cause
    /// `ended`.
    Body {
        stream_id: u64,
        pieces: Vec<Bytes>,
        ended: bool,
    },
    /// The content for which the host waits arrives too slowly.
    BodyTimedOut { stream_id: u64 },
    /// A response was abandoned because its client read nothing of it, or too little. This event is for statistics:
    /// `Aborted` follows, unless the host has finished the request.
    TooSlow(TooSlow),
    /// The response is no longer needed: the client has abandoned the request, or was too slow, or has sent malformed
    /// content, or the connection has ended. Both directions of the stream have ended.
    Aborted { stream_id: u64 },
    /// More of this response can be sent, after [`Connection::is_held_up`](super::Connection::is_held_up) returned
    /// true.
    Writable { stream_id: u64 },
}
