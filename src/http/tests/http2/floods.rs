//! Floods: frames that cost the client little and the server more.

use std::time::Duration;

use uringcore_http::http2::frame_codec::{flag, kind};
use uringcore_http::http2::{Code, Event, Limits, RequestLimits, SectionLimits};
use uringcore_http::tcp_output::Closing;

use super::client::{Client, GET, POST, content, encoded};

const CALM: Option<u32> = Some(Code::EnhanceYourCalm as u32);

/// Sends a frame again and again, until the server closes the connection. Returns how often.
fn flood(client: &mut Client, frame: &[u8]) -> usize {
    for count in 0..100_000 {
        client.send(frame);
        if client.closing.is_some() {
            assert_eq!(client.closing, Some(Closing::Sending));
            return count;
        }
    }
    panic!("the flood goes on");
}

#[test]
fn floods_of_useless_frames_end_the_connection() {
    for (frame, why) in [
        (encoded(kind::PING, 0, 0, &[0; 8]), "CVE-2019-9512"),
        (
            encoded(kind::PING, flag::ACK, 0, &[0; 8]),
            "acknowledged pings",
        ),
        (encoded(kind::SETTINGS, 0, 0, &[]), "CVE-2019-9515"),
        (
            encoded(kind::SETTINGS, flag::ACK, 0, &[]),
            "acknowledged settings",
        ),
        (encoded(kind::PRIORITY, 0, 1, &[0; 5]), "CVE-2019-9513"),
        (
            encoded(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 9]),
            "priorities of requests to come",
        ),
        (encoded(kind::DATA, 0, 1, &[]), "CVE-2019-9518"),
        (encoded(kind::DATA, flag::PADDED, 1, &[7; 8]), "padding"),
        (
            encoded(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
            "credit without need",
        ),
        (
            encoded(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            "credit without need",
        ),
        (encoded(kind::GOAWAY, 0, 0, &[0; 8]), "GOAWAY"),
        (encoded(0xfa, 0, 1, &[]), "frames of an unknown type"),
        (
            encoded(kind::RST_STREAM, 0, 3, &[0; 4]),
            "resets of a closed stream",
        ),
        (
            encoded(kind::DATA, 0, 3, b"a"),
            "content of a closed stream",
        ),
    ] {
        let mut client = Client::new();
        client.headers(1, &POST, false);
        client.headers(3, &GET, true);
        client
            .send_headers(3, &[(":status", "200")], true)
            .expect("a response");
        client.done(3);
        let count = flood(&mut client, &frame);
        assert!(count > 1000, "{why}");
        assert_eq!(client.goaway(), CALM, "{why}");
        assert!(client.http.is_closed_for_abuse(), "{why}");
        assert!(
            client.events().contains(&Event::Aborted { stream_id: 1 }),
            "{why}"
        );
    }
}

#[test]
fn honest_frames_are_not_a_flood() {
    let mut client = Client::new();
    for request in 0..3000u32 {
        let stream_id = 2 * request + 1;
        client.headers(stream_id, &GET, true);
        client
            .respond(stream_id.into(), &[(":status", "200")], &[b'a'; 1000], true)
            .expect("a response");
        client.done(stream_id.into());
        client.window_update(0, 1000);
        client.frame(kind::PRIORITY, 0, stream_id + 2, &[0; 5]);
        client.frame(kind::PING, 0, 0, &[0; 8]);
    }
    assert_eq!(client.closing, None);
}

#[test]
fn pings_of_a_long_response_are_not_a_flood() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client
        .send_headers(1, &[(":status", "200")], false)
        .expect("a response");
    for _ in 0..6000 {
        client.frame(kind::PING, 0, 0, &[0; 8]);
        client.tick(Duration::from_secs(1), 0);
    }
    assert_eq!(client.closing, None);
}

#[test]
fn credit_for_each_short_message_is_not_a_flood() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client
        .send_headers(1, &[(":status", "200")], false)
        .expect("a response");
    for _ in 0..10_000 {
        client.send_data(1, b"short", false).expect("content");
        client.window_update(0, 5);
        client.window_update(1, 5);
    }
    assert_eq!(client.closing, None);
}

