//! Invariant: no input makes the decoder panic, the insert count never goes down, and the splitting
//! of the encoder stream makes no difference.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_h3::qpack::{Decoder, DecoderSettings};

fuzz_target!(|data: &[u8]| {
    let Some((&capacity, mut rest)) = data.split_first() else {
        return;
    };
    let settings = DecoderSettings {
        max_table_capacity: usize::from(capacity) * 16,
        blocked_streams: 4,
        max_field_section_size: 4096,
        max_fields: 32,
    };
    let mut whole = Decoder::new(settings);
    let mut pieces = Decoder::new(settings);
    let mut stream_id = 0;
    // Chunks of [length and kind][bytes].
    while let Some((&head, tail)) = rest.split_first() {
        let length = usize::from(head >> 1).min(tail.len());
        let (chunk, tail) = tail.split_at(length);
        rest = tail;
        let before = whole.insert_count();
        if head & 1 == 0 {
            let result = whole.handle_encoder_stream(chunk);
            let same = chunk.iter().try_fold(0, |count, byte| {
                Ok(count + pieces.handle_encoder_stream(&[*byte])?)
            });
            assert_eq!(result, same);
            if result.is_err() {
                return;
            }
        } else {
            let result = whole.decode(stream_id, chunk);
            assert_eq!(result, pieces.decode(stream_id, chunk));
            if result.is_err() {
                return;
            }
            stream_id += 4;
        }
        assert!(whole.insert_count() >= before);
    }
    assert_eq!(whole.take_instructions(), pieces.take_instructions());
});
