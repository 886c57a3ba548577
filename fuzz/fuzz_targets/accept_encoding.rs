//! Invariant: no value of Accept-Encoding makes a panic. Accepted codings are among the offered ones, each once.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_http::content_coding::{Coding, accepted};

fuzz_target!(|value: &[u8]| {
    let offered = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
    let found = accepted(value, &offered);
    assert!(found.len() <= offered.len());
    for (at, coding) in found.iter().enumerate() {
        assert!(!found[..at].contains(coding));
    }
});
