//! Requests, responses and everything else that two correct connections exchange. Each input is passed whole, and byte
//! by byte. Violations are in `rfc9114.rs` and similar files.

use crate::common::*;
use bytes::Bytes;
use uringcore_h3::settings::id;
use uringcore_h3::{
    Code, Event, HeadersKind, LocalError, Output, QueuedConnection, Role, Settings,
};

fn headers(stream_id: u64, list: &[(&str, &str)], kind: HeadersKind, fin: bool) -> Event {
    Event::Headers {
        stream_id,
        fields: fields(list),
        kind,
        fin,
    }
}

fn data(stream_id: u64, data: &[u8], fin: bool) -> Event {
    Event::Data {
        stream_id,
        data: Bytes::copy_from_slice(data),
        fin,
    }
}

fn both_feeds(test: impl Fn(Feed)) {
    test(Feed::Whole);
    test(Feed::ByteByByte);
}

#[test]
fn a_get_and_its_response() {
    both_feeds(|feed| {
        let mut pair = Pair::new(feed);
        pair.client.send_headers(0, &GET, true).unwrap();
        pair.pump();
        assert_eq!(
            events(&mut pair.server),
            [headers(0, &GET, HeadersKind::Request, true)]
        );

        let response = [
            (":status", "200"),
            ("content-type", "text/plain"),
            ("content-length", "5"),
        ];
        pair.server.send_headers(0, &response, false).unwrap();
        pair.server
            .send_data(0, Bytes::from_static(b"hello"), true)
            .unwrap();
        pair.pump();
        assert_eq!(
            events(&mut pair.client),
            [
                headers(0, &response, HeadersKind::Response, false),
                data(0, b"hello", true)
            ]
        );
        assert_eq!(
            (pair.client.open_requests(), pair.server.open_requests()),
            (0, 0)
        );
    });
}

#[test]
fn a_message_is_one_write_and_long_content_a_second_one() {
    for (length, writes) in [(0, 1), (200, 1), (100_000, 2)] {
        let mut pair = Pair::new(Feed::Whole);
        pair.client.send_headers(0, &GET, true).unwrap();
        pair.pump();
        events(&mut pair.server);
        let response = [(":status", "200"), ("x-kept", " value "), ("upgrade", "x")];
        let content = Bytes::from(vec![7; length]);
        let sent = pair
            .server
            .send_message(0, &response, content.clone(), true);
        assert_eq!(sent, Ok(()));
        let sent = outputs(&mut pair.server);
        assert_eq!(sent.len(), writes);
        for output in sent {
            deliver(&mut pair.client, output, Feed::Whole);
        }
        let lines = [(":status", "200"), ("x-kept", "value")];
        let mut expected = vec![headers(0, &lines, HeadersKind::Response, length == 0)];
        expected.extend((length > 0).then(|| data(0, &content, true)));
        assert_eq!(events(&mut pair.client), expected);
    }
}

#[test]
fn content_of_an_interim_response_is_refused_with_its_header_section() {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(0, &GET, true).unwrap();
    pair.pump();
    let content = Bytes::from_static(b"early");
    let sent = pair
        .server
        .send_message(0, &[(":status", "103")], content, false);
    assert!(
        matches!(sent, Err(LocalError::FrameUnexpected(_))),
        "{sent:?}"
    );
    assert_eq!(outputs(&mut pair.server), []);
    // The final response can still be sent after the error.
    let sent = pair.server.send_headers(0, &[(":status", "200")], true);
    assert_eq!(sent, Ok(()));
}

