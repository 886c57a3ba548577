//! Random bytes from the cryptography library, for keys and challenges.

use aws_lc_rs::rand;

pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the system's random number generator works");
    bytes
}
