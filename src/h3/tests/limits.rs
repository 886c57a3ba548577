//! Limits of what a peer can make a connection store or do without use: the reaction above each limit, and that
//! ordinary traffic does not exceed it.

use crate::common::{qpack::*, violations::*, *};
use bytes::Bytes;
use uringcore_h3::Role::{Client, Server};
use uringcore_h3::error::RemoteError;
use uringcore_h3::qpack::{Decoder, DecoderSettings, huffman, prefixed_integer};
use uringcore_h3::settings::id;
use uringcore_h3::{
    Code, Event, HeadersKind, Output, Priority, QueuedConnection, Role, Settings, varint,
};

const LOAD: Code = Code::H3_EXCESSIVE_LOAD;
const TOO_LARGE: [(&str, &str); 1] = [(":status", "431")];

fn give(connection: &mut QueuedConnection, stream_id: u64, data: &[u8]) {
    connection.handle_stream_data(stream_id, Bytes::copy_from_slice(data), false);
}

// Incomplete field sections ---------------------------------------------------------------------------

/// The beginning of a HEADERS frame of 65,000 bytes.
fn endless() -> Vec<u8> {
    varints(&[0x1, 65_000])
}

#[test]
fn the_bytes_of_all_incomplete_field_sections_are_bounded() {
    for (settings, bound) in [
        (Settings::default(), 4 * 65_536),
        (
            Settings {
                max_unfinished_size: Some(100_000),
                ..Settings::default()
            },
            100_000,
        ),
    ] {
        let mut server = ready(Server, settings);
        for stream in 0..128 {
            give(&mut server, stream * 4, &endless());
        }
        let piece = [0; 1_200];
        let mut held = 0;
        for stream in (0..128).cycle() {
            give(&mut server, stream * 4, &piece);
            held += piece.len();
            if server.is_closed() {
                break;
            }
            assert!(held <= bound);
        }
        assert!(held > bound);
        assert_eq!(close_code(&mut server), Some(LOAD));
        assert_eq!(events(&mut server), []);
    }
}

#[test]
fn incomplete_promises_count_too() {
    let settings = Settings {
        max_push_id: Some(8),
        ..Settings::default()
    };
    let mut client = ready(Client, settings);
    for request in 0..5 {
        client.send_headers(request * 4, &GET, true).unwrap();
        give(&mut client, request * 4, &varints(&[0x5, 65_000]));
        give(&mut client, request * 4, &[0; 60_000]);
    }
    assert_eq!(close_code(&mut client), Some(LOAD));
}

#[test]
fn a_field_section_releases_its_bytes_however_it_ends() {
    let mut server = ready(Server, Settings::default());
    let request = headers_frame(&[&GET[..], &[("x", &"y".repeat(60_000))]].concat());
    let (start, end) = request.split_at(50_000);
    for round in 0..20 {
        let stream = round * 16;
        for stream_id in [stream, stream + 4, stream + 8, stream + 12] {
            give(&mut server, stream_id, start);
        }
        give(&mut server, stream, end);
        server.handle_stream_reset(stream + 4, 0);
        server.cancel_request(stream + 8, 0);
        server.handle_stop_sending(stream + 12, 0);
        server.handle_stream_data(stream + 12, Bytes::copy_from_slice(end), true);
        assert!(!server.is_closed(), "round {round}");
        assert_eq!(events(&mut server).len(), 2);
        outputs(&mut server);
    }
}

#[test]
fn a_host_can_find_and_end_streams_without_a_complete_request() {
    let mut server = ready(Server, Settings::default());
    assert!(!server.awaits_headers(0));
    give(&mut server, 0, &endless());
    // A request whose field section waits for QPACK also counts as incomplete.
    give(&mut server, 4, &frame(0x1, b"\x02\x00\x80"));
    give(&mut server, 8, &headers_frame(&GET));
    assert_eq!(
        [0, 4, 8].map(|id| server.awaits_headers(id)),
        [true, true, false]
    );
    events(&mut server);
    let code = Code::H3_REQUEST_REJECTED;
    for stream_id in [0, 4] {
        server.cancel_request(stream_id, code.0);
        let done = outputs(&mut server);
        assert!(done.contains(&Output::ResetStream { stream_id, code }));
        assert!(done.contains(&Output::StopSending { stream_id, code }));
        assert!(!server.awaits_headers(stream_id));
    }
    assert_eq!((events(&mut server), server.open_requests()), (vec![], 1));
}

