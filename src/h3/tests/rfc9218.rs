//! Priorities (RFC 9218), each test named after its section.

use crate::common::{violations::*, *};
use bytes::Bytes;
use uringcore_h3::Role::{Client, Server};
use uringcore_h3::{Code, Event, Priority, QueuedConnection, Settings};

const REQUEST: u64 = 0xf0700;
const PUSH: u64 = 0xf0701;

fn priority(urgency: u8, incremental: bool) -> Priority {
    Priority {
        urgency,
        incremental,
    }
}

fn update(frame_type: u64, element: u64, value: &str) -> Vec<u8> {
    frame(
        frame_type,
        &[&varints(&[element])[..], value.as_bytes()].concat(),
    )
}

fn updated(stream_id: u64, urgency: u8, incremental: bool) -> Event {
    Event::PriorityUpdate {
        stream_id,
        priority: priority(urgency, incremental),
    }
}

/// Passes frames on the client's control stream to the server.
fn say(server: &mut QueuedConnection, frames: &[Vec<u8>]) {
    server.handle_stream_data(2, frames.concat().into(), false);
}

/// Takes the server's events, all of which must be about priorities.
fn updates(server: &mut QueuedConnection) -> Vec<Event> {
    let mut reported = events(server);
    reported.retain(|event| matches!(event, Event::PriorityUpdate { .. }));
    reported
}

// Section 4: priority parameters ----------------------------------------------------------------------

#[test]
fn section_4_parameters_have_defaults_and_are_read() {
    for (value, urgency, incremental) in [
        ("", 3, false),
        ("   ", 3, false),
        ("u=0", 0, false),
        ("u=7", 7, false),
        ("i", 3, true),
        ("i=?1", 3, true),
        ("i=?0", 3, false),
        ("u=5, i", 5, true),
        ("i,u=1", 1, true),
        ("  u=2 \t,\t i ", 2, true),
        ("u=2;foo=bar;baz, i;x", 2, true),
        // If a key occurs twice, its last value counts.
        ("u=1, u=6", 6, false),
        ("i, i=?0", 3, false),
    ] {
        let read = Priority::parse(value.as_bytes());
        assert_eq!(read, priority(urgency, incremental), "{value:?}");
    }
}

#[test]
fn section_4_parameters_that_are_unknown_out_of_range_or_of_another_type_are_ignored() {
    for (value, urgency, incremental) in [
        ("u=8", 3, false),
        ("u=-1, i", 3, true),
        ("u=3.0", 3, false),
        ("u=?1", 3, false),
        ("u=\"1\"", 3, false),
        ("u=a", 3, false),
        ("u", 3, false),
        ("u=(1 2), i", 3, true),
        ("u=1, u=9", 3, false),
        ("u=2, i=1", 2, false),
        ("u=2, i=yes", 2, false),
        ("v=1, u=2, *w.x-y_z=tok/en:*, d=1.125, i", 2, true),
        (
            "a=\"q\\\"\\\\\", b=:AQ==:, c=(1 \"x\";y ?0);z, u=1",
            1,
            false,
        ),
        ("a=@1659578233, b=%\"f%c3%bc\", u=1", 1, false),
        ("a=999999999999999, b=-999999999999.999, u=1", 1, false),
    ] {
        let read = Priority::parse(value.as_bytes());
        assert_eq!(read, priority(urgency, incremental), "{value:?}");
    }
}

#[test]
fn section_4_a_value_that_is_no_dictionary_is_ignored_as_a_whole() {
    for value in [
        "u=1,",
        "u=1 i",
        "u=1,,i",
        ",u=1",
        "\tu=1",
        "u=",
        "u==1",
        "U=1",
        "u=1, 1",
        "u=1;",
        "u=1;A",
        "u=1, a=\"x",
        "u=1, a=\"\\x\"",
        "u=1, a=(1",
        "u=1, a=(1,2)",
        "u=1, a=(1\"x\")",
        "u=1, a=:A",
        "u=1, a=:A!:",
        "u=1, a=?2",
        "u=1, a=?",
        "u=1, a=-",
        "u=1, a=1.",
        "u=1, a=1.2345",
        "u=1, a=1234567890123.1",
        "u=1, a=1234567890123456",
        "u=1, a=@1.5",
        "u=1, a=%\"%C3\"",
        "u=1, a=%x",
        "u=1, a=\u{e9}",
        "u=1, a=\"\u{e9}\"",
        "u=1, a=\u{0}",
        "{\"u\":1}",
    ] {
        assert_eq!(
            Priority::parse(value.as_bytes()),
            Priority::default(),
            "{value:?}"
        );
    }
}