#[test]
fn credit_for_each_4_kib_of_large_frames_is_not_a_flood() {
    // Go's client announces large frames, and gives credit for the stream and for the connection after each 4 KiB.
    const BYTES: usize = 64 << 20;
    for is_late in [false, true] {
        let mut client = Client::new();
        client.settings(&[(4, 1 << 30), (5, 1 << 20)]);
        client.window_update(0, 1 << 30);
        client.headers(1, &GET, true);
        client
            .send_headers(1, &[(":status", "200")], false)
            .expect("a response");
        let part = vec![b'a'; 64 << 10];
        let read = |client: &mut Client, bytes: usize| {
            for _ in 0..bytes / 4096 {
                client.window_update(0, 4096);
                client.window_update(1, 4096);
            }
        };
        for _ in 0..BYTES / part.len() {
            client.send_data(1, &part, false).expect("content");
            assert_eq!(content(&client.frames()).len(), part.len());
            if !is_late {
                read(&mut client, part.len());
            }
        }
        if is_late {
            read(&mut client, BYTES);
        }
        assert_eq!(client.closing, None);
    }
}

#[test]
fn late_content_of_a_reset_stream_is_not_a_flood_within_its_window() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.http.cancel(1, Code::Cancel, client.now);
    client.collect();
    let part = [b'a'; 100];
    let mut sent = 0;
    while sent + part.len() <= 1 << 20 {
        client.data(1, &part, false);
        sent += part.len();
    }
    assert_eq!(client.closing, None);
    flood(&mut client, &encoded(kind::DATA, 0, 1, &part));
    assert_eq!(client.goaway(), CALM);
}

