//! The header at the beginning of a WebTransport stream, which shows that the stream belongs to a session and not to
//! HTTP/3.
//!
//! Not here: the data after the header.

use bytes::{Bytes, BytesMut};
use uringcore_h3::frame_type;
use uringcore_h3::stream_id::is_unidirectional;
use uringcore_h3::stream_type;
use uringcore_wire::varint;

/// The owner of a stream (HTTP/3 or a session), as far as the stream's first bytes show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOwner {
    /// The bytes are not enough. At least `lacks` more are needed, and so many do not extend beyond the header.
    Unknown { lacks: usize },
    /// The stream belongs to HTTP/3.
    Http,
    /// The stream belongs to this session.
    Session { session_id: u64 },
}

/// Determines the owner of a stream from its first bytes (draft-ietf-webtrans-http3 sections 4.2 and 4.3).
pub fn owner_of(stream_id: u64, bytes: &[u8]) -> StreamOwner {
    if bytes.is_empty() {
        return StreamOwner::Unknown { lacks: SIZE_MIN };
    }
    let lacks = |bytes: &[u8]| match varint::size_at(bytes) {
        Some(size) => size - bytes.len(),
        None => 1,
    };
    let signal = match is_unidirectional(stream_id) {
        true => stream_type::WEBTRANSPORT,
        false => frame_type::WEBTRANSPORT_STREAM,
    };
    match varint::get(bytes) {
        None => StreamOwner::Unknown {
            lacks: lacks(bytes),
        },
        Some((kind, _)) if kind != signal => StreamOwner::Http,
        Some((_, used)) => match varint::get(&bytes[used..]) {
            Some((session_id, _)) => StreamOwner::Session { session_id },
            None => StreamOwner::Unknown {
                lacks: lacks(&bytes[used..]),
            },
        },
    }
}

/// Returns the encoded header of a stream that this side opens.
pub fn written(stream_id: u64, session_id: u64) -> Bytes {
    let mut header = BytesMut::with_capacity(SIZE_MAX);
    let signal = match is_unidirectional(stream_id) {
        true => stream_type::WEBTRANSPORT,
        false => frame_type::WEBTRANSPORT_STREAM,
    };
    varint::put(&mut header, signal);
    varint::put(&mut header, session_id);
    header.freeze()
}

/// The length of the shortest header in bytes: both signal values take two bytes, the session identifier at least one.
const SIZE_MIN: usize = 3;
const SIZE_MAX: usize = 2 + varint::SIZE_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes only as many bytes of a stream to `owner_of` as it asks for. Returns the owner, and the number of these
    /// bytes.
    fn read(stream_id: u64, data: &[u8]) -> (StreamOwner, usize) {
        let mut have = 0;
        loop {
            let whose = owner_of(stream_id, &data[..have]);
            match whose {
                StreamOwner::Unknown { lacks } if have + lacks <= data.len() => have += lacks,
                _ => return (whose, have),
            }
        }
    }

    #[test]
    fn bytes_after_a_stream_header_are_not_read() {
        for session_id in [0, 4, 60, 64, 16_384, 1 << 40] {
            for stream_id in [1, 4, 2, 3] {
                let header = written(stream_id, session_id);
                let data = [&header[..], b"data"].concat();
                let expected = StreamOwner::Session { session_id };
                assert_eq!(read(stream_id, &data), (expected, header.len()));
                for end in 0..header.len() {
                    let cut = owner_of(stream_id, &header[..end]);
                    assert!(matches!(cut, StreamOwner::Unknown { lacks: 1.. }));
                }
            }
        }
    }

    #[test]
    fn other_streams_belong_to_http3() {
        // A HEADERS frame, the types of the control and QPACK streams, and the signal value of the other kind of
        // streams.
        assert_eq!(read(0, b"\x01\x05abcde").0, StreamOwner::Http);
        assert_eq!(read(2, b"\x00\x04\x00").0, StreamOwner::Http);
        assert_eq!(owner_of(2, b"\x02"), StreamOwner::Http);
        assert_eq!(owner_of(0, b"\x40\x54"), StreamOwner::Http);
        assert_eq!(owner_of(2, b"\x40\x41"), StreamOwner::Http);
    }

    #[test]
    fn a_signal_value_in_a_longer_varint_is_recognized() {
        // RFC 9000 section 16: only QUIC's frame types must have the shortest encoding.
        let data = b"\x80\x00\x00\x41\x40\x04rest";
        assert_eq!(read(0, data), (StreamOwner::Session { session_id: 4 }, 6));
    }
}