#[test]
fn a_post_with_interim_responses_and_trailers_on_both_sides() {
    both_feeds(|feed| {
        let mut pair = Pair::new(feed);
        let request = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/"),
            ("te", "trailers"),
        ];
        pair.client.send_headers(0, &request, false).unwrap();
        pair.client
            .send_data(0, Bytes::from(vec![7; 5000]), false)
            .unwrap();
        pair.client
            .send_data(0, Bytes::from_static(b"end"), false)
            .unwrap();
        pair.client
            .send_headers(0, &[("x-checksum", "1")], true)
            .unwrap();
        pair.pump();
        let body = [&[7; 5000][..], b"end"].concat();
        assert_eq!(
            events(&mut pair.server),
            [
                headers(0, &request, HeadersKind::Request, false),
                data(0, &body, false),
                headers(0, &[("x-checksum", "1")], HeadersKind::Trailers, true),
            ]
        );

        let hints = [(":status", "103"), ("link", "</a.css>")];
        pair.server
            .send_headers(0, &[(":status", "100")], false)
            .unwrap();
        pair.server.send_headers(0, &hints, false).unwrap();
        pair.server
            .send_headers(0, &[(":status", "200")], false)
            .unwrap();
        pair.server
            .send_data(0, Bytes::from_static(b"x"), false)
            .unwrap();
        pair.server.send_headers(0, &[("x-end", "")], true).unwrap();
        pair.pump();
        assert_eq!(
            events(&mut pair.client),
            [
                headers(0, &[(":status", "100")], HeadersKind::Informational, false),
                headers(0, &hints, HeadersKind::Informational, false),
                headers(0, &[(":status", "200")], HeadersKind::Response, false),
                data(0, b"x", false),
                headers(0, &[("x-end", "")], HeadersKind::Trailers, true),
            ]
        );
        assert_eq!(
            (pair.client.open_requests(), pair.server.open_requests()),
            (0, 0)
        );
    });
}

#[test]
fn a_separate_fin_ends_the_message() {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(0, &GET, false).unwrap();
    pair.pump();
    assert_eq!(
        events(&mut pair.server),
        [headers(0, &GET, HeadersKind::Request, false)]
    );
    pair.client.send_data(0, Bytes::new(), false).unwrap();
    assert_eq!(outputs(&mut pair.client), []);
    pair.client.send_data(0, Bytes::new(), true).unwrap();
    pair.pump();
    assert_eq!(pair.server.poll_event(), Some(data(0, b"", true)));
}

#[test]
fn content_is_handed_on_without_copying() {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(0, &GET, false).unwrap();
    pair.pump();
    events(&mut pair.server);
    let wire = Bytes::from(frame(0x0, &[9; 4000]));
    pair.server.handle_stream_data(0, wire.clone(), false);
    let Some(Event::Data { data, .. }) = pair.server.poll_event() else {
        panic!("no data")
    };
    assert_eq!(data.as_ptr(), wire[wire.len() - 4000..].as_ptr());

    let content = Bytes::from(vec![1; 4000]);
    pair.client.send_data(0, content.clone(), true).unwrap();
    let written = outputs(&mut pair.client);
    assert!(written.iter().any(|output| {
        matches!(output, Output::Write { data, fin: true, .. } if data.as_ptr() == content.as_ptr())
    }));
}

