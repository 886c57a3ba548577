//! Types of unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2, draft-ietf-webtrans-http3 section
//! 4.2).

pub const CONTROL: u64 = 0x0;
pub const PUSH: u64 = 0x1;
pub const QPACK_ENCODER: u64 = 0x2;
pub const QPACK_DECODER: u64 = 0x3;
pub const WEBTRANSPORT: u64 = 0x54;
