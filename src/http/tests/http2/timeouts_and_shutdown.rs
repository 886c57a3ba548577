//! Time-outs, and the ends of connections.

use std::time::Duration;

use uringcore_http::http2::frame_codec::{PREFACE, flag, kind};
use uringcore_http::http2::{Code, Event, Limits, RequestLimits};
use uringcore_http::response_errors::TooSlow;
use uringcore_http::tcp_output::Closing;

use super::client::{Client, GET, POST, content, encoded};

const OK: (&str, &str) = (":status", "200");
const MAX: u32 = (1 << 31) - 1;

fn with(requests: RequestLimits) -> Client {
    Client::with(Limits {
        requests,
        ..Limits::default()
    })
}

fn last_streams(client: &mut Client) -> Vec<u32> {
    let frames = client.frames();
    let goaways = frames.iter().filter(|it| it.kind == kind::GOAWAY);
    let last = goaways.map(|it| u32::from_be_bytes(it.payload[..4].try_into().expect("4 bytes")));
    last.collect()
}

#[test]
fn a_stop_announces_the_end_serves_what_was_sent_and_closes() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client.http.stop(client.now);
    client.http.stop(client.now);
    client.collect();
    let frames = client.frames();
    let kinds = Vec::from_iter(frames.iter().map(|it| it.kind));
    assert_eq!(kinds, [kind::GOAWAY, kind::PING]);
    assert_eq!(&frames[0].payload[..4], &MAX.to_be_bytes());
    // This request was on its way.
    client.headers(3, &POST, false);
    client.frame(kind::PING, flag::ACK, 0, &frames[1].payload);
    assert_eq!(last_streams(&mut client), [3]);
    // The client repeats this request elsewhere.
    client.headers(5, &POST, false);
    client.data(5, b"a", true);
    assert_eq!(client.requests(), [(1, None), (3, None)]);
    client.data(3, b"a", true);
    client.respond(1, &[OK], b"a", true).expect("a response");
    assert_eq!(client.closing, None);
    client.respond(3, &[OK], b"b", true).expect("a response");
    assert_eq!(content(&client.frames()), b"ab");
    assert_eq!(client.closing, Some(Closing::Sending));
    // Later input is dropped, until the client has had time to read.
    client.frame(kind::PING, 0, 0, &[0; 8]);
    assert!(client.frames().is_empty());
    client.seconds(8);
    assert_eq!(client.closing, Some(Closing::Gracefully));
}

#[test]
fn a_client_that_connects_during_a_stop_gets_goaway_with_its_first_request() {
    let mut client = Client::silent(Limits::default());
    client.http.announce_stop(client.now);
    client.send(PREFACE);
    client.frame(kind::SETTINGS, 0, 0, &[]);
    client.http.announce_stop(client.now);
    client.seconds(2);
    assert!(last_streams(&mut client).is_empty());
    client.headers(1, &GET, true);
    assert_eq!(last_streams(&mut client), [MAX]);
    client.seconds(1);
    assert_eq!(last_streams(&mut client), [1]);
    client.respond(1, &[OK], b"a", true).expect("a response");
    assert_eq!(content(&client.frames()), b"a");
    assert!(client.closing.is_some());
}

#[test]
fn a_client_that_answers_no_ping_has_a_second() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client.respond(1, &[OK], b"a", true).expect("a response");
    client.done(1);
    client.frames();
    client.http.stop(client.now);
    client.tick(Duration::from_millis(400), 0);
    assert_eq!(
        (last_streams(&mut client), client.closing),
        (vec![MAX], None)
    );
    client.tick(Duration::from_millis(200), 0);
    assert_eq!(last_streams(&mut client), [1]);
    assert_eq!(client.closing, Some(Closing::Gracefully));
}

#[test]
fn a_stop_waits_for_the_first_request_of_a_connection_for_half_a_second() {
    let begun = || Client::silent(Limits::default());
    let mut silent = begun();
    silent.http.stop(silent.now);
    silent.tick(Duration::from_millis(400), 0);
    silent.http.stop(silent.now);
    assert_eq!(silent.closing, None);
    silent.tick(Duration::from_millis(100), 0);
    assert_eq!(silent.closing, Some(Closing::Gracefully));
    let mut open = begun();
    open.http.stop(open.now);
    open.send(PREFACE);
    open.frame(kind::SETTINGS, 0, 0, &[]);
    open.tick(Duration::from_millis(400), 0);
    assert!(last_streams(&mut open).is_empty());
    open.tick(Duration::from_millis(100), 0);
    assert_eq!(last_streams(&mut open), [MAX]);
    let mut late = begun();
    late.http.stop(late.now);
    late.send(PREFACE);
    late.frame(kind::SETTINGS, 0, 0, &[]);
    late.headers(1, &GET, true);
    assert_eq!(last_streams(&mut late), [MAX]);
    late.respond(1, &[OK], b"a", true).expect("a response");
    assert_eq!(content(&late.frames()), b"a");
}