#[test]
fn head_and_bodyless_responses_may_carry_a_content_length() {
    both_feeds(|feed| {
        let head = [
            (":method", "HEAD"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/"),
        ];
        for (request, status) in [(head, "200"), (GET, "304")] {
            let mut pair = Pair::new(feed);
            pair.client.send_headers(0, &request, true).unwrap();
            pair.pump();
            let response = [(":status", status), ("content-length", "1000")];
            pair.server.send_headers(0, &response, true).unwrap();
            pair.pump();
            assert_eq!(
                events(&mut pair.client),
                [headers(0, &response, HeadersKind::Response, true)]
            );
        }
    });
}

#[test]
fn a_connect_tunnel_carries_data_and_nothing_else() {
    let mut pair = Pair::new(Feed::Whole);
    let connect = [(":method", "CONNECT"), (":authority", "example.com:443")];
    pair.client.send_headers(0, &connect, false).unwrap();
    pair.client
        .send_data(0, Bytes::from_static(b"client hello"), false)
        .unwrap();
    pair.pump();
    assert_eq!(
        events(&mut pair.server),
        [
            headers(0, &connect, HeadersKind::Request, false),
            data(0, b"client hello", false)
        ]
    );
    pair.server
        .send_headers(0, &[(":status", "200")], false)
        .unwrap();
    assert!(matches!(
        pair.client.send_headers(0, &[("x-trailer", "1")], true),
        Err(LocalError::FrameUnexpected(_))
    ));
    assert!(matches!(
        pair.server.send_headers(0, &[("x-trailer", "1")], true),
        Err(LocalError::FrameUnexpected(_))
    ));
}

#[test]
fn datagrams_carry_their_request_stream() {
    let settings = Settings {
        h3_datagram: true,
        ..Settings::default()
    };
    let mut pair = Pair::with_settings(Feed::Whole, settings.clone(), settings);
    pair.client.send_datagram(4 * 70, b"payload").unwrap();
    assert_eq!(
        pair.client.poll_output(),
        Some(Output::Datagram {
            data: Bytes::from_static(b"\x40\x46payload")
        })
    );
    pair.server
        .handle_datagram(Bytes::from_static(b"\x40\x46payload"));
    assert_eq!(
        pair.server.poll_event(),
        Some(Event::Datagram {
            stream_id: 280,
            data: Bytes::from_static(b"payload")
        })
    );
    assert!(matches!(
        pair.client.send_datagram(1, b""),
        Err(LocalError::InvalidStream(_))
    ));
    let mut plain = Pair::new(Feed::Whole);
    assert_eq!(
        plain.client.send_datagram(0, b""),
        Err(LocalError::DatagramsNotNegotiated)
    );
}

#[test]
fn goaway_refuses_later_requests() {
    both_feeds(|feed| {
        let mut pair = Pair::new(feed);
        pair.client.send_headers(0, &GET, true).unwrap();
        pair.pump();
        events(&mut pair.server);
        let limit = pair.server.next_goaway_id();
        assert_eq!(limit, 4);
        // The client sends this request before it has received GOAWAY.
        pair.client.send_headers(4, &GET, false).unwrap();
        let crossing = outputs(&mut pair.client);
        pair.server.send_goaway(limit).unwrap();
        pair.pump();
        assert_eq!(events(&mut pair.client), [Event::GoAway { id: 4 }]);
        for output in crossing {
            deliver(&mut pair.server, output, feed);
        }
        let refused: Vec<_> = outputs(&mut pair.server)
            .into_iter()
            .filter(|output| !matches!(output, Output::Write { .. }))
            .collect();
        assert_eq!(
            refused,
            [
                Output::ResetStream {
                    stream_id: 4,
                    code: Code::H3_REQUEST_REJECTED
                },
                Output::StopSending {
                    stream_id: 4,
                    code: Code::H3_REQUEST_REJECTED
                },
            ]
        );
        assert_eq!(events(&mut pair.server), []);
        assert_eq!(
            pair.client.send_headers(8, &GET, true),
            Err(LocalError::GoingAway)
        );
        // Requests that had begun before GOAWAY continue.
        pair.server
            .send_headers(0, &[(":status", "200")], true)
            .unwrap();
        pair.pump();
        assert_eq!(events(&mut pair.client).len(), 1);
        assert!(matches!(
            pair.server.send_goaway(8),
            Err(LocalError::InvalidId(_))
        ));
        pair.server.send_goaway(0).unwrap();
    });
}

#[test]
fn a_client_opens_no_request_after_goaway() {
    // RFC 9114 section 5.2: a server may send two GOAWAYs, the first with the highest possible stream.
    let mut pair = Pair::new(Feed::Whole);
    pair.server.send_goaway((1 << 62) - 4).unwrap();
    pair.pump();
    assert_eq!(
        pair.client.send_headers(0, &GET, true),
        Err(LocalError::GoingAway)
    );
}

#[test]
fn blocked_streams_wait_for_the_encoder_stream_and_keep_their_order() {
    both_feeds(|feed| {
        let mut pair = Pair::blocking(feed);
        let request = |marker: &'static str| {
            [
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", "host.example"),
                (":path", "/"),
                ("x-marker", marker),
            ]
        };
        for stream_id in [0, 4] {
            // A line that is sent for the second time is inserted and, with `may_block`, referenced at once.
            pair.client
                .send_headers(stream_id, &request("again"), true)
                .unwrap();
            if stream_id == 0 {
                pair.pump();
                events(&mut pair.server);
                pair.held_stream = Some(CLIENT_UNI[1]);
            }
        }
        pair.client
            .send_headers(8, &request("again"), false)
            .unwrap();
        pair.client
            .send_data(8, Bytes::from_static(b"body"), false)
            .unwrap();
        pair.client
            .send_headers(8, &[("x-trailer", "1")], true)
            .unwrap();
        pair.pump();
        assert_eq!(events(&mut pair.server), [], "both wait");
        pair.release();
        assert_eq!(
            events(&mut pair.server),
            [
                headers(4, &request("again"), HeadersKind::Request, true),
                headers(8, &request("again"), HeadersKind::Request, false),
                data(8, b"body", false),
                headers(8, &[("x-trailer", "1")], HeadersKind::Trailers, true),
            ]
        );
    });
}

