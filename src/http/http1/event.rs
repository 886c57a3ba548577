//! The events of a connection for its host.

use bytes::Bytes;

use crate::request_head::Head;
use crate::response_errors::{Refusal, TooSlow};

/// An event of the current request, which is the last `Request` that was reported. Events of one request are in order,
/// and the next request begins when the current one has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request's header section. If `ended` is true, no content follows. The host must answer a request that has a
    /// refusal with that refusal.
    Request {
        serial: u64,
        head: Head,
        refusal: Option<Refusal>,
        ended: bool,
        /// True if the client waits for the status 100 before it sends the content (RFC 9110 section 10.1.1).
        expects_continue: bool,
        /// True if the version is HTTP/1.0; false if it is HTTP/1.1.
        is_http10: bool,
    },
    /// Content of the request. `pieces` is empty only if `ended` is true.
    Body { pieces: Vec<Bytes>, ended: bool },
    /// The content is malformed, or too slow while the host waits for it. The host answers with the refusal, or
    /// abandons the response if it has begun.
    ContentRefused(Refusal),
    /// The response was abandoned because its client read nothing of it, or too little. The host may count this.
    TooSlow(TooSlow),
    /// The connection ends before the response is complete, because the client has gone or does not read, or because
    /// the server has no memory for it.
    Aborted,
}