// Too large field sections, and the response to them --------------------------------------------------

fn answering(settings: Settings) -> QueuedConnection {
    let mut server = ready(Server, settings);
    server.set_answers_large_requests(true);
    server
}

/// Expects that the request is left to the host, with the pseudo-header fields that came before the limit.
#[track_caller]
fn expect_answerable(settings: &Settings, request: &[u8], fin: bool, reported: &[(&str, &str)]) {
    for (feed, strict) in [(Feed::Whole, false), (Feed::ByteByByte, true)] {
        let mut server = answering(settings.clone());
        server.set_strict(strict);
        feed_stream(&mut server, 0, request, fin, feed);
        let event = Event::HeadersTooLarge {
            stream_id: 0,
            fields: fields(reported),
        };
        assert_eq!(events(&mut server), [event]);
        let stop = Output::StopSending {
            stream_id: 0,
            code: Code::H3_NO_ERROR,
        };
        let done = outputs(&mut server);
        let stops = !fin;
        assert_eq!(done.contains(&stop), stops, "{done:?}");
        assert!(
            !done
                .iter()
                .any(|output| matches!(output, Output::ResetStream { .. }))
        );

        // Late data on the stream does not begin a new request, neither before the response nor after it.
        let late = headers_frame(&GET);
        if stops {
            give(&mut server, 0, &late);
        }
        server.send_headers(0, &TOO_LARGE, true).unwrap();
        assert!(matches!(
            outputs(&mut server)[..],
            [Output::Write {
                stream_id: 0,
                fin: true,
                ..
            }]
        ));
        if stops {
            give(&mut server, 0, &late);
        }
        assert_eq!((events(&mut server), server.open_requests()), (vec![], 0));
    }
}

#[test]
fn a_request_too_large_can_be_answered() {
    let small = Settings {
        max_field_section_size: 1_024,
        max_fields: 10,
        ..Settings::default()
    };
    // The frame's header announces a too long section, so the section is rejected before its payload arrives.
    expect_answerable(&small, &varints(&[0x1, 1_025]), false, &[]);
    expect_answerable(&small, &varints(&[0x1, varint::MAX]), false, &[]);
    // Each line alone is below the limit of 1,024 bytes (a line counts its name, its value and 32 bytes). Together with
    // the other lines the section exceeds it.
    let text = "/".repeat(960);
    let long = [&GET[..], &[("x", &text[..900])]].concat();
    expect_answerable(&small, &headers_frame(&long), false, &GET);
    expect_answerable(&small, &headers_frame(&long), true, &GET);
    let long_path = [&GET[..2], &[(":path", &text[..])]].concat();
    expect_answerable(&small, &headers_frame(&long_path), false, &GET[..2]);
    // The section is rejected because of the number of its lines.
    let many = [&GET[..], &[("x", ""); 7]].concat();
    expect_answerable(&small, &headers_frame(&many), false, &GET);
}

#[test]
fn a_field_section_of_the_largest_allowed_size_is_accepted() {
    let settings = Settings {
        max_field_section_size: 1_024,
        max_fields: 10,
        ..Settings::default()
    };
    let size: usize = GET.iter().map(|(n, v)| n.len() + v.len() + 32).sum();
    let rest = "y".repeat(1_024 - size - 33);
    let exact = [&GET[..], &[("x", &rest)]].concat();
    let many = [&GET[..], &[("x", ""); 6]].concat();
    for list in [exact, many] {
        let mut server = answering(settings.clone());
        give(&mut server, 0, &headers_frame(&list));
        let headers = Event::Headers {
            stream_id: 0,
            fields: fields(&list),
            kind: HeadersKind::Request,
            fin: false,
        };
        assert_eq!(events(&mut server), [headers]);
    }
}

#[test]
fn the_field_section_limit_is_announced_in_settings() {
    let settings = Settings {
        max_field_section_size: 1_024,
        ..Settings::default()
    };
    let pair = Pair::with_settings(Feed::Whole, Settings::default(), settings);
    let announced = pair.client.received_settings().unwrap();
    assert_eq!(announced.get(id::MAX_FIELD_SECTION_SIZE), Some(1_024));
}

