//! The codec of frames (RFC 9113 section 4.1), and the frames that this side sends besides HEADERS and DATA.

use super::error::Code;

/// The types of frames (RFC 9113 section 6, RFC 9218 section 7.1).
pub mod kind {
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// The flags of frames.
pub mod flag {
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The bytes that a client sends first (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of a frame header in bytes.
pub const HEADER_BYTES: usize = 9;
/// The maximum payload in bytes that this side accepts, and the smallest maximum that a client may announce (RFC 9113
/// section 4.2).
pub const PAYLOAD_MAX: usize = 16_384;
/// The highest stream identifier and the largest flow-control window.
pub const STREAM_ID_MAX: u32 = (1 << 31) - 1;
pub const WINDOW_MAX: i64 = (1 << 31) - 1;
/// The flow-control window at the beginning of a connection (RFC 9113 section 6.9.2).
pub const INITIAL_WINDOW: i64 = 65_535;

/// The first nine bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream_id: u32,
}

impl FrameHeader {
    /// Reads the header at the front of `input`; `None` if it is incomplete.
    pub fn read(input: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream_id @ ..] = *input.first_chunk::<HEADER_BYTES>()?;
        Some(Self {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            // The first bit is reserved and ignored.
            stream_id: u32::from_be_bytes(stream_id) & STREAM_ID_MAX,
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream_id.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }
}

fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream_id: u32, payload: &[u8]) {
    let header = FrameHeader {
        length: payload.len(),
        kind,
        flags,
        stream_id,
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(payload);
}

pub fn put_rst_stream(out: &mut Vec<u8>, stream_id: u32, code: Code) {
    put(
        out,
        kind::RST_STREAM,
        0,
        stream_id,
        &(code as u32).to_be_bytes(),
    );
}

pub fn put_window_update(out: &mut Vec<u8>, stream_id: u32, increment: u32) {
    put(
        out,
        kind::WINDOW_UPDATE,
        0,
        stream_id,
        &increment.to_be_bytes(),
    );
}

pub fn put_ping(out: &mut Vec<u8>, is_ack: bool, data: &[u8; 8]) {
    let flags = if is_ack { flag::ACK } else { 0 };
    put(out, kind::PING, flags, 0, data);
}

pub fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let mut payload = Vec::with_capacity(settings.len() * 6);
    for (id, value) in settings {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    put(out, kind::SETTINGS, 0, 0, &payload);
}

pub fn put_settings_ack(out: &mut Vec<u8>) {
    put(out, kind::SETTINGS, flag::ACK, 0, &[]);
}

pub fn put_goaway(out: &mut Vec<u8>, last_stream_id: u32, code: Code, reason: &str) {
    let mut payload = Vec::with_capacity(8 + reason.len());
    payload.extend_from_slice(&last_stream_id.to_be_bytes());
    payload.extend_from_slice(&(code as u32).to_be_bytes());
    payload.extend_from_slice(reason.as_bytes());
    put(out, kind::GOAWAY, 0, 0, &payload);
}

/// Removes the padding of a DATA or HEADERS frame (RFC 9113 section 6.1). `None` if the padding is longer than the
/// payload.
pub fn unpadded(payload: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = payload.split_first()?;
    rest.len()
        .checked_sub(usize::from(length))
        .map(|end| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = FrameHeader {
            length: 0x01_02_03,
            kind: kind::PING,
            flags: 0x81,
            stream_id: 0x7f_ee_dd_cc,
        };
        let bytes = header.encode();
        assert_eq!(bytes, [1, 2, 3, 6, 0x81, 0x7f, 0xee, 0xdd, 0xcc]);
        assert_eq!(FrameHeader::read(&bytes), Some(header));
        for end in 0..HEADER_BYTES {
            assert_eq!(FrameHeader::read(&bytes[..end]), None);
        }
    }

    #[test]
    fn the_reserved_bit_of_a_stream_identifier_is_ignored() {
        let bytes = [0, 0, 0, 0, 0, 0x80, 0, 0, 5];
        assert_eq!(FrameHeader::read(&bytes).map(|it| it.stream_id), Some(5));
    }

    #[test]
    fn padding_is_shorter_than_the_payload() {
        assert_eq!(unpadded(&[2, b'a', 0, 0]), Some(&b"a"[..]));
        assert_eq!(unpadded(&[3, b'a', 0, 0]), Some(&b""[..]));
        assert_eq!(unpadded(&[4, b'a', 0, 0]), None);
        assert_eq!(unpadded(&[0]), Some(&b""[..]));
        assert_eq!(unpadded(&[]), None);
    }
}
