//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B, RFC 9204 section 4.1.2).
//!
//! The code is canonical: codes of equal length are consecutive numbers in the order of their symbols, and shorter
//! codes come before longer ones. So the lengths alone determine all codes, and a code of more than eight bits is
//! decoded by comparison with the first code of each length. `tests/qpack.rs` of `h3` checks the derived codes with the RFC's
//! examples.

/// The error for bytes that are not Huffman code: they contain EOS, or the padding is longer than seven bits or not
/// all ones.
#[derive(Debug, PartialEq, Eq)]
pub struct Invalid;

/// The length of `data` in Huffman code, in bytes.
pub fn encoded_len(data: &[u8]) -> usize {
    let bits: usize = data
        .iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends `data` in Huffman code. The last byte is padded with ones.
pub fn encode(data: &[u8], out: &mut Vec<u8>) {
    let mut bits = 0u64;
    let mut count = 0u32;
    for &byte in data {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = (bits << length) | u64::from(CODES[usize::from(byte)]);
        count += length;
        // Before a symbol is added `bits` has at most 31 bits, and a code has at most 30, so 64 bits are enough.
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        let padding = 8 - count;
        out.push(((bits << padding) as u8) | ((1u8 << padding) - 1));
    }
}

/// Decodes `data` and appends the result to `out`.
///
/// The result has at most 8/5 of the bytes of `data`, because the shortest code has five bits.
pub fn decode(data: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
    let mut input = data.iter();
    let mut bits = 0u64; // the waiting bits, left-aligned
    let mut count = 0u32;
    loop {
        while count <= 56 {
            let Some(&byte) = input.next() else { break };
            bits |= u64::from(byte) << (56 - count);
            count += 8;
        }
        let short = SHORT[(bits >> 56) as usize];
        let (symbol, length) = if short.length != 0 {
            (short.symbol, u32::from(short.length))
        } else {
            long_code(bits)
        };
        if length > count {
            // The remaining bits are not a complete code, so they must be padding: at most seven bits, all ones (RFC
            // 7541 section 5.2).
            return if count < 8 && bits == !(u64::MAX.checked_shr(count).unwrap_or(0)) {
                Ok(())
            } else {
                Err(Invalid)
            };
        }
        if symbol == EOS {
            return Err(Invalid);
        }
        out.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// Decodes the code at the front of `bits` if it has more than eight bits. Returns the symbol and the length of its
/// code in bits.
fn long_code(bits: u64) -> (u16, u32) {
    let head = (bits >> 32) as u32;
    for range in &LONG {
        if head < range.end {
            let index = (head - range.start) >> (32 - range.length);
            return (
                ORDER[usize::from(range.first) + index as usize],
                u32::from(range.length),
            );
        }
    }
    // The only code left is the last one, EOS: thirty ones.
    (EOS, 30)
}

#[derive(Clone, Copy)]
struct Short {
    symbol: u16,
    length: u8,
}

/// All codes of one length: `start..end` are codes shifted to the left end of 32 bits, `first` is the index in
/// [`ORDER`] of their first symbol.
#[derive(Clone, Copy)]
struct Range {
    start: u32,
    end: u32,
    first: u16,
    length: u8,
}

const EOS: u16 = 256;
const SYMBOLS: usize = 257;

/// The symbols in the order of their codes.
const ORDER: [u16; SYMBOLS] = {
    let mut order = [0; SYMBOLS];
    let mut next = 0;
    let mut length = 0;
    while length <= 30 {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] == length {
                order[next] = symbol as u16;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    order
};

static CODES: [u32; SYMBOLS] = CODE_TABLE;

const CODE_TABLE: [u32; SYMBOLS] = {
    let mut codes = [0u32; SYMBOLS];
    let mut code = 0;
    let mut previous = LENGTHS[ORDER[0] as usize];
    let mut index = 0;
    while index < SYMBOLS {
        let symbol = ORDER[index] as usize;
        code <<= LENGTHS[symbol] - previous;
        previous = LENGTHS[symbol];
        codes[symbol] = code;
        code += 1;
        index += 1;
    }
    codes
};

/// For each byte, the symbol whose code the byte begins with, if that code has at most eight bits; otherwise the
/// length is 0.
static SHORT: [Short; 256] = {
    let mut table = [Short {
        symbol: 0,
        length: 0,
    }; 256];
    let mut symbol = 0;
    while symbol < SYMBOLS {
        let length = LENGTHS[symbol];
        if length <= 8 {
            let first = (CODE_TABLE[symbol] << (8 - length)) as usize;
            let mut index = 0;
            while index < 1 << (8 - length) {
                table[first + index] = Short {
                    symbol: symbol as u16,
                    length,
                };
                index += 1;
            }
        }
        symbol += 1;
    }
    table
};

const LONG_LENGTHS: [u8; 17] = [
    10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30,
];

/// The ranges of the codes longer than eight bits, in ascending order.
static LONG: [Range; LONG_LENGTHS.len()] = {
    let mut ranges = [Range {
        start: 0,
        end: 0,
        first: 0,
        length: 0,
    }; LONG_LENGTHS.len()];
    let mut slot = 0;
    while slot < LONG_LENGTHS.len() {
        let length = LONG_LENGTHS[slot];
        let mut index = 0;
        let mut found = false;
        while index < SYMBOLS {
            let symbol = ORDER[index] as usize;
            if LENGTHS[symbol] == length {
                let code = CODE_TABLE[symbol];
                if !found {
                    ranges[slot].start = code << (32 - length);
                    ranges[slot].first = index as u16;
                    ranges[slot].length = length;
                    found = true;
                }
                let end = ((code as u64) + 1) << (32 - length);
                // The end of the last range would be 2^32. It is stored as u32::MAX, which `head` only equals if all
                // its bits are ones.
                ranges[slot].end = if end > u32::MAX as u64 {
                    u32::MAX
                } else {
                    end as u32
                };
            }
            index += 1;
        }
        slot += 1;
    }
    ranges
};

/// The length in bits of each symbol's code (RFC 7541 appendix B). The last symbol is EOS.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