#[test]
fn too_large_trailers_and_responses_reset_their_stream() {
    // Trailers of a request that was reported, and a response.
    let many = headers_frame(&[("x", ""); 2_049]);
    let mut server = answering(Settings::default());
    give(&mut server, 0, &headers_frame(&GET));
    give(&mut server, 0, &many);
    let reset = |stream_id| Event::Reset {
        stream_id,
        code: LOAD.0,
        local: true,
    };
    assert_eq!(events(&mut server).last(), Some(&reset(0)));
    assert_eq!(server.open_requests(), 0);

    let mut client = ready(Client, Settings::default());
    client.set_answers_large_requests(true);
    client.send_headers(0, &GET, true).unwrap();
    give(&mut client, 0, &many);
    assert_eq!(events(&mut client), [reset(0)]);
    assert_eq!(client.open_requests(), 0);
}

#[test]
fn the_number_of_lines_is_bounded_for_hosts_that_do_not_answer() {
    let settings = Settings {
        max_fields: 5,
        ..Settings::default()
    };
    let mut server = ready(Server, settings);
    give(
        &mut server,
        0,
        &headers_frame(&[&GET[..], &[("x", ""); 2]].concat()),
    );
    let code = LOAD;
    assert!(outputs(&mut server).contains(&Output::ResetStream { stream_id: 0, code }));
    give(
        &mut server,
        4,
        &headers_frame(&[&GET[..], &[("x", "")]].concat()),
    );
    assert_eq!(events(&mut server).len(), 1);
}

// QPACK ----------------------------------------------------------------------------------------------