// Section 5: the Priority HTTP field ------------------------------------------------------------------

#[test]
fn section_5_the_lines_of_the_field_are_one_dictionary() {
    for (lines, urgency, incremental) in [
        (&[][..], 3, false),
        (&["u=1"], 1, false),
        (&["u=1", "i"], 1, true),
        (&["u=1", "i", "u=6"], 6, true),
        (&["u=1", "u="], 3, false),
    ] {
        let mut request = vec![("x-priority", "u=0")];
        request.extend(lines.iter().map(|line| ("priority", *line)));
        let read = Priority::of(&fields(&request));
        assert_eq!(read, priority(urgency, incremental), "{lines:?}");
    }
}

// Section 7: reprioritization -------------------------------------------------------------------------

#[test]
fn section_7_an_update_of_an_open_request_is_reported_at_once() {
    for feed in FEEDS {
        let mut pair = Pair::new(feed);
        pair.client.send_headers(0, &GET, true).unwrap();
        pair.pump();
        events(&mut pair.server);
        for (value, expected) in [
            ("u=1, i", updated(0, 1, true)),
            // A PRIORITY_UPDATE replaces all parameters: those that it does not contain get their defaults.
            ("i", updated(0, 3, true)),
            ("", updated(0, 3, false)),
            ("u=", updated(0, 3, false)),
        ] {
            let data = update(REQUEST, 0, value);
            feed_stream(&mut pair.server, 2, &data, false, feed);
            assert_eq!(events(&mut pair.server), [expected]);
        }
    }
}

#[test]
fn section_7_an_update_before_its_request_is_reported_with_the_request() {
    for feed in FEEDS {
        let mut server = ready(Server, Settings::default());
        let frames = [update(REQUEST, 4, "u=1"), update(REQUEST, 4, "u=6, i")];
        feed_stream(&mut server, 2, &frames.concat(), false, feed);
        assert_eq!(events(&mut server), []);
        feed_stream(&mut server, 0, &headers_frame(&GET), true, feed);
        assert_eq!(updates(&mut server), []);
        feed_stream(&mut server, 4, &headers_frame(&GET), true, feed);
        let reported = events(&mut server);
        assert!(matches!(reported[0], Event::Headers { stream_id: 4, .. }));
        assert_eq!(reported[1..], [updated(4, 6, true)]);
        // The update belonged to the earlier request and is reported only once.
        feed_stream(&mut server, 8, &headers_frame(&GET), true, feed);
        assert_eq!(updates(&mut server), []);
    }
}

#[test]
fn section_7_an_update_during_the_header_section_is_reported_with_the_request() {
    let mut server = ready(Server, Settings::default());
    let request = headers_frame(&GET);
    let (start, end) = request.split_at(3);
    server.handle_stream_data(0, Bytes::copy_from_slice(start), false);
    say(&mut server, &[update(REQUEST, 0, "u=0")]);
    assert_eq!(events(&mut server), []);
    server.handle_stream_data(0, Bytes::copy_from_slice(end), false);
    assert_eq!(updates(&mut server), [updated(0, 0, false)]);
}

#[test]
fn section_7_an_update_of_a_skipped_request_stream_is_kept() {
    let mut server = ready(Server, Settings::default());
    server.handle_stream_data(8, headers_frame(&GET).into(), true);
    say(&mut server, &[update(REQUEST, 4, "u=0")]);
    server.handle_stream_data(4, headers_frame(&GET).into(), true);
    assert_eq!(updates(&mut server), [updated(4, 0, false)]);
}

