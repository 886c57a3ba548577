//! Capsules (RFC 9297 section 3.2). The content of a request consists of capsules if its upgrade token (`:protocol`)
//! uses the Capsule Protocol.
//!
//! Not here: the meaning of capsule types, and the reaction to a malformed capsule.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uringcore_wire::varint;

use super::frame_header::HeaderBuffer;

/// Splits arriving data into capsules.
///
/// At most the value of one capsule is buffered, and the caller limits its length. Capsules of unwanted types are
/// skipped as they arrive, at any length (RFC 9297 section 3.2).
#[derive(Debug, Default)]
pub struct Capsules {
    header: HeaderBuffer,
    /// The type of the capsule that is being received, if the host wants capsules of that type, and the number of bytes
    /// that its value still lacks.
    wanted: Option<(u64, usize)>,
    value: BytesMut,
    /// The number of bytes of an unwanted capsule that are still to be skipped.
    skip: u64,
}

/// The error for a capsule of a wanted type whose value is longer than that type allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl Capsules {
    /// Reads the next wanted capsule from `data`, and advances `data`. Returns `None` when `data` is empty. For a
    /// capsule type, `longest` returns the maximum length of its value, or `None` if the type is not wanted.
    pub fn next(
        &mut self,
        data: &mut Bytes,
        longest: impl Fn(u64) -> Option<usize>,
    ) -> Result<Option<(u64, Bytes)>, TooLong> {
        loop {
            if let Some((kind, missing)) = self.wanted {
                let piece = data.split_to(missing.min(data.len()));
                self.value.extend_from_slice(&piece);
                if piece.len() < missing {
                    self.wanted = Some((kind, missing - piece.len()));
                    return Ok(None);
                }
                self.wanted = None;
                return Ok(Some((kind, std::mem::take(&mut self.value).freeze())));
            }
            let skipped = self.skip.min(data.len() as u64);
            data.advance(skipped as usize);
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(None);
            }
            let Some((kind, length)) = self.header.read_pair(data) else {
                return Ok(None);
            };
            match longest(kind) {
                None => self.skip = length,
                Some(max) if length > max as u64 => return Err(TooLong),
                Some(_) => self.wanted = Some((kind, length as usize)),
            }
        }
    }

    /// True if the data so far ends with a complete capsule. A message that ends in the middle of a capsule is
    /// malformed (RFC 9297 section 3.3).
    pub fn is_at_boundary(&self) -> bool {
        self.header.is_empty() && self.wanted.is_none() && self.skip == 0
    }
}

/// Appends a capsule.
pub fn put(out: &mut BytesMut, kind: u64, value: &[u8]) {
    varint::put(out, kind);
    varint::put(out, value.len() as u64);
    out.put_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(kind: u64) -> Option<usize> {
        (kind == 0x2843).then_some(8)
    }

    fn all(capsules: &mut Capsules, data: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut data = Bytes::copy_from_slice(data);
        let mut next = || capsules.next(&mut data, longest).unwrap();
        let known = std::iter::from_fn(&mut next);
        known.map(|(kind, value)| (kind, value.to_vec())).collect()
    }

    fn written() -> BytesMut {
        let mut out = BytesMut::new();
        put(&mut out, 0x2843, b"abcd");
        put(&mut out, 0x17, &[7; 300]);
        put(&mut out, 0x17, b"");
        put(&mut out, 0x2843, b"");
        out
    }

    #[test]
    fn wanted_capsules_are_found_in_pieces_of_any_size() {
        let expected = [(0x2843, b"abcd".to_vec()), (0x2843, Vec::new())];
        assert_eq!(all(&mut Capsules::default(), &written()), expected);
        let mut capsules = Capsules::default();
        let out = written();
        let bytes = out.chunks(1);
        let found: Vec<_> = bytes.flat_map(|byte| all(&mut capsules, byte)).collect();
        assert_eq!(found, expected);
        assert!(capsules.is_at_boundary());
    }

    #[test]
    fn an_end_inside_a_capsule_is_detected() {
        let out = written();
        for length in 0..=out.len() {
            let mut capsules = Capsules::default();
            all(&mut capsules, &out[..length]);
            let is_end = capsules.is_at_boundary();
            assert_eq!(is_end, end_positions(&out).contains(&length), "{length}");
        }
    }

    fn end_positions(data: &[u8]) -> Vec<usize> {
        let mut ends = vec![0];
        let mut at = 0;
        while at < data.len() {
            let (_, used) = varint::get(&data[at..]).unwrap();
            let (length, more) = varint::get(&data[at + used..]).unwrap();
            at += used + more + length as usize;
            ends.push(at);
        }
        ends
    }

    #[test]
    fn a_capsule_above_the_limit_is_refused_before_it_is_buffered() {
        let mut data = Bytes::from_static(b"\x68\x43\x09");
        let refused = Capsules::default().next(&mut data, longest);
        assert_eq!(refused, Err(TooLong));
    }
}
