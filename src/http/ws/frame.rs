//! A frame (RFC 6455 section 5.2): its header, its encoding, and the masking of its payload.

use bytes::{BufMut, Bytes, BytesMut};

use super::violation::Violation;

/// The side of the connection that this code is. A client masks the frames that it sends, and a server does not (RFC
/// 6455 section 5.1). This also applies over HTTP/3, where masking protects nothing (RFC 8441 section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn read(value: u8) -> Option<Self> {
        Some(match value {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    fn value(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    pub fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub opcode: Opcode,
    pub fin: bool,
    /// True if the message is compressed: its first frame has the bit RSV1 (RFC 7692 section 6).
    pub is_compressed: bool,
    pub length: u64,
    pub mask: Option<[u8; 4]>,
}

impl Header {
    /// Parses a complete header. [`size`](Self::size) has its length. `compresses` is true if messages may be
    /// compressed.
    pub fn read(bytes: &[u8], compresses: bool) -> Result<Self, Violation> {
        let (&[first, second], rest) = bytes.split_first_chunk().ok_or_else(cut)?;
        let opcode = Opcode::read(first & 0x0f);
        let may_compress = compresses && matches!(opcode, Some(Opcode::Text | Opcode::Binary));
        let reserved = if may_compress {
            RSV2 | RSV3
        } else {
            RSV1 | RSV2 | RSV3
        };
        if first & reserved != 0 {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        let opcode = opcode.ok_or(Violation::protocol("an unknown opcode"))?;
        let fin = first & 0x80 != 0;
        let (length, rest) = match second & 0x7f {
            126 => {
                let (&length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
                (u64::from(u16::from_be_bytes(length)), rest)
            }
            127 => {
                let (&length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
                (u64::from_be_bytes(length), rest)
            }
            length => (u64::from(length), rest),
        };
        if length >> 63 != 0 {
            return Err(Violation::protocol("a length above 2^63-1"));
        }
        if opcode.is_control() && (!fin || length > CONTROL_MAX) {
            // RFC 6455 section 5.5: control frames have at most 125 bytes of payload and are not fragmented.
            return Err(Violation::protocol(
                "a control frame that is too long or a fragment",
            ));
        }
        let mask = rest.first_chunk().copied();
        Ok(Self {
            opcode,
            fin,
            is_compressed: first & RSV1 != 0,
            length,
            mask: (second & 0x80 != 0).then_some(mask).flatten(),
        })
    }

    /// The length of a header in bytes, from the header's second byte.
    pub fn size(second: u8) -> usize {
        let length = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if second & 0x80 != 0 { 4 } else { 0 }
    }
}

fn cut() -> Violation {
    Violation::protocol("a frame header that is cut off")
}

/// The header of a frame that is not a fragment and not masked.
#[derive(Debug, Clone, Copy)]
pub struct FrameHead {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl FrameHead {
    /// Encodes the header of a frame whose payload has `length` bytes.
    pub fn new(opcode: Opcode, length: usize) -> Self {
        Self::encode(0x80 | opcode.value(), 0, length)
    }

    fn encode(first: u8, masked: u8, length: usize) -> Self {
        let mut bytes = [0; HEAD_MAX];
        bytes[0] = first;
        let len = match length {
            0..=125 => {
                bytes[1] = masked | length as u8;
                2
            }
            126..=0xffff => {
                bytes[1] = masked | 126;
                bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
                4
            }
            _ => {
                bytes[1] = masked | 127;
                bytes[2..].copy_from_slice(&(length as u64).to_be_bytes());
                HEAD_MAX
            }
        };
        Self { bytes, len }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes a frame that is not a fragment. With a key it is masked.
pub fn frame(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>) -> Bytes {
    encode(0x80 | opcode.value(), payload, mask)
}

/// Encodes a frame of a server that is not a fragment and has a compressed payload.
pub(super) fn compressed(opcode: Opcode, payload: &[u8]) -> Bytes {
    encode(0x80 | RSV1 | opcode.value(), payload, None)
}

fn encode(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Bytes {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let head = FrameHead::encode(first, masked, payload.len());
    // The space is exact, because `freeze` would allocate once more to keep the length of a larger one.
    let header = head.as_bytes().len() + mask.map_or(0, |key| key.len());
    let mut out = BytesMut::with_capacity(header + payload.len());
    out.put_slice(head.as_bytes());
    match mask {
        None => out.put_slice(payload),
        Some(key) => {
            out.put_slice(&key);
            let begin = out.len();
            out.put_slice(payload);
            apply_mask(&mut out[begin..], key);
        }
    }
    out.freeze()
}

/// XORs the payload with the key (RFC 6455 section 5.3). The first byte of the payload uses the first byte of the key.
pub(super) fn apply_mask(payload: &mut [u8], key: [u8; 4]) {
    // Sixteen bytes are masked at a time, so that the compiler emits vector instructions.
    let mut wide = [0; 16];
    wide.chunks_exact_mut(4)
        .for_each(|part| part.copy_from_slice(&key));
    let mut chunks = payload.chunks_exact_mut(16);
    for chunk in &mut chunks {
        chunk
            .iter_mut()
            .zip(wide)
            .for_each(|(byte, key)| *byte ^= key);
    }
    let rest = chunks.into_remainder();
    rest.iter_mut()
        .zip(wide)
        .for_each(|(byte, key)| *byte ^= key);
}

/// The reserved bits. RSV1 marks a compressed message (RFC 7692 section 6).
const RSV1: u8 = 0x40;
const RSV2: u8 = 0x20;
const RSV3: u8 = 0x10;
/// The maximum payload of a control frame in bytes (RFC 6455 section 5.5).
const CONTROL_MAX: u64 = 125;
pub(super) const HEADER_MAX: usize = 14;
/// The maximum length of a header without a key.
const HEAD_MAX: usize = 10;
