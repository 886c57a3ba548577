//! Reactions to violations of RFC 9204, each test named after its section. Correct behaviour is in `qpack.rs`.

use crate::common::{qpack::*, violations::*, *};
use uringcore_h3::Role::{Client, Server};
use uringcore_h3::qpack::{Decoded, prefixed_integer};
use uringcore_h3::{Code, Settings};

const ENCODER_ERROR: Code = Code::QPACK_ENCODER_STREAM_ERROR;
const DECODER_ERROR: Code = Code::QPACK_DECODER_STREAM_ERROR;
const FAILED: Code = Code::QPACK_DECOMPRESSION_FAILED;

/// Expects that instructions of an encoder stream are an error, for a decoder alone and for a connection. The capacity
/// is set to 100 bytes before them, unless the first instruction sets it.
#[track_caller]
fn encoder_stream_closes(instructions: &[u8]) {
    let whole = decoder(4096, 16).handle_encoder_stream(instructions);
    assert_eq!(whole.expect_err("a fault").code, ENCODER_ERROR);
    let stream = [b"\x02", instructions].concat();
    closes(Server, 6, &stream, ENCODER_ERROR);
    closes(Client, 7, &stream, ENCODER_ERROR);
}

/// Expects that instructions of a decoder stream are an error.
#[track_caller]
fn decoder_stream_closes(instructions: &[u8]) {
    let whole = encoder(4096, false, 4096, 16).handle_decoder_stream(instructions);
    assert_eq!(whole.expect_err("a fault").code, DECODER_ERROR);
    let stream = [b"\x03", instructions].concat();
    closes(Server, 10, &stream, DECODER_ERROR);
    closes(Client, 11, &stream, DECODER_ERROR);
}

/// Expects that a field section is an error for a decoder whose table has at most two entries, so that encoded insert
/// counts wrap around at four.
#[track_caller]
fn section_fails(section: &[u8]) {
    let error = decoder(64, 0).decode(0, section).expect_err("a fault");
    assert_eq!(connection_code(error), FAILED);
}

// Section 2.1.2: blocked streams ----------------------------------------------------------------------

#[test]
fn section_2_1_2_more_blocked_streams_than_allowed_are_an_error() {
    let mut decoder = decoder(220, 2);
    let section = b"\x03\x81\x10\x11";
    for stream_id in [0, 4, 0] {
        assert!(matches!(
            decoder.decode(stream_id, section),
            Ok(Decoded::Blocked { .. })
        ));
    }
    let error = decoder.decode(8, section).unwrap_err();
    assert_eq!(connection_code(error), FAILED);

    let mut server = ready(Server, Settings::default());
    for stream in 0..=16 {
        let blocked = frame(0x1, b"\x02\x00\x80");
        server.handle_stream_data(stream * 4, blocked.into(), false);
    }
    assert_eq!(close_code(&mut server), Some(FAILED));
}

// Section 2.2.1: blocked decoding, and impossible references ------------------------------------------

#[test]
fn section_2_2_1_a_blocked_section_keeps_its_required_insert_count() {
    // The table has two entries, so encoded insert counts repeat after four insertions.
    let mut decoder = decoder(64, 16);
    assert_eq!(
        decoder.decode(0, b"\x02\x00\x80"),
        Ok(Decoded::Blocked {
            required_insert_count: 1
        })
    );
    // Five insertions follow at once. A correct encoder would not make them before the peer has acknowledged the
    // section.
    decoder
        .handle_encoder_stream(b"\x3f\x21\x41a\x01b\x00\x00\x00\x00")
        .unwrap();
    assert_eq!(decoder.insert_count(), 5);
    let evicted = decoder.decode(0, b"\x02\x00\x80");
    assert_eq!(connection_code(evicted.unwrap_err()), FAILED);
}

#[test]
fn section_2_2_1_a_reference_beyond_the_required_insert_count_is_an_error() {
    // The encoder stream inserts two entries. The section refers to the second entry, but its required insert count is
    // one.
    let mut decoder = decoder(64, 16);
    decoder
        .handle_encoder_stream(b"\x3f\x21\x40\x00\x00")
        .unwrap();
    for section in [&b"\x02\x00\x10"[..], b"\x02\x01\x80", b"\x02\x00\x00\x00"] {
        let error = decoder.decode(0, section).unwrap_err();
        assert_eq!(connection_code(error), FAILED, "{section:?}");
    }
    assert!(matches!(
        decoder.decode(0, b"\x02\x00\x80"),
        Ok(Decoded::Fields(_))
    ));
}

#[test]
fn section_2_2_1_a_reference_to_an_evicted_entry_is_an_error() {
    let mut decoder = decoder(64, 16);
    decoder
        .handle_encoder_stream(b"\x3f\x21\x40\x00\x00\x00")
        .unwrap();
    let error = decoder.decode(0, b"\x04\x00\x82").unwrap_err();
    assert_eq!(connection_code(error), FAILED);
}

#[test]
fn section_2_2_1_a_dynamic_reference_without_an_insert_count_is_an_error() {
    section_fails(b"\x00\x00\x80");
    section_fails(b"\x00\x00\x10");
    section_fails(b"\x00\x00\x40\x01a");
    section_fails(b"\x00\x00\x00\x01a");
}