#[test]
fn the_last_request_of_a_connection_announces_the_end() {
    let mut client = with(RequestLimits {
        requests: Some(2),
        ..RequestLimits::default()
    });
    client.headers(1, &GET, true);
    assert!(last_streams(&mut client).is_empty());
    client.headers(3, &GET, true);
    assert_eq!(last_streams(&mut client), [MAX]);
}

#[test]
fn an_application_can_close_the_connection() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client
        .respond(1, &[OK, ("connection", "close")], b"a", true)
        .expect("a response");
    assert_eq!(last_streams(&mut client), [MAX]);
}

#[test]
fn an_idle_connection_is_closed() {
    let mut client = with(RequestLimits {
        keep_alive: Duration::from_secs(5),
        ..RequestLimits::default()
    });
    client.headers(1, &GET, true);
    client.seconds(60);
    assert_eq!(client.closing, None);
    client.respond(1, &[OK], b"a", true).expect("a response");
    client.done(1);
    client.seconds(5);
    assert_eq!(client.closing, None);
    client.frame(kind::PING, 0, 0, &[0; 8]);
    client.seconds(1);
    assert_eq!(
        (last_streams(&mut client), client.closing),
        (vec![MAX], None)
    );
    client.seconds(1);
    assert_eq!(client.closing, Some(Closing::Gracefully));
    assert_eq!(last_streams(&mut client), [1]);
}

#[test]
fn a_request_at_the_end_of_an_idle_connection_is_served() {
    let mut client = with(RequestLimits {
        keep_alive: Duration::from_secs(5),
        ..RequestLimits::default()
    });
    client.headers(1, &GET, true);
    client.respond(1, &[OK], b"a", true).expect("a response");
    client.done(1);
    client.seconds(6);
    let frames = client.frames();
    let ping = frames.iter().find(|it| it.kind == kind::PING);
    let ping = ping.expect("a PING").payload.clone();
    // The client has sent this request before it got the GOAWAY.
    client.headers(3, &GET, true);
    client.frame(kind::PING, flag::ACK, 0, &ping);
    assert_eq!(last_streams(&mut client), [3]);
    assert_eq!(client.requests(), [(1, None), (3, None)]);
    client.respond(3, &[OK], b"b", true).expect("a response");
    assert_eq!(content(&client.frames()), b"b");
    assert_eq!(client.closing, Some(Closing::Sending));
}

#[test]
fn the_first_request_has_the_time_of_a_header_section() {
    let mut client = with(RequestLimits {
        keep_alive: Duration::from_secs(2),
        header_timeout: Duration::from_secs(8),
        ..RequestLimits::default()
    });
    client.seconds(8);
    assert!(last_streams(&mut client).is_empty());
    client.seconds(1);
    assert_eq!(last_streams(&mut client), [MAX]);
}

#[test]
fn a_silent_client_is_closed() {
    for sent in [&b""[..], &PREFACE[..5]] {
        let mut client = Client::silent(Limits::default());
        client.send(sent);
        client.seconds(10);
        assert_eq!(client.closing, None);
        client.seconds(1);
        assert_eq!(client.closing, Some(Closing::Gracefully));
    }
    let mut client = Client::silent(Limits::default());
    client.send(PREFACE);
    client.seconds(11);
    assert_eq!(client.closing, Some(Closing::Sending));
}

#[test]
fn a_slow_field_block_ends_the_connection() {
    let mut client = Client::new();
    let block = client.block(&GET);
    client.frame(kind::HEADERS, 1, 1, &block[..1]);
    client.seconds(6);
    client.frame(kind::CONTINUATION, 0, 1, &block[1..2]);
    client.seconds(5);
    assert_eq!(client.goaway(), Some(Code::EnhanceYourCalm as u32));
    // The applications of other requests go on.
    assert!(!client.http.is_closed_for_abuse());
    // A frame that does not end is slow as well.
    let mut client = Client::new();
    client.send(&encoded(kind::HEADERS, 5, 1, &block)[..10]);
    client.seconds(11);
    assert_eq!(client.goaway(), Some(Code::EnhanceYourCalm as u32));
}