#[test]
fn a_blocked_stream_that_is_reset_is_forgotten() {
    let mut pair = Pair::blocking(Feed::Whole);
    let request = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "host.example"),
        (":path", "/"),
        ("x-a", "b"),
    ];
    pair.client.send_headers(0, &request, true).unwrap();
    pair.pump();
    events(&mut pair.server);
    pair.held_stream = Some(CLIENT_UNI[1]);
    pair.client.send_headers(4, &request, false).unwrap();
    pair.pump();
    pair.client.cancel_request(4, Code::H3_REQUEST_CANCELLED.0);
    pair.pump();
    assert_eq!(events(&mut pair.server), [], "the application never got it");
    pair.release();
    assert_eq!(events(&mut pair.server), []);
    assert_eq!(
        pair.server.open_requests(),
        1,
        "only the first, which awaits its response"
    );
    // The encoder has received the stream cancellation, so both tables agree.
    pair.client.send_headers(8, &request, true).unwrap();
    pair.pump();
    assert_eq!(
        events(&mut pair.server),
        [headers(8, &request, HeadersKind::Request, true)]
    );
}

#[test]
fn resets_and_stop_sending_reach_the_application() {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(0, &GET, false).unwrap();
    pair.pump();
    events(&mut pair.server);
    pair.client.cancel_request(0, Code::H3_REQUEST_CANCELLED.0);
    let cancelled = outputs(&mut pair.client);
    assert!(cancelled.contains(&Output::ResetStream {
        stream_id: 0,
        code: Code::H3_REQUEST_CANCELLED
    }));
    assert!(cancelled.contains(&Output::StopSending {
        stream_id: 0,
        code: Code::H3_REQUEST_CANCELLED
    }));
    for output in cancelled {
        deliver(&mut pair.server, output, Feed::Whole);
    }
    let code = Code::H3_REQUEST_CANCELLED.0;
    assert_eq!(
        events(&mut pair.server),
        [
            Event::Reset {
                stream_id: 0,
                code,
                local: false
            },
            Event::StopSending { stream_id: 0, code }
        ]
    );
    assert_eq!(
        (pair.client.open_requests(), pair.server.open_requests()),
        (0, 0)
    );
    assert!(matches!(
        pair.server.send_headers(0, &[(":status", "200")], true),
        Err(LocalError::FrameUnexpected(_))
    ));
    // The client's QUIC layer may still deliver data in flight. That must not begin a new stream.
    pair.client
        .handle_stream_data(0, Bytes::from(headers_frame(&[(":status", "200")])), true);
    assert_eq!(events(&mut pair.client), []);
}

#[test]
fn a_request_reset_before_its_first_byte_is_answered_by_a_reset() {
    let mut pair = Pair::new(Feed::Whole);
    pair.server
        .handle_stream_data(0, Bytes::from_static(b"\x01"), false);
    pair.server.handle_stream_reset(0, 0x10c);
    pair.server.handle_stream_reset(4, 0x10c);
    let resets: Vec<_> = outputs(&mut pair.server)
        .into_iter()
        .filter(|output| matches!(output, Output::ResetStream { .. }))
        .collect();
    assert_eq!(
        resets,
        [0, 4].map(|stream_id| Output::ResetStream {
            stream_id,
            code: Code::H3_REQUEST_INCOMPLETE
        })
    );
    assert_eq!(events(&mut pair.server), []);
    assert_eq!(pair.server.open_requests(), 0);
}