#[test]
fn credit_for_a_few_bytes_at_a_time_is_a_flood() {
    // CVE-2019-9511 and 9517.
    let mut client = Client::new();
    client.settings(&[(4, 0)]);
    client.headers(1, &GET, true);
    client
        .respond(1, &[(":status", "200")], &[b'a'; 100_000], true)
        .expect("a response");
    flood(
        &mut client,
        &encoded(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
    );
    assert_eq!(client.goaway(), CALM);
}

#[test]
fn rapid_resets_end_the_connection() {
    // CVE-2023-44487.
    let limits = RequestLimits {
        early_resets: 50,
        early_resets_per_second: 1.0,
        ..RequestLimits::default()
    };
    let mut client = Client::with(Limits {
        requests: limits,
        ..Limits::default()
    });
    for request in 0..51u32 {
        client.headers(2 * request + 1, &GET, true);
        client.reset(2 * request + 1);
        client.done(u64::from(2 * request + 1));
        assert_eq!(client.closing.is_some(), request == 50);
    }
    assert_eq!(client.goaway(), CALM);
}

#[test]
fn resets_of_answered_requests_are_no_abuse() {
    let limits = RequestLimits {
        early_resets: 5,
        early_resets_per_second: 1.0,
        ..RequestLimits::default()
    };
    let mut client = Client::with(Limits {
        requests: limits,
        ..Limits::default()
    });
    for request in 0..100u32 {
        let stream_id = 2 * request + 1;
        client.headers(stream_id, &POST, false);
        client
            .respond(stream_id.into(), &[(":status", "200")], b"a", true)
            .expect("a response");
        client.reset(stream_id);
        client.done(stream_id.into());
    }
    assert_eq!(client.closing, None);
}

#[test]
fn faults_that_make_the_server_reset_count_as_resets() {
    // CVE-2025-8671.
    for fault in [
        encoded(kind::WINDOW_UPDATE, 0, 0, &[0; 4]),
        encoded(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        encoded(kind::DATA, 0, 0, b"a"),
        encoded(kind::PRIORITY, 0, 0, &[0; 4]),
        encoded(
            kind::HEADERS,
            flag::END_HEADERS | flag::END_STREAM,
            0,
            &[0x82],
        ),
    ] {
        let limits = RequestLimits {
            early_resets: 20,
            early_resets_per_second: 1.0,
            ..RequestLimits::default()
        };
        let mut client = Client::with(Limits {
            requests: limits,
            ..Limits::default()
        });
        let mut started = 0;
        for request in 0..100u32 {
            let stream_id = 2 * request + 1;
            client.headers(stream_id, &GET, true);
            started += client.requests().len();
            let mut frame = fault.clone();
            frame[5..9].copy_from_slice(&stream_id.to_be_bytes());
            client.send(&frame);
            client.done(stream_id.into());
            if client.closing.is_some() {
                break;
            }
        }
        assert_eq!((started, client.goaway()), (21, CALM));
    }
}

#[test]
fn malformed_requests_without_end_are_a_flood() {
    let mut client = Client::new();
    for request in 0..100_000u32 {
        client.headers(2 * request + 1, &GET[1..], true);
        if client.closing.is_some() {
            return assert_eq!(client.goaway(), CALM);
        }
    }
    panic!("the flood goes on");
}

#[test]
fn requests_above_the_limit_are_refused_and_a_flood_of_them_ends_the_connection() {
    let limits = RequestLimits {
        open_requests: 2,
        ..RequestLimits::default()
    };
    let mut client = Client::with(Limits {
        requests: limits,
        ..Limits::default()
    });
    for stream_id in [1, 3, 5] {
        client.headers(stream_id, &POST, false);
    }
    assert_eq!(client.requests(), [(1, None), (3, None)]);
    assert_eq!(client.reset_code(5), Some(Code::RefusedStream as u32));
    // The refused request has sent its content already.
    client.data(5, b"a", true);
    assert!(client.frames().is_empty());
    client
        .respond(1, &[(":status", "200")], b"a", true)
        .expect("a response");
    client.data(1, b"", true);
    client.headers(7, &POST, false);
    assert_eq!(client.requests(), [(7, None)]);
    for request in 4..100_000u32 {
        client.headers(2 * request + 1, &POST, false);
        if client.closing.is_some() {
            return assert_eq!(client.goaway(), CALM);
        }
    }
    panic!("the flood goes on");
}

#[test]
fn applications_of_abandoned_requests_are_bounded() {
    let limits = RequestLimits {
        open_requests: 2,
        ..RequestLimits::default()
    };
    let mut client = Client::with(Limits {
        requests: limits,
        ..Limits::default()
    });
    for request in 0..20u32 {
        client.headers(2 * request + 1, &GET, true);
        client.reset(2 * request + 1);
    }
    // None of the applications has returned.
    assert_eq!(client.requests().len(), 16);
}

#[test]
fn floods_of_continuations_end_the_connection() {
    // CVE-2024-27316 and others.
    for fragment in [&b""[..], &[0x82], &[0x82; 16_384]] {
        let mut client = Client::new();
        client.frame(kind::HEADERS, 0, 1, &[0x82]);
        let count = flood(&mut client, &encoded(kind::CONTINUATION, 0, 1, fragment));
        assert!(count < 64, "{count}");
        assert_eq!(client.goaway(), CALM);
    }
}

#[test]
fn large_sections_are_answered_with_431() {
    let sections = SectionLimits {
        bytes: 4096,
        fields: 10,
    };
    let mut client = Client::with(Limits {
        sections,
        ..Limits::default()
    });
    let long = "~".repeat(5000);
    client.headers(1, &[&GET[..], &[("x", &long)]].concat(), true);
    let many = Vec::from_iter(GET.into_iter().chain((0..20).map(|_| ("x", "y"))));
    client.headers(3, &many, true);
    // A bomb: references to an entry of the dynamic table.
    client.headers(5, &[&GET[..], &[("x", &"y".repeat(1500))]].concat(), true);
    let mut bomb = client.block(&GET);
    bomb.extend_from_slice(&[0xbe; 10_000]);
    client.frame(kind::HEADERS, 5, 7, &bomb);
    assert_eq!(
        client.requests(),
        [(1, Some(431)), (3, Some(431)), (5, None), (7, Some(431))]
    );
    assert_eq!(client.closing, None);
    // The content of a refused request is dropped, and the stream is reset after the response.
    client.headers(9, &[&POST[..], &[("x", &long)]].concat(), false);
    client.data(9, b"a", false);
    client
        .respond(9, &[(":status", "431")], b"no", true)
        .expect("a response");
    client.done(9);
    assert_eq!(client.reset_code(9), Some(Code::NoError as u32));
    assert!(
        client
            .events()
            .iter()
            .all(|it| !matches!(it, Event::Body { .. }))
    );
}
