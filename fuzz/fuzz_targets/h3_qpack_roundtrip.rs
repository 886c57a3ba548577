//! Invariant: encoded fields decode to equal fields, at any timing of the instruction streams, and
//! without `may_block` the decoder never waits.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::qpack::{Decoded, Decoder, DecoderSettings, Encoder, EncoderSettings, Field};

fuzz_target!(|data: &[u8]| {
    let [options, capacity, script @ ..] = data else {
        return;
    };
    let may_block = options & 1 != 0;
    let capacity = usize::from(*capacity) * 8;
    let blocked_streams = usize::from(options >> 4);
    let mut encoder = Encoder::new(EncoderSettings {
        table_capacity: 1024,
        may_block,
    });
    encoder.handle_settings(capacity as u64, blocked_streams as u64);
    let mut decoder = Decoder::new(DecoderSettings {
        max_table_capacity: capacity,
        blocked_streams,
        max_field_section_size: usize::MAX / 2,
        max_fields: usize::MAX,
    });
    let mut in_flight: Vec<u8> = Vec::new();
    let mut waiting: Vec<(u64, Vec<u8>, Vec<Field>)> = Vec::new();
    let mut stream_id = 0;
    let mut script = script.iter().copied();
    while let Some(step) = script.next() {
        match step & 3 {
            // The encoder stream arrives, and blocked sections continue.
            0 => {
                decoder
                    .handle_encoder_stream(&in_flight)
                    .expect("our own instructions");
                in_flight.clear();
                for (stream_id, section, fields) in waiting.drain(..) {
                    assert_eq!(
                        decoder.decode(stream_id, &section),
                        Ok(Decoded::Fields(fields))
                    );
                }
            }
            // The decoder stream arrives.
            1 => {
                let feedback = decoder.take_instructions().unwrap_or_default();
                encoder
                    .handle_decoder_stream(&feedback)
                    .expect("our own instructions");
            }
            // A section.
            _ => {
                let fields = fields(&mut script, step >> 2);
                let section = encode(&mut encoder, stream_id, &fields);
                in_flight.extend_from_slice(&encoder.take_instructions().unwrap_or_default());
                match decoder
                    .decode(stream_id, &section)
                    .expect("our own section")
                {
                    Decoded::Fields(decoded) => assert_eq!(decoded, fields),
                    Decoded::Blocked { .. } => {
                        assert!(may_block);
                        waiting.push((stream_id, section, fields));
                    }
                }
                stream_id += 4;
            }
        }
    }
});

/// Few different names and values, so that they repeat.
fn fields(script: &mut impl Iterator<Item = u8>, count: u8) -> Vec<Field> {
    let names: [&[u8]; 6] = [
        b":path",
        b"cookie",
        b"x-a",
        b"authorization",
        b"x-longer-name",
        b"",
    ];
    (0..count & 7)
        .map(|_| {
            let choice = script.next().unwrap_or(0);
            let name = names[usize::from(choice & 7) % names.len()];
            let value = vec![choice >> 5; usize::from(choice >> 3) * 3];
            (Bytes::from_static(name), value.into())
        })
        .collect()
}

fn encode(encoder: &mut Encoder, stream_id: u64, fields: &[Field]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut section = encoder.section(stream_id, &mut body);
    for (name, value) in fields {
        section.field(name, value);
    }
    let prefix = section.finish();
    let mut out = body.split_off(prefix);
    out.extend_from_slice(&body);
    out
}
