//! The two low bits of a stream identifier: the side that opened the stream, and its directions (RFC 9000 section 2.1).

/// True for a bidirectional stream that the client opened, which is a request stream.
#[inline]
pub const fn is_client_bidi(stream_id: u64) -> bool {
    stream_id & 0x3 == 0
}

#[inline]
pub const fn is_unidirectional(stream_id: u64) -> bool {
    stream_id & 0x2 != 0
}

#[inline]
pub const fn is_server_initiated(stream_id: u64) -> bool {
    stream_id & 0x1 != 0
}
