//! The limits of one client connection of a server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::request_head_conversion::WEBSOCKET;

/// The handling of a request in 0-RTT data that is not safe to repeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unsafe {
    /// The request is reported after the handshake is complete (RFC 8470 section 3).
    #[default]
    Waits,
    /// The request is answered with 425 (Too Early), and the client sends it again (RFC 8470 section 5.2).
    Refused,
}

/// The limits of one connection. The host checks that the values make sense.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum number of requests without a complete response.
    pub open_requests: usize,
    /// The maximum number of requests on one connection; `None` means no limit.
    pub requests: Option<u64>,
    /// The number of requests that the client may abandon before they are answered: at once, and (next field) per
    /// second. Above it the connection is closed, because each abandoned request has cost the start of an application
    /// (CVE-2023-44487, "Rapid Reset").
    pub early_resets: u32,
    pub early_resets_per_second: f64,
    /// The time in which a header section must be complete.
    pub header_timeout: Duration,
    /// The time in which the next piece of a request's content must arrive while the application waits for it.
    pub body_timeout: Duration,
    /// The minimum average rate of a request's content in bytes per second. Waiting times that this rate explains do
    /// not count for `body_timeout`.
    pub body_rate: u64,
    /// The time in which a client must read something of a response that waits for it.
    pub send_timeout: Duration,
    /// The minimum average rate, in bytes per second, at which a client must read responses that wait for it. 0 means
    /// no minimum.
    pub send_rate: u64,
    /// The time for which a client may stay below `send_rate`.
    pub send_rate_grace: Duration,
    /// The handling of a request in 0-RTT data that is not safe to repeat.
    pub unsafe_early: Unsafe,
    /// The `:protocol` values of extended CONNECT that the host supports. Others are refused with 501.
    pub protocols: Arc<[Bytes]>,
    /// A connection without requests is closed after this time, even if its client sends pings.
    pub keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_requests: 128,
            requests: None,
            early_resets: 1000,
            early_resets_per_second: 33.0,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            body_rate: 240,
            send_timeout: Duration::from_secs(600),
            send_rate: 240,
            send_rate_grace: Duration::from_secs(60),
            unsafe_early: Unsafe::Waits,
            protocols: Arc::new([Bytes::from_static(WEBSOCKET)]),
            keep_alive: Duration::from_secs(120),
        }
    }
}
