//! Invariant: reading a PROXY header does not panic on any input. A header that is complete is read alike with more bytes
//! behind it, needs all of its own bytes, and lies within the input.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_http::proxy_protocol::ProxyHeader;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(header)) = ProxyHeader::read(bytes) else {
        return;
    };
    assert!(header.length <= bytes.len());
    let own = &bytes[..header.length];
    assert_eq!(ProxyHeader::read(own), Ok(Some(header)));
    for end in (0..own.len()).step_by(1 + own.len() / 64) {
        assert_eq!(ProxyHeader::read(&own[..end]), Ok(None));
    }
});