#[test]
fn section_2_2_2_2_a_cancelled_stream_need_not_have_sections() {
    encoder(4096, false, 4096, 16)
        .handle_decoder_stream(b"\x48")
        .unwrap();
}

// Section 2.2.3: invalid references -------------------------------------------------------------------

#[test]
fn section_2_2_3_a_static_entry_that_does_not_exist_is_an_error() {
    section_fails(b"\x00\x00\xff\x24");
    section_fails(b"\x00\x00\x5f\x54\x01a");
    encoder_stream_closes(b"\x3f\x45\xff\x24\x01a");
}

#[test]
fn section_2_2_3_a_dynamic_entry_that_does_not_exist_is_an_error() {
    encoder_stream_closes(b"\x3f\x45\x80\x01a");
    encoder_stream_closes(b"\x3f\x45\x00");
}

// Section 3.2: the dynamic table ----------------------------------------------------------------------

#[test]
fn section_3_2_2_an_entry_larger_than_the_table_is_an_error() {
    encoder_stream_closes(b"\x3f\x02\xc0\x0fwww.example.com");
    // The capacity is 0, so no entry fits.
    encoder_stream_closes(b"\xc0\x01a");
}

#[test]
fn section_3_2_3_a_capacity_above_the_limit_is_an_error() {
    // A capacity of 4097 bytes, and for a decoder without a table one of 1 byte.
    encoder_stream_closes(b"\x3f\xe2\x1f");
    let error = decoder(0, 0).handle_encoder_stream(b"\x21").unwrap_err();
    assert_eq!(error.code, ENCODER_ERROR);
    decoder(0, 0).handle_encoder_stream(b"\x20").unwrap();
}

// Section 4.1: primitives -----------------------------------------------------------------------------

#[test]
fn section_4_1_1_an_integer_above_62_bits_is_an_error() {
    encoder_stream_closes(b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    decoder_stream_closes(b"\x3f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    section_fails(b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
}

#[test]
fn section_4_1_2_an_invalid_huffman_code_is_an_error() {
    encoder_stream_closes(b"\x3f\x45\xc0\x84\xff\xff\xff\xff");
    section_fails(b"\x00\x00\x51\x84\xff\xff\xff\xff");
}

#[test]
fn section_4_1_2_a_string_that_cannot_fit_is_refused_by_its_length() {
    let mut decoder = decoder(4096, 16);
    decoder.handle_encoder_stream(b"\x3f\xe1\x1f").unwrap();
    // Insert with Literal Name, with a name of 2^20 bytes.
    let mut length = Vec::new();
    prefixed_integer::put(&mut length, 0x40, 5, 1 << 20);
    assert!(decoder.handle_encoder_stream(&length).is_err());
}

// Section 4.2: encoder and decoder streams ------------------------------------------------------------

#[test]
fn section_4_2_there_is_one_stream_of_each() {
    for (role, streams) in [(Server, [14, 18]), (Client, [15, 19])] {
        for stream_type in [2, 3] {
            let mut connection = ready(role, Settings::default());
            for stream_id in streams {
                connection.handle_stream_data(stream_id, vec![stream_type].into(), false);
            }
            let code = Some(Code::H3_STREAM_CREATION_ERROR);
            assert_eq!(close_code(&mut connection), code);
        }
    }
}

#[test]
fn section_4_2_the_streams_are_never_closed() {
    let closed = Code::H3_CLOSED_CRITICAL_STREAM;
    for stream in [&b"\x02"[..], b"\x03"] {
        closes_at_end(Server, 6, stream, closed);
        closes_at_end(Client, 7, stream, closed);
        let mut server = ready(Server, Settings::default());
        server.handle_stream_data(6, stream.to_vec().into(), false);
        server.handle_stream_reset(6, 0);
        assert_eq!(close_code(&mut server), Some(closed));
    }
}

// Section 4.4: decoder instructions -------------------------------------------------------------------

#[test]
fn section_4_4_1_an_acknowledgment_of_no_section_is_an_error() {
    decoder_stream_closes(b"\x84");
}

#[test]
fn section_4_4_3_an_increment_of_zero_or_beyond_the_sent_insertions_is_an_error() {
    decoder_stream_closes(b"\x00");
    decoder_stream_closes(b"\x01");
}

// Section 4.5: field line representations -------------------------------------------------------------

#[test]
fn section_4_5_a_truncated_field_section_is_an_error() {
    section_fails(b"");
    section_fails(b"\x00");
    section_fails(b"\x00\x00\xff");
    section_fails(b"\x00\x00\x51\x0b/index");
    closes(Server, 0, &frame(0x1, b""), FAILED);
    closes(Server, 0, &frame(0x1, b"\x00\x00\x80"), FAILED);
    closes(Client, 0, &frame(0x1, b"\x00\x00\x80"), FAILED);
}

#[test]
fn section_4_5_1_1_a_required_insert_count_out_of_range_is_an_error() {
    section_fails(b"\xff\xf0\x0f\x00");
    section_fails(b"\x05\x00");
}

#[test]
fn section_4_5_1_2_a_negative_base_is_an_error() {
    section_fails(b"\x00\x80");
}
