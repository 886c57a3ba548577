//! Invariant: no input makes the decoder panic, a section never exceeds its bounds, and the encoder's block for a
//! section decodes to that section.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_http::http2::hpack::{Bounds, Decoder, Encoder};

const BOUNDS: Bounds = Bounds {
    bytes: 4096,
    fields: 32,
};

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::default();
    let mut encoder = Encoder::default();
    let mut mirror = Decoder::default();
    let mut rest = data;
    // Blocks of [length][bytes].
    while let Some((&head, tail)) = rest.split_first() {
        let (block, tail) = tail.split_at(usize::from(head).min(tail.len()));
        rest = tail;
        let Ok(section) = decoder.decode(block, BOUNDS) else {
            return;
        };
        let sizes = section
            .fields
            .iter()
            .map(|(name, value)| name.len() + value.len() + 32);
        assert!(section.fields.len() <= 32 && sizes.sum::<usize>() <= 4096);
        if head % 7 == 0 {
            encoder.set_table_max(u32::from(head) * 8);
        }
        let mut encoded = Vec::new();
        encoder.begin(&mut encoded);
        for (name, value) in &section.fields {
            encoder.field(&mut encoded, name, value);
        }
        let decoded = mirror.decode(&encoded, BOUNDS).expect("our own block");
        assert_eq!(decoded.fields, section.fields);
    }
});
