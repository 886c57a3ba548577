//! Frame types (RFC 9114 section 7.2, RFC 9218 section 7.2). 0x41 begins a WebTransport stream
//! (draft-ietf-webtrans-http3 section 4.3).

pub const DATA: u64 = 0x0;
pub const HEADERS: u64 = 0x1;
pub const CANCEL_PUSH: u64 = 0x3;
pub const SETTINGS: u64 = 0x4;
pub const PUSH_PROMISE: u64 = 0x5;
pub const GOAWAY: u64 = 0x7;
pub const MAX_PUSH_ID: u64 = 0xd;
pub const WEBTRANSPORT_STREAM: u64 = 0x41;
pub const PRIORITY_UPDATE_REQUEST: u64 = 0xf0700;
pub const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;

/// True for the types of HTTP/2 frames that HTTP/3 does not have. Receiving one is an error (RFC 9114 section
/// 7.2.8).
pub const fn is_reserved(frame_type: u64) -> bool {
    matches!(frame_type, 0x2 | 0x6 | 0x8 | 0x9)
}
