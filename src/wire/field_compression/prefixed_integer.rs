//! Prefixed integers (RFC 7541 section 5.1, RFC 9204 section 4.1.1).

/// The error for an integer of more than 62 bits. QPACK does not allow larger ones (RFC 9204 section 4.1.1), and in HPACK
/// no larger one is useful.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

/// Appends `value`, of which `prefix_bits` bits are in the first byte; `flags` has the other bits of that byte.
pub fn put(out: &mut Vec<u8>, flags: u8, prefix_bits: u32, value: u64) {
    let prefix_max = (1u64 << prefix_bits) - 1;
    if value < prefix_max {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads an integer with a prefix of `prefix_bits` bits from the front of `data`. Returns its value and its length in
/// bytes; `None` while it is incomplete.
pub fn get(data: &[u8], prefix_bits: u32) -> Result<Option<(u64, usize)>, Overflow> {
    let prefix_max = (1u64 << prefix_bits) - 1;
    let Some(&first) = data.first() else {
        return Ok(None);
    };
    let mut value = u64::from(first) & prefix_max;
    if value < prefix_max {
        return Ok(Some((value, 1)));
    }
    for (index, &byte) in data[1..].iter().enumerate() {
        let shift = 7 * index as u32;
        // Nine continuation bytes carry 63 bits. An integer with more of them is too large, or is padded with zeros,
        // which no encoder does.
        if shift > 56 {
            return Err(Overflow);
        }
        value += u64::from(byte & 0x7f) << shift;
        if value >= 1 << 62 {
            return Err(Overflow);
        }
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 2)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_7541_appendix_c_1_examples() {
        let examples: [(u64, u32, &[u8]); 3] = [
            (10, 5, &[0b01010]),
            (1337, 5, &[0b11111, 0b1001_1010, 0b0000_1010]),
            (42, 8, &[0b0010_1010]),
        ];
        for (value, bits, bytes) in examples {
            let mut out = Vec::new();
            put(&mut out, 0, bits, value);
            assert_eq!(out, bytes);
            assert_eq!(get(bytes, bits), Ok(Some((value, bytes.len()))));
            for cut in 0..bytes.len() {
                assert_eq!(get(&bytes[..cut], bits), Ok(None));
            }
        }
    }

    #[test]
    fn the_largest_62_bit_value_fits_and_the_next_does_not() {
        for bits in 3..=8 {
            let mut out = Vec::new();
            put(&mut out, 0, bits, (1 << 62) - 1);
            assert_eq!(get(&out, bits), Ok(Some(((1 << 62) - 1, out.len()))));
            out.clear();
            put(&mut out, 0, bits, 1 << 62);
            assert_eq!(get(&out, bits), Err(Overflow));
        }
        assert_eq!(get(&[0xff; 32], 8), Err(Overflow));
        assert_eq!(get(&[&[0xff][..], &[0x80; 20]].concat(), 8), Err(Overflow));
    }
}
