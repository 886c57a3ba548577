//! Invariant: the capsules read from a CONNECT stream do not depend on its splitting, and the
//! reader keeps no more than the longest known capsule.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::capsule::{Capsules, TooLong};
use uringcore_http::webtransport::session_capsule::{Capsule, Malformed, longest, read};

type Found = Vec<Result<Capsule, Malformed>>;

fuzz_target!(|data: &[u8]| {
    let [cut, data @ ..] = data else { return };
    let whole = all(data, data.len().max(1));
    let pieces = all(data, usize::from(*cut).max(1));
    assert_eq!(whole, pieces);
});

fn all(data: &[u8], size: usize) -> (Found, Result<bool, TooLong>) {
    let mut capsules = Capsules::default();
    let mut found = Vec::new();
    for piece in data.chunks(size) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match capsules.next(&mut piece, longest) {
                Ok(Some((kind, value))) => {
                    assert!(longest(kind).is_some_and(|max| value.len() <= max));
                    found.push(read(kind, value));
                }
                Ok(None) => break,
                Err(error) => return (found, Err(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (found, Ok(capsules.is_at_boundary()))
}
