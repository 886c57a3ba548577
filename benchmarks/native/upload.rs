//! The verified upload that begins every upload case, and the server's answer to an upload: its
//! count, 8 bytes big-endian, followed by the SHA-256 if bytes are verified. `servers/bulk.py` is
//! the server's half.

use aws_lc_rs::digest::{SHA256, digest};

use crate::Failure;
use crate::pattern::BLOCK;

/// Blocks of the verified upload: 8 MiB.
pub const VERIFIED_BLOCKS: usize = 128;
pub const VERIFIED_BYTES: u64 = (VERIFIED_BLOCKS * BLOCK) as u64;
/// The length of a count.
pub const COUNT: usize = 8;
/// The length of the answer to the verified upload.
pub const VERIFIED_ANSWER: usize = COUNT + 32;

/// Returns the count at the start of an answer.
pub fn count(answer: &[u8]) -> Result<u64, Failure> {
    answer
        .first_chunk::<COUNT>()
        .map(|bytes| u64::from_be_bytes(*bytes))
        .ok_or_else(|| format!("the server answered {} bytes, not a count", answer.len()).into())
}

/// Compares the answer's count with the number of bytes sent.
pub fn check_count(answer: &[u8], expected: u64) -> Result<(), Failure> {
    let count = count(answer)?;
    if count != expected {
        return Err(format!("the server counted {count} bytes of {expected}").into());
    }
    Ok(())
}

/// Compares the answer to an upload of `VERIFIED_BLOCKS` times `block`.
pub fn check_verified(answer: &[u8], block: &[u8]) -> Result<(), Failure> {
    let expected = block.repeat(VERIFIED_BLOCKS);
    check_count(answer, expected.len() as u64)?;
    if &answer[COUNT..] != digest(&SHA256, &expected).as_ref() {
        return Err("the server's SHA-256 of the upload is wrong".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern;

    #[test]
    fn a_wrong_count_and_a_wrong_byte_are_refused() {
        let block = pattern::block();
        let mut uploaded = block.repeat(VERIFIED_BLOCKS);
        let answer = |data: &[u8]| {
            let mut answer = VERIFIED_BYTES.to_be_bytes().to_vec();
            answer.extend_from_slice(digest(&SHA256, data).as_ref());
            answer
        };
        let right = answer(&uploaded);
        assert_eq!(right.len(), VERIFIED_ANSWER);
        assert!(check_verified(&right, &block).is_ok());
        assert!(check_count(&right, VERIFIED_BYTES - 1).is_err());
        assert!(check_verified(&right[..COUNT - 1], &block).is_err());
        uploaded[BLOCK + 3] ^= 1;
        assert!(check_verified(&answer(&uploaded), &block).is_err());
    }
}
