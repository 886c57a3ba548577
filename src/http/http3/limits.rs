//! What one client may ask of a server, and how long it may take for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::early::Unsafe;
use super::head::WEBSOCKET;

/// The bounds of one connection. The host checks that they make sense.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests that may wait for their response at once.
    pub open_requests: usize,
    /// Requests that one connection may make in all, if there is a bound.
    pub requests: Option<u64>,
    /// How many requests the client may give up before they are answered, at once and in the long run. What
    /// is above is an attack (CVE-2023-44487): every one has cost an application's start.
    pub early_resets: u32,
    pub early_resets_per_second: f64,
    /// Within which a header section has to be complete.
    pub header_timeout: Duration,
    /// Within which the next of a request's content has to come while the application waits for it.
    pub body_timeout: Duration,
    /// Bytes a second that content has to make in the long run, above which waiting does not count.
    pub body_rate: u64,
    /// Within which a client has to take something of a response that waits for it.
    pub send_timeout: Duration,
    /// Bytes a second that a client has to take of responses that wait for it, on average. 0 is no least rate.
    pub send_rate: u64,
    /// Time for which the client may take less.
    pub send_rate_grace: Duration,
    /// What a request comes to that may not be repeated, and that came as 0-RTT data.
    pub unsafe_early: Unsafe,
    /// The protocols of extended CONNECT that the host speaks; others are refused (501).
    pub protocols: Arc<[Bytes]>,
    /// After which a connection without requests is closed, however often its client pings.
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
