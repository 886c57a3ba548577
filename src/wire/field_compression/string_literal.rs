//! String literals (RFC 7541 section 5.2, RFC 9204 section 4.1.2): a Huffman flag and a length, then that many bytes.

use std::ops::Range;

use super::{huffman, prefixed_integer};

/// The error for a string whose length overflows or exceeds the caller's limit, or whose Huffman code is invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct Invalid;

/// Appends `data`, in Huffman code if that is shorter. The bit above the prefix of the length is the Huffman flag.
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

/// Reads one string from the front of `data` and appends its decoded bytes to `out`. Returns the length of its
/// encoding; `None` while it is incomplete. `length_max` limits the encoded length, and so the bytes that a caller
/// buffers while the string is incomplete.
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

/// The range in `data` of the encoded bytes of the string at its front, which are not decoded; `None` while the string
/// is incomplete.
pub fn find(
    data: &[u8],
    prefix_bits: u32,
    length_max: usize,
) -> Result<Option<Range<usize>>, Invalid> {
    let Some((length, used)) = prefixed_integer::get(data, prefix_bits).map_err(|_| Invalid)?
    else {
        return Ok(None);
    };
    let length = usize::try_from(length).map_err(|_| Invalid)?;
    if length > length_max {
        return Err(Invalid);
    }
    Ok((data.len() - used >= length).then_some(used..used + length))
}
