//! WebSocket messages (RFC 6455), each test named after its section.

use uringcore_http::ws::{Close, Event, Opcode, Reader, Side, Violation, close_codes, frame};

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const MAX: usize = 1 << 20;

/// A frame of a client, which may be invalid.
fn sent(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(Opcode::Binary, payload, Some(KEY)).to_vec();
    bytes[0] = first;
    bytes
}

/// The events that a server reads. The bytes are passed whole, and byte by byte.
#[track_caller]
fn read(bytes: &[u8]) -> Result<Vec<Event>, Violation> {
    read_within(bytes, MAX)
}

#[track_caller]
fn read_within(bytes: &[u8], max: usize) -> Result<Vec<Event>, Violation> {
    let cut = |size| -> Result<Vec<Event>, Violation> {
        let mut reader = Reader::new(Side::Server, max);
        let mut events = Vec::new();
        for mut piece in bytes.chunks(size) {
            while let Some(event) = reader.read(&mut piece)? {
                events.push(event);
            }
        }
        Ok(events)
    };
    let whole = cut(bytes.len().max(1));
    assert_eq!(whole, cut(1));
    assert_eq!(whole, cut(5));
    whole
}

#[track_caller]
fn refused(bytes: &[u8]) -> u16 {
    read(bytes).unwrap_err().code
}

fn text(value: &str) -> Event {
    Event::Text(value.into())
}

#[test]
fn section_5_2_frames_of_all_lengths_are_read_back() {
    for length in [0, 1, 15, 16, 17, 125, 126, 127, 65_535, 65_536, 100_000] {
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let bytes = frame(Opcode::Binary, &payload, Some(KEY));
        assert_eq!(read(&bytes), Ok(vec![Event::Binary(payload)]));
    }
}