#[test]
fn a_request_reset_before_its_data_is_answered_though_a_higher_stream_was_used() {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(12, &GET, true).unwrap();
    pair.pump();
    let code = Code::H3_REQUEST_INCOMPLETE;
    let end = |stream_id| Output::ResetStream { stream_id, code };
    pair.server.handle_stream_reset(4, 0x10c);
    assert_eq!(outputs(&mut pair.server), [end(4)]);
    // QUIC may report the reset again. The stream has ended.
    pair.server.handle_stream_reset(4, 0x10c);
    assert_eq!(outputs(&mut pair.server), []);
    // The client also sends on the second stream that it had skipped, and then resets it.
    pair.client.send_headers(8, &GET, true).unwrap();
    pair.pump();
    pair.server
        .send_headers(8, &[(":status", "200")], true)
        .unwrap();
    outputs(&mut pair.server);
    pair.server.handle_stream_reset(8, 0x10c);
    assert_eq!(outputs(&mut pair.server), []);
    // Streams 4, 8 and 12 are used. The client resets stream 24, and then stream 20, which it had skipped.
    pair.server.handle_stream_reset(24, 0x10c);
    pair.server.handle_stream_reset(20, 0x10c);
    assert_eq!(outputs(&mut pair.server), [end(24), end(20)]);
    assert_eq!(pair.server.next_goaway_id(), 28);
}

#[test]
fn a_request_refused_after_goaway_is_not_reset_twice() {
    let mut pair = Pair::new(Feed::Whole);
    pair.server.send_goaway(4).unwrap();
    outputs(&mut pair.server);
    let code = Code::H3_REQUEST_REJECTED;
    let headers = Bytes::from(headers_frame(&GET));
    pair.server.handle_stream_data(8, headers, false);
    assert_eq!(
        outputs(&mut pair.server),
        [
            Output::ResetStream { stream_id: 8, code },
            Output::StopSending { stream_id: 8, code }
        ]
    );
    pair.server.handle_stream_reset(8, 0x10c);
    assert_eq!(outputs(&mut pair.server), []);
    // A rejected request does not raise the identifier of the next GOAWAY.
    assert_eq!(pair.server.next_goaway_id(), 4);
    pair.server.send_goaway(4).unwrap();
}

#[test]
fn skipped_streams_are_remembered_up_to_a_bound() {
    let mut pair = Pair::new(Feed::Whole);
    let far = 4 * 1_000_000_000;
    pair.server.handle_stream_reset(far, 0x10c);
    outputs(&mut pair.server);
    pair.server.handle_stream_reset(0, 0x10c);
    assert_eq!(outputs(&mut pair.server), []);
    for stream_id in [far - 4, far - 4 * 1024] {
        pair.server.handle_stream_reset(stream_id, 0x10c);
        let code = Code::H3_REQUEST_INCOMPLETE;
        assert_eq!(
            outputs(&mut pair.server),
            [Output::ResetStream { stream_id, code }]
        );
    }
    // A stream that was dropped from the table of skipped streams can still be used.
    pair.client.send_headers(0, &GET, true).unwrap();
    pair.pump();
    assert_eq!(events(&mut pair.server).len(), 1);
}

#[test]
fn white_space_around_a_sent_value_is_left_out() {
    both_feeds(|feed| {
        let mut pair = Pair::new(feed);
        let given = [
            ("x-both", " \ta b\t "),
            ("x-only", "\t "),
            ("te", "trailers "),
        ];
        let request = [&GET[..], &given].concat();
        pair.client.send_headers(0, &request, false).unwrap();
        pair.client
            .send_headers(0, &[("x-end", " 1 ")], true)
            .unwrap();
        pair.pump();
        let clean = [("x-both", "a b"), ("x-only", ""), ("te", "trailers")];
        let request = [&GET[..], &clean].concat();
        assert_eq!(
            events(&mut pair.server),
            [
                headers(0, &request, HeadersKind::Request, false),
                headers(0, &[("x-end", "1")], HeadersKind::Trailers, true),
            ]
        );
        let given = [(":status", "200"), ("content-length", " 0 ")];
        pair.server.send_headers(0, &given, true).unwrap();
        pair.pump();
        let clean = [(":status", "200"), ("content-length", "0")];
        assert_eq!(
            events(&mut pair.client),
            [headers(0, &clean, HeadersKind::Response, true)]
        );
    });
}

