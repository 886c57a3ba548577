//! The limits of one client connection of a server.

use std::time::Duration;

/// The limits of one connection. The host checks that the values make sense.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum size in bytes of a request line with its fields, and of a trailer section.
    pub header_bytes: usize,
    /// The maximum number of fields of a section.
    pub header_fields: usize,
    /// The maximum number of requests on one connection; `None` means no limit.
    pub requests: Option<u64>,
    /// The maximum number of applications that are running. At this number the next request waits. One connection can
    /// have several, because an application may run on after its response was sent.
    pub running_applications: usize,
    /// The time in which a header section must be complete, and in which the first byte of a new connection must
    /// arrive.
    pub header_timeout: Duration,
    /// The time in which the next piece of a request's content must arrive while the application waits for it.
    pub body_timeout: Duration,
    /// The minimum average rate of a request's content in bytes per second. Waiting times that this rate explains do
    /// not count for `body_timeout`.
    pub body_rate: u64,
    /// The time in which a client must read something of a response that waits for it.
    pub send_timeout: Duration,
    /// The minimum average rate, in bytes per second, at which a client must read a response that waits for it. 0 means
    /// no minimum.
    pub send_rate: u64,
    /// The time for which a client may stay below `send_rate`.
    pub send_rate_grace: Duration,
    /// A connection without a request is closed after this time.
    pub keep_alive: Duration,
    /// True if requests may open a WebSocket. If false, the field `upgrade` is ignored (RFC 9110 section 7.8).
    pub websockets: bool,
    /// True if a client may begin with HTTP/2 (RFC 9113 section 3.3).
    pub http2: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 64 * 1024,
            header_fields: 256,
            requests: None,
            running_applications: 8 * 100,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            body_rate: 240,
            send_timeout: Duration::from_secs(600),
            send_rate: 240,
            send_rate_grace: Duration::from_secs(60),
            keep_alive: Duration::from_secs(5),
            websockets: true,
            http2: false,
        }
    }
}