#[test]
fn a_cut_header_of_content_is_no_slow_field_block() {
    for cut in 1..=9 {
        let mut client = Client::new();
        client.headers(1, &POST, false);
        let frame = encoded(kind::DATA, flag::END_STREAM, 1, b"a");
        client.send(&frame[..cut]);
        client.seconds(11);
        assert_eq!(client.closing, None, "{cut}");
        client.send(&frame[cut..]);
        let events = client.events();
        let is_whole = matches!(events.last(), Some(Event::Body { ended: true, .. }));
        assert!(is_whole, "{cut}: {events:?}");
    }
}

#[test]
fn late_content_of_a_reset_stream_is_ignored_while_it_arrives() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.http.cancel(1, Code::Cancel, client.now);
    client.done(1);
    client.frames();
    for _ in 0..10 {
        client.data(1, b"a", false);
        client.seconds(1);
    }
    assert!(client.frames().is_empty());
    assert_eq!(client.closing, None);
}

#[test]
fn slow_content_times_out_while_the_host_waits() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.data(1, b"a", false);
    client.seconds(100);
    client.events();
    client.http.wait_for_body(1, client.now);
    client.seconds(60);
    assert!(client.events().is_empty());
    client.seconds(1);
    assert_eq!(client.events(), [Event::BodyTimedOut { stream_id: 1 }]);
    assert_eq!(client.closing, None);
}

#[test]
fn a_response_without_credit_is_given_up() {
    let mut client = with(RequestLimits {
        send_timeout: Duration::from_secs(10),
        ..RequestLimits::default()
    });
    client.settings(&[(4, 0)]);
    client.headers(1, &GET, true);
    client
        .respond(1, &[OK], b"whole", true)
        .expect("a response");
    client.done(1);
    client.headers(3, &GET, true);
    client
        .respond(3, &[OK], &[b'a'; 200_000], false)
        .expect("a response");
    assert!(client.http.is_held_up(3, false, client.now));
    client.events();
    client.frames();
    client.seconds(12);
    let mut events = client.events();
    events.retain(|it| !matches!(it, Event::TooSlow(TooSlow::Nothing)));
    assert_eq!(events, [Event::Aborted { stream_id: 3 }]);
    let frames = client.frames();
    let mut reset = Vec::from_iter(frames.iter().map(|it| (it.stream_id, it.code())));
    reset.sort_unstable();
    let cancel = Code::Cancel as u32;
    assert_eq!(reset, [(1, cancel), (3, cancel)]);
}

#[test]
fn a_client_that_does_not_read_loses_its_connection() {
    let mut client = with(RequestLimits {
        send_timeout: Duration::from_secs(10),
        ..RequestLimits::default()
    });
    client.headers(1, &GET, true);
    client
        .respond(1, &[OK], &[b'a'; 1000], true)
        .expect("a response");
    client.events();
    for _ in 0..12 {
        client.tick(Duration::from_secs(1), 500);
    }
    assert_eq!(client.closing, Some(Closing::AtOnce));
    assert_eq!(client.events(), [Event::TooSlow(TooSlow::Nothing)]);
}

#[test]
fn a_lost_connection_aborts_its_requests() {
    let mut client = Client::new();
    client.headers(1, &GET, true);
    client.headers(3, &POST, false);
    client.headers(5, &GET, true);
    client.respond(3, &[OK], b"a", true).expect("a response");
    client.events();
    client.http.end();
    client.collect();
    let aborted = [1, 5].map(|stream_id| Event::Aborted { stream_id });
    assert_eq!(client.events(), aborted);
    assert_eq!(client.closing, Some(Closing::Gracefully));
    assert!(client.respond(1, &[OK], b"a", true).is_err());
}

#[test]
fn a_half_open_stream_without_an_application_is_reset() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.respond(1, &[OK], b"a", true).expect("a response");
    client.done(1);
    client.frames();
    client.seconds(1);
    assert_eq!(client.reset_code(1), None);
    client.seconds(1);
    assert_eq!(client.reset_code(1), Some(Code::NoError as u32));
}

#[test]
fn an_idle_connection_frees_its_memory_and_works_on() {
    let mut client = Client::new();
    for stream_id in [1u32, 3] {
        client.headers(stream_id, &[&GET[..], &[("x", "y")]].concat(), true);
        client
            .respond(stream_id.into(), &[OK, ("x", "y")], b"a", true)
            .expect("a response");
        client.done(stream_id.into());
        client.seconds(3);
        assert_eq!(client.http.held_bytes(), 0);
    }
    assert_eq!(client.requests(), [(1, None), (3, None)]);
}
