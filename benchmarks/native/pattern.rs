//! The test pattern: pseudo-random bytes that both ends compute, so that every byte can be checked.

use bytes::Bytes;

/// One write of the bulk cases.
pub const BLOCK: usize = 64 * 1024;

/// The block that bulk streams repeat. `servers/bulk.py` computes the same bytes: a 32-bit linear
/// congruential generator (Knuth's constants), one byte a step, from its top.
pub fn block() -> Vec<u8> {
    bytes(1, BLOCK)
}

pub fn bytes(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Returns the first `length` bytes of the repeated block.
#[must_use]
pub fn repeated(length: usize) -> Bytes {
    let mut bytes = block().repeat(length.div_ceil(BLOCK));
    bytes.truncate(length);
    Bytes::from(bytes)
}

/// Compares `data`, found at `offset` of a stream that repeats `block`; returns the stream offset
/// of the first wrong byte.
pub fn check(block: &[u8], offset: u64, data: &[u8]) -> Result<(), u64> {
    let mut done = 0;
    while done < data.len() {
        let at = ((offset + done as u64) % block.len() as u64) as usize;
        let run = (block.len() - at).min(data.len() - done);
        if data[done..done + run] != block[at..at + run] {
            let wrong = (0..run)
                .find(|&index| data[done + index] != block[at + index])
                .unwrap_or(0);
            return Err(offset + (done + wrong) as u64);
        }
        done += run;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_blocks_pass_the_check() {
        let data = repeated(BLOCK + 7);
        assert_eq!(data.len(), BLOCK + 7);
        assert_eq!(check(&block(), 0, &data), Ok(()));
    }

    #[test]
    fn a_wrong_byte_is_found_across_blocks() {
        let block = block();
        let mut data: Vec<u8> = block.iter().chain(&block).copied().collect();
        assert_eq!(check(&block, 0, &data), Ok(()));
        assert_eq!(check(&block, 7, &data[7..]), Ok(()));
        data[BLOCK + 3] ^= 1;
        assert_eq!(check(&block, 0, &data), Err(BLOCK as u64 + 3));
    }
}
