//! Variable-length integers (RFC 9000 section 16), in QUIC's frames, headers and transport parameters, and in HTTP/3's
//! frames, settings and stream types.
//!
//! Not here: the prefixed integers of HPACK and QPACK, which have another encoding (`field_compression`).

use bytes::BufMut;

/// The largest value that a variable-length integer can carry.
pub const MAX: u64 = (1 << 62) - 1;

/// The maximum length of a variable-length integer in bytes.
pub const SIZE_MAX: usize = 8;

/// The length of `value` in its shortest encoding, in bytes.
///
/// Values above [`MAX`] have no encoding; callers check their values, or have decoded them from a varint.
#[inline]
pub const fn size(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Appends `value` in its shortest encoding.
#[inline]
pub fn put(out: &mut impl BufMut, value: u64) {
    debug_assert!(value <= MAX);
    match size(value) {
        1 => out.put_u8(value as u8),
        2 => out.put_u16(value as u16 | 0x4000),
        4 => out.put_u32(value as u32 | 0x8000_0000),
        _ => out.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// Reads the integer at the front of `data`. Returns its value and its length in bytes; `None` if `data` ends inside
/// it.
#[inline]
pub fn get(data: &[u8]) -> Option<(u64, usize)> {
    let first = *data.first()?;
    Some(match first >> 6 {
        0 => (u64::from(first & 0x3f), 1),
        1 => {
            let value = u16::from_be_bytes(*data.first_chunk()?);
            (u64::from(value & 0x3fff), 2)
        }
        2 => {
            let value = u32::from_be_bytes(*data.first_chunk()?);
            (u64::from(value & 0x3fff_ffff), 4)
        }
        _ => {
            let value = u64::from_be_bytes(*data.first_chunk()?);
            (value & MAX, 8)
        }
    })
}

/// Reads the integer at the front of `rest` and removes it from there.
#[inline]
pub fn take(rest: &mut &[u8]) -> Option<u64> {
    let (value, length) = get(rest)?;
    *rest = &rest[length..];
    Some(value)
}

/// The length in bytes of the integer at the front of `data`, from its first byte.
#[inline]
pub fn size_at(data: &[u8]) -> Option<usize> {
    Some(1 << (data.first()? >> 6))
}

/// Writes `value` into all of `target`. `target` must have 1, 2, 4 or 8 bytes, and enough of them for `value`.
#[inline]
pub fn fill(target: &mut [u8], value: u64) {
    let length = target.len();
    debug_assert!(length.is_power_of_two() && length >= size(value));
    target.copy_from_slice(&value.to_be_bytes()[8 - length..]);
    target[0] |= (length.trailing_zeros() as u8) << 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_9000_appendix_a_1_examples() {
        let examples: [(&[u8], u64); 5] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in examples {
            assert_eq!(get(bytes), Some((value, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(get(&bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn boundaries_survive_a_round_trip_in_their_shortest_form() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out.len(), size(value));
            assert_eq!(get(&out), Some((value, out.len())));
        }
    }

    #[test]
    fn an_integer_in_a_longer_form_than_needed_is_read() {
        for value in [0, 63, 64, 16_383, 16_384, 1 << 40] {
            for wide in [1, 2, 4, 8].into_iter().filter(|wide| *wide >= size(value)) {
                let mut bytes = vec![0; wide];
                fill(&mut bytes, value);
                assert_eq!(size_at(&bytes), Some(wide));
                let mut rest = &bytes[..];
                assert_eq!(take(&mut rest), Some(value), "in {wide} bytes");
                assert!(rest.is_empty());
            }
        }
    }
}
