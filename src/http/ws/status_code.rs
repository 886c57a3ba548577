//! Status codes (RFC 6455 section 7.4.1).

pub const NORMAL: u16 = 1000;
pub const PROTOCOL_ERROR: u16 = 1002;
/// Never on the wire: a Close frame had no code.
pub const NO_STATUS: u16 = 1005;
/// Never on the wire: the stream ended without a Close frame.
pub const ABNORMAL: u16 = 1006;
pub const INVALID_PAYLOAD: u16 = 1007;
pub const TOO_BIG: u16 = 1009;
pub const INTERNAL_ERROR: u16 = 1011;
/// Registered at IANA: the server restarts.
pub const SERVICE_RESTART: u16 = 1012;
