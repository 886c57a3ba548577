//! Status codes of Close frames (RFC 6455 section 7.4.1).

pub const NORMAL: u16 = 1000;
pub const PROTOCOL_ERROR: u16 = 1002;
/// Reported for a Close frame without a code; never sent.
pub const NO_STATUS: u16 = 1005;
/// Reported if the stream ended without a Close frame; never sent.
pub const ABNORMAL: u16 = 1006;
pub const INVALID_PAYLOAD: u16 = 1007;
pub const TOO_BIG: u16 = 1009;
pub const INTERNAL_ERROR: u16 = 1011;
/// The server restarts (registered at IANA, not in RFC 6455).
pub const SERVICE_RESTART: u16 = 1012;
