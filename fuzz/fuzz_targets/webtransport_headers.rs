//! Invariant: the first bytes of a stream give one result, and more bytes do not change it. Until
//! then, the number of missing bytes does not exceed the header.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_http::webtransport::stream_header::{StreamOwner, owner_of};

fuzz_target!(|data: &[u8]| {
    let [stream_id, data @ ..] = data else { return };
    let stream_id = u64::from(*stream_id);
    let mut said = None;
    let mut promised = 0;
    for end in 0..=data.len() {
        let whose = owner_of(stream_id, &data[..end]);
        match (whose, said) {
            (StreamOwner::Unknown { lacks }, None) => {
                assert!((1..=8).contains(&lacks) && end < 16);
                promised = promised.max(end + lacks);
            }
            (whose, None) => {
                // Other streams may be recognised at their first byte; a session's header has the
                // promised length.
                assert!(
                    whose == StreamOwner::Http || promised <= end,
                    "{promised} {end}"
                );
                said = Some(whose);
            }
            (whose, Some(said)) => assert_eq!(whose, said),
        }
    }
});
