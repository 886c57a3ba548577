//! What the peer did wrong.

use super::code;

/// Why the connection has to be failed (RFC 6455 section 7.1.7), and the code that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub code: u16,
    pub reason: &'static str,
}

impl Fault {
    pub(super) const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(code::PROTOCOL_ERROR, reason)
    }
}
