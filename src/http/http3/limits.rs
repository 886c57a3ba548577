//! The limits of one client of a server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::request_head::WEBSOCKET;

/// The handling of an unsafe request before the handshake is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unsafe {
    /// The request is reported when the handshake is complete (RFC 8470 section 3).
    #[default]
    Waits,
    /// The request is answered with 425, and the client sends it again (RFC 8470 section 5.2).
    Refused,
}

/// The bounds of one connection. The host validates them.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests that may wait for their response at a time.
    pub open_requests: usize,
    /// Requests that one connection may make in all, if bounded.
    pub requests: Option<u64>,
    /// How many requests the client may abandon before they are answered, at once and as a sustained rate. More is
    /// an attack (CVE-2023-44487): each has cost the start of an application.
    pub early_resets: u32,
    pub early_resets_per_second: f64,
    /// The time for a header section to be complete.
    pub header_timeout: Duration,
    /// The time for the next piece of a request's content, while the application waits for it.
    pub body_timeout: Duration,
    /// The average rate of content in bytes a second. At a higher rate the waiting time does not count.
    pub body_rate: u64,
    /// The time for a client to read something of a response that waits for it.
    pub send_timeout: Duration,
    /// The average rate in bytes a second at which a client must read responses that wait for it. 0 means no
    /// minimum.
    pub send_rate: u64,
    /// The time for which the client may read more slowly.
    pub send_rate_grace: Duration,
    /// The handling of an unsafe request in 0-RTT data.
    pub unsafe_early: Unsafe,
    /// The protocols of extended CONNECT that the host supports; others are refused (501).
    pub protocols: Arc<[Bytes]>,
    /// The time after which a connection without requests is closed, even if its client sends pings.
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