#[test]
fn a_section_that_decompresses_beyond_the_limit_ends_only_its_stream() {
    let mut decoder = Decoder::new(DecoderSettings {
        max_table_capacity: 4096,
        blocked_streams: 0,
        max_field_section_size: 10_000,
        max_fields: 2048,
    });
    decoder.handle_encoder_stream(b"\x3f\xe1\x1f").unwrap();
    let mut insert = vec![0xc0];
    prefixed_integer::put(&mut insert, 0, 7, 3000);
    insert.extend_from_slice(&[b'x'; 3000]);
    decoder.handle_encoder_stream(&insert).unwrap();
    // Ten references of one byte each stand for 30 kB.
    let bomb = [&b"\x02\x00"[..], &[0x80; 10]].concat();
    match decoder.decode(0, &bomb) {
        Err(RemoteError::TooLarge { fields, .. }) => {
            assert_eq!(fields.len(), 3, "what came before the limit");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(decoded(&mut decoder, 4, b"\x02\x00\x80").len(), 1);
}

#[test]
fn a_huffman_string_is_decoded_up_to_the_limit_of_its_section() {
    // Each letter has a code of five bits.
    let mut code = Vec::new();
    huffman::encode(&[b'a'; 80_000], &mut code);
    let mut section = b"\x00\x00\x21x".to_vec();
    prefixed_integer::put(&mut section, 0x80, 7, code.len() as u64);
    section.extend_from_slice(&code);
    refuses(Server, &frame(0x1, &section), LOAD);
}

#[test]
fn endlessly_repeated_references_are_bounded_by_the_number_of_lines() {
    let mut decoder = Decoder::new(DecoderSettings {
        max_table_capacity: 0,
        blocked_streams: 0,
        max_field_section_size: usize::MAX,
        max_fields: 100,
    });
    let section = [&b"\x00\x00"[..], &[0xd1; 100_000]].concat();
    let result = decoder.decode(0, &section);
    assert!(matches!(result, Err(RemoteError::TooLarge { .. })));
}

#[test]
fn an_instruction_in_single_bytes_has_the_effect_of_a_whole_one() {
    let mut decoder = decoder(4096, 16);
    decoder.handle_encoder_stream(b"\x3f\xe1\x1f").unwrap();
    let name = vec![b'n'; 1_000];
    let mut insert = Vec::new();
    let mut code = Vec::new();
    huffman::encode(&name, &mut code);
    prefixed_integer::put(&mut insert, 0x60, 5, code.len() as u64);
    insert.extend_from_slice(&code);
    prefixed_integer::put(&mut insert, 0, 7, 2_000);
    insert.extend_from_slice(&[b'v'; 2_000]);
    let instructions: usize = insert
        .iter()
        .map(|byte| decoder.handle_encoder_stream(&[*byte]).unwrap())
        .sum();
    assert_eq!((instructions, decoder.insert_count()), (1, 1));
    let fields = decoded(&mut decoder, 0, b"\x02\x00\x80");
    assert_eq!(fields[0].0, name);
    assert_eq!(fields[0].1.len(), 2_000);
}

#[test]
fn the_bytes_of_blocked_streams_are_bounded() {
    for (max_blocked_size, pieces_max) in [(2 * 1024 * 1024, 32), (200_000, 3)] {
        let settings = Settings {
            max_blocked_size,
            ..Settings::default()
        };
        let mut server = ready(Server, settings);
        // A section that needs an insertion that never arrives, then more and more content.
        let blocked = frame(0x1, b"\x02\x00\x80");
        give(&mut server, 0, &blocked);
        assert_eq!(server.open_requests(), 1);
        let mut pieces = 0;
        while server.open_requests() == 1 {
            give(&mut server, 0, &[0; 64 * 1024]);
            pieces += 1;
            assert!(pieces <= pieces_max + 1, "no bound");
        }
        let stop = Output::StopSending {
            stream_id: 0,
            code: LOAD,
        };
        assert!(outputs(&mut server).contains(&stop));
        // The bytes were released, so another stream may be blocked.
        give(&mut server, 4, &blocked);
        give(&mut server, 4, &[0; 64 * 1024]);
        assert_eq!(server.open_requests(), 1);
        assert!(!server.is_closed());
    }
}

// Useless frames -------------------------------------------------------------------------------------

/// How often `say` can be called before the connection is closed.
#[track_caller]
fn taken(mut connection: QueuedConnection, mut say: impl FnMut(&mut QueuedConnection, u64)) -> u64 {
    for count in 0..20_000 {
        say(&mut connection, count);
        events(&mut connection);
        if let Some(code) = close_code(&mut connection) {
            assert_eq!(code, LOAD);
            return count;
        }
    }
    panic!("no bound");
}

/// A server that has received a request and has begun its response.
fn busy() -> QueuedConnection {
    let mut server = ready(Server, Settings::default());
    give(&mut server, 0, &headers_frame(&GET));
    events(&mut server);
    server
}

/// A server that has received a request and has sent a push promise.
fn promising() -> QueuedConnection {
    let mut server = busy();
    give(&mut server, 2, &frame(0xd, b"\x08"));
    server.send_push_promise(0, 15, &GET).unwrap();
    outputs(&mut server);
    server
}

/// The initial budget, less one for a frame that is sent before.
const ALLOWANCE: u64 = 4_096;

#[test]
fn useless_frames_are_counted() {
    let grease = frame(0x21, b"");
    assert_eq!(taken(busy(), |to, _| give(to, 0, &grease)), ALLOWANCE);
    assert_eq!(taken(busy(), |to, _| give(to, 2, &grease)), ALLOWANCE);
    let long = frame(0x21, &[0; 100]);
    assert_eq!(taken(busy(), |to, _| give(to, 0, &long)), ALLOWANCE);
    let empty = frame(0x0, b"");
    assert_eq!(taken(busy(), |to, _| give(to, 0, &empty)), ALLOWANCE);
    let update = frame(0xf0700, b"\x00u=1");
    assert_eq!(taken(busy(), |to, _| give(to, 2, &update)), ALLOWANCE);
    let cancel = frame(0x3, b"\x00");
    assert_eq!(
        taken(promising(), |to, _| give(to, 2, &cancel)),
        ALLOWANCE - 1
    );
    let goaway = frame(0x7, b"\x04");
    assert_eq!(taken(busy(), |to, _| give(to, 2, &goaway)), ALLOWANCE);
    let client = || ready(Client, Settings::default());
    assert_eq!(taken(client(), |to, _| give(to, 3, &goaway)), ALLOWANCE);
    let max_push_id = frame(0xd, b"\x08");
    assert_eq!(taken(busy(), |to, _| give(to, 2, &max_push_id)), ALLOWANCE);
}

#[test]
fn promises_are_counted() {
    let settings = Settings {
        max_push_id: Some(8),
        ..Settings::default()
    };
    let mut client = ready(Client, settings);
    client.send_headers(0, &GET, true).unwrap();
    outputs(&mut client);
    let promise = frame(0x5, &[&b"\x00"[..], &literal_section(&GET)].concat());
    assert_eq!(taken(client, |to, _| give(to, 0, &promise)), ALLOWANCE);
}

#[test]
fn useless_streams_are_counted() {
    for fin in [false, true] {
        let open = |to: &mut QueuedConnection, count: u64| {
            to.handle_stream_data(14 + count * 4, Bytes::from_static(b"\x21data"), fin);
        };
        assert_eq!(taken(busy(), open), ALLOWANCE);
    }
}

#[test]
fn qpack_instructions_without_messages_are_counted() {
    let with = |stream_id, start: &'static [u8]| {
        let mut server = busy();
        give(&mut server, stream_id, start);
        outputs(&mut server);
        server
    };
    // Encoder instructions: an insertion that evicts an entry, a duplicate, and a capacity.
    let encoder = || with(6, b"\x02\x3f\xe1\x1f\xc0\x01a");
    let left = ALLOWANCE - 2;
    assert_eq!(taken(encoder(), |to, _| give(to, 6, b"\xc0\x01a")), left);
    assert_eq!(taken(encoder(), |to, _| give(to, 6, b"\x00")), left);
    assert_eq!(taken(encoder(), |to, _| give(to, 6, b"\x3f\xe1\x1f")), left);
    // Decoder instructions: stream cancellations.
    let decoder = || with(10, b"\x03");
    assert_eq!(taken(decoder(), |to, _| give(to, 10, b"\x44")), ALLOWANCE);
    // The limit is the same if the instructions arrive in one piece and one by one.
    let mut server = encoder();
    give(&mut server, 6, &[0; 4_095]);
    assert_eq!(close_code(&mut server), Some(LOAD));
}

#[test]
fn messages_raise_the_budget_of_useless_frames() {
    let mut server = ready(Server, Settings::default());
    give(&mut server, 6, b"\x02\x3f\xe1\x1f");
    let grease = frame(0x1f * 7 + 0x21, b"abc");
    for request in 0..1_000 {
        give(&mut server, 6, &b"\xc0\x01a".repeat(20));
        give(&mut server, 10 + 4 * (request + 1), b"\x21");
        give(
            &mut server,
            2,
            &[&grease[..], &frame(0xf0700, b"\x00i")].concat(),
        );
        let message = [
            &grease[..],
            &headers_frame(&GET),
            &grease,
            &frame(0x0, b""),
            &frame(0x0, b"content"),
            &grease,
        ]
        .concat();
        server.handle_stream_data(request * 4, message.into(), true);
        assert!(!server.is_closed(), "request {request}");
        assert!(events(&mut server).len() >= 2);
        outputs(&mut server);
    }
}

#[test]
fn content_raises_the_budget_of_useless_frames() {
    let mut server = busy();
    let piece = [frame(0x0, b"x"), frame(0x21, b"")].concat();
    for _ in 0..10_000 {
        give(&mut server, 0, &piece);
    }
    assert!(!server.is_closed());
}

#[test]
fn control_frames_have_bounded_lengths() {
    for role in [Server, Client] {
        control_closes(role, &[frame(0x4, &[0x21; 1_025])], LOAD);
    }
    let priority = |length: usize| {
        let update = [&b"\x00u=1,i,"[..], &vec![b'a'; length - 7]].concat();
        frame(0xf0700, &update)
    };
    control_frames_close(Server, &[priority(1_025)], LOAD);
    let mut server = busy();
    give(&mut server, 2, &priority(1_024));
    let expected = Event::PriorityUpdate {
        stream_id: 0,
        priority: Priority {
            urgency: 1,
            incremental: true,
        },
    };
    assert_eq!(events(&mut server), [expected]);
}

#[test]
fn dozens_of_settings_fit() {
    let settings = Settings {
        extra: (0..60)
            .map(|n| (varint::MAX / 0x1f * 0x1f - n * 0x1f, varint::MAX))
            .collect(),
        ..Settings::default()
    };
    let pair = Pair::with_settings(Feed::Whole, settings, Settings::default());
    let received = pair.server.received_settings().unwrap();
    assert_eq!(received.pairs().len(), 63);
    assert_eq!(pair.server.role(), Role::Server);
}