#[test]
fn content_length_is_not_sent_with_a_status_without_content() {
    let connect = [(":method", "CONNECT"), (":authority", "a:443")];
    for (request, status, is_sent) in [
        (&GET[..], "103", false),
        (&GET, "204", false),
        (&GET, "205", true),
        (&GET, "304", true),
        (&connect, "200", false),
        (&connect, "404", true),
    ] {
        let mut pair = Pair::new(Feed::Whole);
        pair.client.send_headers(0, request, false).unwrap();
        pair.pump();
        let response = [(":status", status), ("content-length", "0"), ("x", "y")];
        pair.server.send_headers(0, &response, false).unwrap();
        pair.pump();
        let Some(Event::Headers { fields, .. }) = events(&mut pair.client).pop() else {
            panic!("no response to {request:?}");
        };
        let mut expected = response.to_vec();
        expected.retain(|field| is_sent || field.0 != "content-length");
        assert_eq!(fields, crate::common::fields(&expected), "{status}");
    }
    // Values of the peer are not trimmed, and an invalid value is an error even in a field that would be ignored.
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(0, &GET, true).unwrap();
    pair.pump();
    let bad = [(":status", "204"), ("content-length", "x")];
    assert!(matches!(
        pair.server.send_headers(0, &bad, true),
        Err(LocalError::InvalidField(_))
    ));
    let response = [(":status", "204"), ("content-length", "1000")];
    let frame = Bytes::from(headers_frame(&response));
    pair.client.handle_stream_data(0, frame, true);
    assert_eq!(
        events(&mut pair.client),
        [headers(0, &response, HeadersKind::Response, true)]
    );
}

fn webtransport_settings() -> Settings {
    Settings {
        h3_datagram: true,
        enable_connect_protocol: true,
        webtransport: true,
        extra: vec![(id::ENABLE_WEBTRANSPORT, 1)],
        ..Settings::default()
    }
}

#[test]
fn webtransport_streams_of_both_kinds_and_both_sides() {
    both_feeds(|feed| {
        let mut pair = Pair::with_settings(feed, webtransport_settings(), webtransport_settings());
        for (session, stream, from_client) in
            [(0, 4, true), (0, 14, true), (0, 1, false), (0, 15, false)]
        {
            let (from, to) = if from_client {
                (&mut pair.client, &mut pair.server)
            } else {
                (&mut pair.server, &mut pair.client)
            };
            from.create_webtransport_stream(session, stream).unwrap();
            for output in outputs(from) {
                deliver(to, output, feed);
            }
            feed_stream(to, stream, b"chunk one", false, feed);
            feed_stream(to, stream, b"two", true, feed);
            let received = |data: &'static [u8]| Event::WebTransportData {
                session_id: session,
                stream_id: stream,
                data: Bytes::from_static(data),
                fin: true,
            };
            assert_eq!(events(to), [received(b"chunk onetwo")], "stream {stream}");
            if stream & 2 == 0 {
                // The peer's direction of a stream that this side opened has no header.
                feed_stream(from, stream, b"reply", true, feed);
                assert_eq!(events(from), [received(b"reply")]);
            }
        }
        assert_eq!(
            (pair.client.open_requests(), pair.server.open_requests()),
            (0, 0)
        );
    });
}

#[test]
fn a_reset_of_a_webtransport_stream_is_reported() {
    let mut pair = Pair::with_settings(
        Feed::Whole,
        webtransport_settings(),
        webtransport_settings(),
    );
    pair.server
        .handle_stream_data(4, varints(&[0x41, 0]).into(), false);
    pair.server
        .handle_stream_data(4, Bytes::from_static(b"x"), false);
    pair.server
        .handle_stream_data(14, varints(&[0x54, 0]).into(), false);
    pair.server.poll_event().unwrap();
    pair.server.handle_stream_reset(4, 99);
    pair.server.handle_stream_reset(14, 98);
    assert_eq!(
        events(&mut pair.server),
        [
            Event::Reset {
                stream_id: 4,
                code: 99,
                local: false
            },
            Event::Reset {
                stream_id: 14,
                code: 98,
                local: false
            }
        ]
    );
    assert_eq!(pair.server.open_requests(), 0);
}