#[test]
fn section_7_an_update_of_a_finished_request_is_ignored() {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.send_headers(0, &GET, true).unwrap();
    pair.pump();
    pair.server
        .send_headers(0, &[(":status", "200")], true)
        .unwrap();
    events(&mut pair.server);
    pair.server.handle_stream_reset(4, 0);
    say(
        &mut pair.server,
        &[update(REQUEST, 0, "u=0"), update(REQUEST, 4, "u=0")],
    );
    assert_eq!(events(&mut pair.server), []);
    assert!(!pair.server.is_closed());
}

#[test]
fn section_7_updates_of_requests_that_never_come_are_kept_within_a_bound() {
    let mut server = ready(Server, Settings::default());
    for stream in 0..1000 {
        say(&mut server, &[update(REQUEST, stream * 4, "u=1")]);
    }
    // The server has kept the priorities of the first streams, each with its last value.
    say(&mut server, &[update(REQUEST, 0, "u=6")]);
    let mut kept = 0;
    for stream in 0..1000 {
        server.handle_stream_data(stream * 4, headers_frame(&GET).into(), true);
        let reported = updates(&mut server);
        kept += reported.len();
        if stream == 0 {
            assert_eq!(reported, [updated(0, 6, false)]);
        }
    }
    assert_eq!(kept, 256);
}

// Section 7.2: the frames of HTTP/3 -------------------------------------------------------------------

#[test]
fn section_7_2_an_update_comes_on_the_clients_control_stream_only() {
    for frame_type in [REQUEST, PUSH] {
        let data = update(frame_type, 0, "u=1");
        closes(Server, 0, &data, Code::H3_FRAME_UNEXPECTED);
        closes(Client, 0, &data, Code::H3_FRAME_UNEXPECTED);
        control_frames_close(Client, &[data], Code::H3_FRAME_UNEXPECTED);
        control_closes(
            Server,
            &[update(frame_type, 0, "")],
            Code::H3_MISSING_SETTINGS,
        );
    }
}

#[test]
fn section_7_2_an_update_names_a_request_stream() {
    for id in [1, 2, 3, 7] {
        control_frames_close(Server, &[update(REQUEST, id, "u=1")], Code::H3_ID_ERROR);
    }
}

#[test]
fn section_7_2_an_update_names_a_stream_within_the_limit() {
    let limited = || {
        let settings = Settings {
            max_requests: Some(2),
            ..Settings::default()
        };
        let mut server = ready(Server, settings);
        server.handle_stream_data(0, headers_frame(&GET).into(), true);
        server
    };
    // QUIC may allow the client streams 4 and 8: stream 0 may have ended already.
    for (id, code) in [(4, None), (8, None), (12, Some(Code::H3_ID_ERROR))] {
        let mut server = limited();
        say(&mut server, &[update(REQUEST, id, "u=1")]);
        assert_eq!(close_code(&mut server), code, "{id}");
    }
}

#[test]
fn section_7_2_an_update_of_a_push_names_one_that_was_promised() {
    let settings = Settings {
        max_push_id: Some(8),
        ..Settings::default()
    };
    let promised = || {
        let mut pair = Pair::with_settings(Feed::Whole, settings.clone(), Settings::default());
        pair.client.send_headers(0, &GET, true).unwrap();
        pair.pump();
        events(&mut pair.server);
        pair.server.send_push_promise(0, 15, &GET).unwrap();
        outputs(&mut pair.server);
        pair.server
    };
    let mut server = promised();
    say(&mut server, &[update(PUSH, 0, "u=5")]);
    // The priority of a push has no effect.
    assert_eq!(events(&mut server), []);
    assert_eq!(close_code(&mut server), None);

    for push_id in [1, 9] {
        let mut server = promised();
        say(&mut server, &[update(PUSH, push_id, "u=5")]);
        assert_eq!(close_code(&mut server), Some(Code::H3_ID_ERROR));
    }
    control_frames_close(Server, &[update(PUSH, 0, "")], Code::H3_ID_ERROR);
}

#[test]
fn section_7_2_an_update_without_its_element_identifier_is_an_error() {
    for frame_type in [REQUEST, PUSH] {
        for payload in [&b""[..], b"\x40"] {
            let broken = frame(frame_type, payload);
            control_frames_close(Server, &[broken], Code::H3_FRAME_ERROR);
        }
    }
}