#[test]
fn section_5_2_reserved_bits_and_opcodes_are_errors() {
    for first in [0xc1, 0xa1, 0x91, 0x83, 0x87, 0x8b, 0x8f] {
        assert_eq!(
            refused(&sent(first, b"x")),
            close_codes::PROTOCOL_ERROR,
            "{first:x}"
        );
    }
    let endless = [0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    assert_eq!(refused(&endless), close_codes::PROTOCOL_ERROR);
}

#[test]
fn section_5_1_a_client_masks_and_a_server_does_not() {
    assert_eq!(
        refused(&frame(Opcode::Text, b"x", None)),
        close_codes::PROTOCOL_ERROR
    );
    let mut client = Reader::new(Side::Client, MAX);
    let bytes = frame(Opcode::Text, b"x", None);
    assert_eq!(client.read(&mut &bytes[..]), Ok(Some(text("x"))));
    let masked = frame(Opcode::Text, b"x", Some(KEY));
    let fault = client.read(&mut &masked[..]).unwrap_err();
    assert_eq!(fault.code, close_codes::PROTOCOL_ERROR);
}

#[test]
fn section_5_3_the_example_of_section_5_7_is_unmasked() {
    let hello = [
        0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    assert_eq!(read(&hello), Ok(vec![text("Hello")]));
    assert_eq!(frame(Opcode::Text, b"Hello", Some(KEY)), hello[..]);
}

#[test]
fn section_5_4_fragments_are_one_message_and_control_frames_come_between_them() {
    let bytes = [
        sent(0x01, "grün".as_bytes().split_at(3).0),
        sent(0x89, b"between"),
        sent(0x00, b""),
        sent(0x8a, b"pong"),
        sent(0x80, "grün".as_bytes().split_at(3).1),
        sent(0x82, b"next"),
    ];
    assert_eq!(
        read(&bytes.concat()),
        Ok(vec![
            Event::Ping(b"between".to_vec()),
            Event::Pong(b"pong".to_vec()),
            text("grün"),
            Event::Binary(b"next".to_vec()),
        ])
    );
}

#[test]
fn section_5_4_fragments_out_of_order_are_an_error() {
    assert_eq!(refused(&sent(0x80, b"x")), close_codes::PROTOCOL_ERROR);
    let inside = [sent(0x01, b"x"), sent(0x81, b"y")].concat();
    assert_eq!(refused(&inside), close_codes::PROTOCOL_ERROR);
}

#[test]
fn section_5_5_control_frames_are_short_and_whole() {
    for opcode in [0x8, 0x9, 0xa] {
        assert_eq!(refused(&sent(opcode, b"")), close_codes::PROTOCOL_ERROR);
        assert_eq!(
            refused(&sent(0x80 | opcode, &[0; 126])),
            close_codes::PROTOCOL_ERROR
        );
    }
    let longest = read(&sent(0x89, &[7; 125]));
    assert_eq!(longest, Ok(vec![Event::Ping(vec![7; 125])]));
}

#[test]
fn section_5_5_1_frames_after_a_close_are_not_read() {
    let close = Close {
        code: 4001,
        reason: "enough".into(),
    };
    let bytes = Event::Close(close.clone()).to_frame(Some(KEY));
    let both = [&bytes[..], &sent(0x81, b"more"), b"\xff\xff\xff"].concat();
    assert_eq!(read(&both), Ok(vec![Event::Close(close)]));
    let without = read(&sent(0x88, b"")).unwrap();
    let [Event::Close(close)] = &without[..] else {
        panic!("{without:?}")
    };
    assert_eq!((close.code, &*close.reason), (close_codes::NO_STATUS, ""));
}

#[test]
fn section_8_1_text_is_utf_8_across_fragments() {
    assert_eq!(
        refused(&sent(0x81, b"\xc3\x28")),
        close_codes::INVALID_PAYLOAD
    );
    let surrogate = [sent(0x01, b"\xed\xa0"), sent(0x80, b"\x80")].concat();
    assert_eq!(refused(&surrogate), close_codes::INVALID_PAYLOAD);
    assert!(read(&sent(0x82, b"\xc3\x28")).is_ok());
}

#[test]
fn section_8_1_invalid_text_fails_before_its_message_ends() {
    for bytes in [
        sent(0x01, b"\xc3\x28"),
        [sent(0x01, b"\xe2\x82"), sent(0x00, b"\x28")].concat(),
        sent(0x81, b"a\xffb")[..8].to_vec(),
    ] {
        assert_eq!(refused(&bytes), close_codes::INVALID_PAYLOAD);
    }
    let euro = [
        sent(0x01, b"\xe2\x82"),
        sent(0x89, b"\xff"),
        sent(0x80, b"\xac"),
    ]
    .concat();
    let events = read(&euro).unwrap();
    assert_eq!(events, [Event::Ping(vec![0xff]), text("\u{20ac}")]);
}

#[test]
fn section_10_4_a_too_big_message_is_refused_by_its_length_alone() {
    let exact = sent(0x82, &[0; 100]);
    assert!(read_within(&exact, 100).is_ok());
    assert_eq!(
        read_within(&exact, 99).unwrap_err().code,
        close_codes::TOO_BIG
    );
    let fragments = [sent(0x02, &[0; 60]), sent(0x80, &[0; 41])].concat();
    assert_eq!(
        read_within(&fragments, 100).unwrap_err().code,
        close_codes::TOO_BIG
    );
    // Only the header of the frame has arrived.
    let header = &sent(0x82, &[0; 70_000])[..14];
    assert_eq!(
        read_within(header, 100).unwrap_err().code,
        close_codes::TOO_BIG
    );
    // The memory does not grow with the announced length.
    let mut reader = Reader::new(Side::Server, MAX);
    let bytes = sent(0x82, &[0; 70_000]);
    assert_eq!(reader.read(&mut &bytes[..20]), Ok(None));
    assert!(reader.held_bytes() < 20);
}

#[test]
fn the_result_of_any_bytes_is_independent_of_the_size_of_pieces() {
    // Valid frames in which some bytes were changed.
    let mut random = 24_301_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    let mut outcomes = [0; 2];
    for _ in 0..5_000 {
        let mut bytes = Vec::new();
        for _ in 0..next(6) {
            let first = [0x01, 0x02, 0x00, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8a][next(9)];
            let size = [0, 1, 5, 125, 126, 300][next(6)];
            bytes.extend(sent(first, &vec![0x41; size]));
        }
        for _ in 0..next(3) {
            if !bytes.is_empty() {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }
        }
        let read = read_within(&bytes, 400);
        outcomes[usize::from(read.is_ok())] += 1;
    }
    assert!(outcomes.iter().all(|&count| count > 500), "{outcomes:?}");
}
