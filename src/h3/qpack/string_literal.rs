//! String literals (RFC 9204 section 4.1.2): a length with a Huffman flag, then that many bytes.

use std::ops::Range;

use super::{huffman, prefixed_integer};

/// The length overflows or is above the caller's limit, or the Huffman code is invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct Invalid;

/// Appends `data`, in Huffman code if that is shorter. The flag is the bit above the length's prefix.
pub fn put(out: &mut Vec<u8>, flags: u8, prefix_bits: u32, data: &[u8]) {
    let length = huffman::encoded_len(data);
    if length < data.len() {
        prefixed_integer::put(out, flags | (1 << prefix_bits), prefix_bits, length as u64);
        huffman::encode(data, out);
    } else {
        prefixed_integer::put(out, flags, prefix_bits, data.len() as u64);
        out.extend_from_slice(data);
    }
}

/// Reads one string from the front of `data` and appends it to `out`. Returns its length, or `None` while it is
/// incomplete. `length_max` bounds the encoded length, so that a caller stores a bounded number of bytes while it
/// waits.
pub fn get(
    data: &[u8],
    prefix_bits: u32,
    length_max: usize,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, Invalid> {
    let Some(text) = find(data, prefix_bits, length_max)? else {
        return Ok(None);
    };
    let end = text.end;
    if data[0] & (1 << prefix_bits) != 0 {
        huffman::decode(&data[text], out).map_err(|_| Invalid)?;
    } else {
        out.extend_from_slice(&data[text]);
    }
    Ok(Some(end))
}

/// The range of the encoded text of the string at the front of `data`, or `None` while it is incomplete. The text
/// is not decoded.
pub fn find(
    data: &[u8],
    prefix_bits: u32,
    length_max: usize,
) -> Result<Option<Range<usize>>, Invalid> {
    let Some((length, used)) = prefixed_integer::get(data, prefix_bits).map_err(|_| Invalid)? else {
        return Ok(None);
    };
    let length = usize::try_from(length).map_err(|_| Invalid)?;
    if length > length_max {
        return Err(Invalid);
    }
    Ok((data.len() - used >= length).then_some(used..used + length))
}
