//! QPACK: the RFC's examples byte for byte, every symbol of the Huffman code, and an encoder with a decoder.
//! Violations are in `rfc9204.rs`. (Python tests compare with another implementation, pylsqpack.)

use crate::common::{fields, qpack::*};
use uringcore_h3::Code;
use uringcore_h3::qpack::{Decoded, huffman};

#[test]
fn rfc_9204_appendix_b() {
    let mut decoder = decoder(220, 16);

    // Appendix B.1: literal field line with name reference.
    let section = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(
        decoded(&mut decoder, 0, section),
        fields(&[(":path", "/index.html")])
    );
    assert_eq!(
        decoder.take_instructions(),
        None,
        "no dynamic reference, nothing to acknowledge"
    );

    // Appendix B.2: capacity 220 and two insertions, and a section that is blocked until they arrive.
    let section = b"\x03\x81\x10\x11";
    assert_eq!(
        decoder.decode(4, section),
        Ok(Decoded::Blocked {
            required_insert_count: 2
        })
    );
    decoder
        .handle_encoder_stream(b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path")
        .unwrap();
    assert_eq!(decoder.insert_count(), 2);
    assert_eq!(
        decoded(&mut decoder, 4, section),
        fields(&[(":authority", "www.example.com"), (":path", "/sample/path")])
    );
    assert_eq!(decoder.take_instructions().as_deref(), Some(&b"\x84"[..]));

    // Appendix B.3: speculative insertion with a literal name.
    decoder
        .handle_encoder_stream(b"\x4acustom-key\x0ccustom-value")
        .unwrap();
    assert_eq!(decoder.take_instructions().as_deref(), Some(&b"\x01"[..]));

    // Appendix B.4: a duplicate, a section with relative references, and a stream cancellation.
    decoder.handle_encoder_stream(b"\x02").unwrap();
    let section = b"\x05\x00\x80\xc1\x81";
    assert_eq!(
        decoded(&mut decoder, 8, section),
        fields(&[
            (":authority", "www.example.com"),
            (":path", "/"),
            ("custom-key", "custom-value")
        ])
    );
    // (The RFC's example cancels stream 8 without decoding it.)
    assert_eq!(decoder.take_instructions().as_deref(), Some(&b"\x88"[..]));
    decoder.cancel_stream(8);
    assert_eq!(decoder.take_instructions().as_deref(), Some(&b"\x48"[..]));

    // Appendix B.5: an insertion with a dynamic name reference, which evicts the oldest entry.
    decoder
        .handle_encoder_stream(b"\x81\x0dcustom-value2")
        .unwrap();
    assert_eq!(decoder.insert_count(), 5);
    // A reference to the evicted entry: absolute index 0, with base 5.
    let evicted = decoder.decode(12, b"\x06\x00\x84");
    assert_eq!(
        connection_code(evicted.unwrap_err()),
        Code::QPACK_DECOMPRESSION_FAILED
    );
}

#[test]
fn rfc_7541_appendix_c_4_huffman_examples() {
    let examples: [(&str, &[u8]); 4] = [
        (
            "www.example.com",
            b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
        ),
        ("no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
        ("custom-key", b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f"),
        ("custom-value", b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf"),
    ];
    for (text, code) in examples {
        let mut out = Vec::new();
        huffman::encode(text.as_bytes(), &mut out);
        assert_eq!(out, code);
        assert_eq!(huffman::encoded_len(text.as_bytes()), code.len());
        let mut back = Vec::new();
        huffman::decode(code, &mut back).unwrap();
        assert_eq!(back, text.as_bytes());
    }
}

#[test]
fn every_huffman_symbol_survives_alone_and_among_others() {
    for symbol in 0..=255u8 {
        for text in [
            vec![symbol],
            vec![symbol; 9],
            vec![b'a', symbol, b'0', symbol, 0xff, symbol],
        ] {
            let mut code = Vec::new();
            huffman::encode(&text, &mut code);
            let mut back = Vec::new();
            huffman::decode(&code, &mut back).unwrap();
            assert_eq!(back, text, "symbol {symbol}");
        }
    }
}

#[test]
fn bad_huffman_padding_and_eos_are_refused() {
    let mut out = Vec::new();
    // The code of EOS, padding of a whole byte, padding that is not all ones, and an incomplete long code.
    for bad in [&b"\xff\xff\xff\xff"[..], b"\x1f\xff", b"\x18", b"\xff\xfe"] {
        assert_eq!(
            huffman::decode(bad, &mut out),
            Err(huffman::Invalid),
            "{bad:x?}"
        );
    }
    out.clear();
    // The code of "a" is 00011, and its padding is 111.
    huffman::decode(b"\x1f", &mut out).unwrap();
    assert_eq!(out, b"a");
}

/// Passes header lists through an encoder and a decoder that exchange their instruction streams.
fn exchange(may_block: bool, feed_byte_by_byte: bool) -> (usize, usize) {
    let mut encoder = encoder(4096, may_block, 4096, 16);
    let mut decoder = decoder(4096, 16);
    let (mut first_size, mut last_size) = (0, 0);
    for round in 0..50u64 {
        let stream_id = round * 4;
        let path = format!("/item/{round}");
        let list = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "service.example.org"),
            (":path", &path),
            ("user-agent", "uringcore-test/1.0 (some length to save)"),
            ("accept-language", "de-DE,de;q=0.9,en;q=0.8"),
            ("x-custom", "the same each time"),
            ("authorization", "Bearer 0123456789"),
        ];
        let section = encode(&mut encoder, stream_id, &list);
        last_size = section.len();
        if round == 0 {
            first_size = section.len();
        }
        if let Some(instructions) = encoder.take_instructions() {
            if feed_byte_by_byte {
                for byte in instructions.iter() {
                    decoder.handle_encoder_stream(&[*byte]).unwrap();
                }
            } else {
                decoder.handle_encoder_stream(&instructions).unwrap();
            }
        }
        assert_eq!(decoded(&mut decoder, stream_id, &section), fields(&list));
        if let Some(instructions) = decoder.take_instructions() {
            for byte in instructions.iter() {
                encoder.handle_decoder_stream(&[*byte]).unwrap();
            }
        }
    }
    assert!(decoder.insert_count() > 0, "the table was never used");
    (first_size, last_size)
}

#[test]
fn repeated_fields_shrink_to_references() {
    for may_block in [false, true] {
        for byte_by_byte in [false, true] {
            let (first, last) = exchange(may_block, byte_by_byte);
            assert!(
                last * 2 < first,
                "{last} of {first} bytes (may_block {may_block})"
            );
        }
    }
}

#[test]
fn without_may_block_nothing_unacknowledged_is_referenced() {
    let mut encoder = encoder(4096, false, 4096, 16);
    let mut decoder = decoder(4096, 0);
    let list = [("x-repeated", "value"), ("x-more", "of it")];
    for stream in 0..10 {
        // The encoder stream never arrives. A decoder that allows no blocked streams must still decode each section.
        let section = encode(&mut encoder, stream * 4, &list);
        assert_eq!(decoded(&mut decoder, stream * 4, &section), fields(&list));
    }
    assert!(
        encoder
            .take_instructions()
            .is_some_and(|bytes| bytes.len() > 3),
        "it did insert"
    );
}

#[test]
fn may_block_stays_within_the_peers_limit() {
    let mut encoder = encoder(4096, true, 4096, 2);
    let mut decoder = decoder(4096, 2);
    let list = [("x-repeated", "value")];
    let mut blocked = Vec::new();
    for stream in 0..8 {
        let section = encode(&mut encoder, stream * 4, &list);
        if let Decoded::Blocked { .. } = decoder.decode(stream * 4, &section).unwrap() {
            blocked.push((stream * 4, section));
        }
    }
    assert_eq!(blocked.len(), 2);
    decoder
        .handle_encoder_stream(&encoder.take_instructions().unwrap())
        .unwrap();
    for (stream_id, section) in blocked {
        assert_eq!(decoded(&mut decoder, stream_id, &section), fields(&list));
    }
    encoder
        .handle_decoder_stream(&decoder.take_instructions().unwrap())
        .unwrap();
}

#[test]
fn a_full_table_evicts_only_unreferenced_entries() {
    let mut encoder = encoder(256, true, 256, 100);
    let mut decoder = decoder(256, 100);
    // Each line is sent twice, so that it is inserted. Acknowledgments are withheld, so that no entry may be evicted.
    let mut sections = Vec::new();
    for round in 0..40u64 {
        let value = format!("value-{:03}", round / 2);
        let list = [("x-name", value.as_str())];
        let section = encode(&mut encoder, round * 4, &list);
        sections.push((round * 4, section, fields(&list)));
    }
    decoder
        .handle_encoder_stream(&encoder.take_instructions().unwrap())
        .unwrap();
    let inserted = decoder.insert_count();
    assert!(
        inserted > 0 && inserted <= 256 / 33,
        "{inserted} insertions"
    );
    for (stream_id, section, expected) in sections {
        assert_eq!(decoded(&mut decoder, stream_id, &section), expected);
    }
    encoder
        .handle_decoder_stream(&decoder.take_instructions().unwrap())
        .unwrap();
    // All sections are acknowledged now, so new entries evict the old ones.
    for round in 0..6u64 {
        let value = format!("later-{:03}", round / 2);
        let list = [("x-name", value.as_str())];
        let section = encode(&mut encoder, 1000 + round * 4, &list);
        if let Some(instructions) = encoder.take_instructions() {
            decoder.handle_encoder_stream(&instructions).unwrap();
        }
        assert_eq!(
            decoded(&mut decoder, 1000 + round * 4, &section),
            fields(&list)
        );
        encoder
            .handle_decoder_stream(&decoder.take_instructions().unwrap_or_default())
            .unwrap();
    }
    assert!(decoder.insert_count() > inserted);
}

#[test]
fn acknowledgments_are_delayed_and_insertions_and_cancellations_are_not() {
    let mut decoder = decoder(220, 16);
    assert!(!decoder.wants_flush());
    decoder
        .handle_encoder_stream(b"\x3f\xbd\x01\xc0\x0fwww.example.com")
        .unwrap();
    assert!(decoder.wants_flush(), "an insertion");
    decoder.take_instructions();
    let mut sections = 0;
    while !decoder.wants_flush() {
        decoded(&mut decoder, 4, b"\x02\x00\x80");
        sections += 1;
        assert!(sections < 100, "acknowledgments have to be sent some time");
    }
    assert!(sections > 1);
    assert_eq!(
        decoder.take_instructions().map(|bytes| bytes.len()),
        Some(sections)
    );
    decoder.cancel_stream(8);
    assert!(decoder.wants_flush(), "a cancellation");
}

#[test]
fn secrets_are_never_indexed() {
    let mut encoder = encoder(4096, false, 4096, 16);
    encoder.take_instructions();
    for stream in 0..4 {
        let section = encode(
            &mut encoder,
            stream * 4,
            &[("authorization", "Basic c2VjcmV0"), ("cookie", "k=1")],
        );
        // Literal Field Line with Name Reference, with the N and T bits set: static entries 84 and 5.
        assert_eq!(&section[..4], b"\x00\x00\x7f\x45");
    }
    assert_eq!(encoder.take_instructions(), None);
}
