//! Errors of the peer that fail a WebSocket connection.

use super::close_codes;

/// The status code and reason with which a connection fails (RFC 6455 section 7.1.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    pub code: u16,
    pub reason: &'static str,
}

impl Violation {
    pub(super) const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(close_codes::PROTOCOL_ERROR, reason)
    }
}
