//! The events of an HTTP/3 connection for its host.

use bytes::Bytes;
use uringcore_quic::Chunks;

use crate::request_head::Head;
use crate::response_errors::{Refusal, TooSlow};
use crate::webtransport::Draft;

/// An event of a connection or of a request. Events of one request are in order, `Request` first.
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
    /// A request for a WebTransport session. [`Connection::webtransport`](super::Connection::webtransport) accepts or
    /// refuses it, and has all further events of the session. This event comes when the client's draft is known and
    /// the handshake is complete.
    Session {
        session_id: u64,
        head: Head,
        /// The application protocols that the client offers, the preferred one first.
        protocols: Vec<String>,
        draft: Draft,
    },
    /// Content of a request, in the pieces in which it arrived. The pieces keep their receive buffers alive. No pieces
    /// occur only with `ended`. Trailers only cause `ended`.
    Body {
        stream_id: u64,
        pieces: Chunks,
        ended: bool,
    },
    /// An HTTP datagram of a request that allows them (RFC 9297), in either encoding.
    Datagram { stream_id: u64, data: Bytes },
    /// The content for which the host waits arrives too slowly. No other event of the request follows for this reason.
    BodyTimedOut { stream_id: u64 },
    /// A response was abandoned because its client read nothing of it, or too little. This event is for statistics:
    /// `Aborted` follows, unless the host has finished the request.
    TooSlow(TooSlow),
    /// The response is no longer needed: the client abandoned the request or was too slow to read the response, or the
    /// request was malformed. Both directions of the stream have ended.
    Aborted { stream_id: u64 },
    /// More of this response can be sent, after [`Connection::is_held_up`](super::Connection::is_held_up) returned
    /// true.
    Writable { stream_id: u64 },
    /// All requests have ended, and the client has acknowledged all sent data.
    Drained,
    /// The client has made as many requests as the limits allow on one connection. The host should send GOAWAY.
    UsedUp,
    /// There was no request for the keep-alive time. The host should close the connection.
    Idle,
}