#[test]
fn local_misuse_is_refused_and_changes_nothing() {
    let mut pair = Pair::new(Feed::Whole);
    let client = &mut pair.client;
    assert!(matches!(
        client.send_headers(2, &GET, true),
        Err(LocalError::InvalidStream(_))
    ));
    assert!(matches!(
        client.send_data(0, Bytes::from_static(b"x"), true),
        Err(LocalError::FrameUnexpected(_))
    ));
    for bad in [
        ("Upper-Case", "x"),
        ("x-line", "a\r\nb: c"),
        ("te", "gzip"),
        ("", "empty"),
        (":path", "/again"),
        (":protocol", " x"),
    ] {
        let list = [&GET[..], &[bad]].concat();
        assert!(
            matches!(
                client.send_headers(0, &list, true),
                Err(LocalError::InvalidField(_))
            ),
            "{bad:?}"
        );
    }
    assert!(matches!(
        client.send_headers(0, &GET[..3], true),
        Err(LocalError::InvalidField(_))
    ));
    assert_eq!(outputs(client), []);
    assert_eq!(client.open_requests(), 0);

    client.send_headers(0, &GET, true).unwrap();
    assert!(matches!(
        client.send_data(0, Bytes::from_static(b"x"), true),
        Err(LocalError::FrameUnexpected(_))
    ));
    assert!(matches!(
        client.send_headers(0, &GET, true),
        Err(LocalError::FrameUnexpected(_))
    ));
    pair.pump();
    let server = &mut pair.server;
    assert!(matches!(
        server.send_headers(0, &[(":status", "103")], true),
        Err(LocalError::FrameUnexpected(_))
    ));
    assert!(matches!(
        server.send_headers(0, &[(":status", "101")], true),
        Err(LocalError::InvalidField(_))
    ));
    assert!(matches!(
        server.send_headers(4, &[(":status", "200")], true),
        Err(LocalError::FrameUnexpected(_))
    ));
    assert!(matches!(
        server.create_webtransport_stream(0, 1),
        Err(LocalError::InvalidStream(_))
    ));
}

#[test]
fn settings_are_sent_first_and_in_order() {
    let settings = Settings {
        enable_connect_protocol: true,
        h3_datagram: true,
        extra: vec![(0x21, 1)],
        ..Settings::default()
    };
    let mut client = QueuedConnection::new(Role::Client, settings, CLIENT_UNI);
    let expected = vec![
        (0x1, 4096),
        (0x6, 65_536),
        (0x7, 16),
        (0x8, 1),
        (0x33, 1),
        (0x21, 1),
    ];
    assert_eq!(client.sent_settings(), expected);
    let payload = varints(
        &expected
            .iter()
            .flat_map(|&(id, value)| [id, value])
            .collect::<Vec<_>>(),
    );
    let control = [&[0x0][..], &frame(0x4, &payload)].concat();
    let write = |stream_id, data: &[u8]| Output::Write {
        stream_id,
        data: Bytes::copy_from_slice(data),
        fin: false,
    };
    assert_eq!(
        outputs(&mut client),
        [write(2, &control), write(6, b"\x02"), write(10, b"\x03")]
    );
}

#[test]
fn many_finished_requests_leave_no_state() {
    let mut pair = Pair::new(Feed::Whole);
    for request in 0..2000u64 {
        let stream_id = request * 4;
        let path = format!("/{}", request % 7);
        let list = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "h.example"),
            (":path", &path),
        ];
        pair.client.send_headers(stream_id, &list, true).unwrap();
        pair.pump();
        pair.server
            .send_headers(stream_id, &[(":status", "200"), ("server", "test")], false)
            .unwrap();
        pair.server
            .send_data(stream_id, Bytes::from_static(b"ok"), true)
            .unwrap();
        pair.pump();
        assert_eq!(
            events(&mut pair.server),
            [headers(stream_id, &list, HeadersKind::Request, true)]
        );
        assert_eq!(events(&mut pair.client).len(), 2);
    }
    assert_eq!(
        (pair.client.open_requests(), pair.server.open_requests()),
        (0, 0)
    );
}
