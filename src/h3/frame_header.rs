//! The codec of frame headers (RFC 9114 section 7.1): a type and a length.
//!
//! Not here: the types (`frame_type`), the meaning of frames, and the streams on which they are allowed.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uringcore_wire::varint;

/// Buffers one or two variable-length integers that arrive in pieces: a frame's type and length, or a stream's type
/// and the integer after it.
#[derive(Debug, Default, Clone, Copy)]
pub struct HeaderBuffer {
    bytes: [u8; 2 * varint::SIZE_MAX],
    length: u8,
}

impl HeaderBuffer {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reads two integers from the buffered bytes and the front of `data`, and advances `data`. While they are
    /// incomplete, all of `data` is buffered and `None` is returned.
    #[inline]
    pub fn read_pair(&mut self, data: &mut Bytes) -> Option<(u64, u64)> {
        self.read(data, |bytes| {
            let (first, used) = varint::get(bytes)?;
            let (second, more) = varint::get(&bytes[used..])?;
            Some(((first, second), used + more))
        })
    }

    /// Reads one integer like [`read_pair`](Self::read_pair).
    #[inline]
    pub fn read_one(&mut self, data: &mut Bytes) -> Option<u64> {
        self.read(data, varint::get)
    }

    fn read<T>(
        &mut self,
        data: &mut Bytes,
        parse: impl Fn(&[u8]) -> Option<(T, usize)>,
    ) -> Option<T> {
        if self.length == 0 {
            // Usually all bytes of the integers are in `data`, and no buffer is needed.
            if let Some((value, used)) = parse(data) {
                data.advance(used);
                return Some(value);
            }
        }
        let kept = usize::from(self.length);
        let added = data.len().min(self.bytes.len() - kept);
        self.bytes[kept..kept + added].copy_from_slice(&data[..added]);
        match parse(&self.bytes[..kept + added]) {
            Some((value, used)) => {
                self.length = 0;
                data.advance(used - kept);
                Some(value)
            }
            None => {
                // Two integers take at most 16 bytes, so the buffer has room for the missing bytes of an incomplete
                // frame header.
                debug_assert_eq!(added, data.len());
                self.length = (kept + added) as u8;
                data.clear();
                None
            }
        }
    }
}

/// The bytes of a frame header, with the type and the length in their shortest encodings.
#[derive(Debug, Clone, Copy)]
pub struct FrameHeader {
    bytes: [u8; 2 * varint::SIZE_MAX],
    length: u8,
}

impl FrameHeader {
    pub fn new(frame_type: u64, payload_length: u64) -> Self {
        let mut bytes = [0; 2 * varint::SIZE_MAX];
        let mut out = &mut bytes[..];
        varint::put(&mut out, frame_type);
        varint::put(&mut out, payload_length);
        let length = (2 * varint::SIZE_MAX - out.len()) as u8;
        Self { bytes, length }
    }
}

impl std::ops::Deref for FrameHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Encodes a whole frame; its payload is the concatenation of `payload`.
pub fn frame(frame_type: u64, payload: &[&[u8]]) -> Bytes {
    let length = payload.iter().map(|part| part.len()).sum::<usize>();
    let header = FrameHeader::new(frame_type, length as u64);
    let mut out = BytesMut::with_capacity(header.len() + length);
    out.put_slice(&header);
    for part in payload {
        out.put_slice(part);
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_whole_and_byte_by_byte() {
        for (frame_type, length) in [(0, 0), (1, 63), (0x41, 16_384), (varint::MAX, varint::MAX)] {
            let header = FrameHeader::new(frame_type, length);
            let mut whole = Bytes::from([&header[..], b"rest"].concat());
            assert_eq!(
                HeaderBuffer::default().read_pair(&mut whole),
                Some((frame_type, length))
            );
            assert_eq!(&whole[..], b"rest");

            let mut buffer = HeaderBuffer::default();
            for (position, &byte) in header.iter().enumerate() {
                let mut piece = Bytes::copy_from_slice(&[byte]);
                let read = buffer.read_pair(&mut piece);
                assert_eq!(read.is_some(), position + 1 == header.len());
                assert!(piece.is_empty());
            }
            assert!(buffer.is_empty());
        }
    }
}
