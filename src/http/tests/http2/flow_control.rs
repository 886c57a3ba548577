//! Flow control in both directions, and the backpressure between the host and the client.

use bytes::Bytes;
use uringcore_http::http2::frame_codec::kind;
use uringcore_http::http2::{Code, Event};

use super::client::{Client, Frame, GET, POST, content, encoded};

const OK: (&str, &str) = (":status", "200");
const STREAM_WINDOW: usize = 1 << 20;

fn increments(frames: &[Frame]) -> Vec<(u32, u32)> {
    let updates = frames.iter().filter(|it| it.kind == kind::WINDOW_UPDATE);
    let increment = |it: &Frame| u32::from_be_bytes(it.payload[..].try_into().expect("4 bytes"));
    updates.map(|it| (it.stream_id, increment(it))).collect()
}

/// Sends content in full frames. Returns the number of sent bytes.
fn upload(client: &mut Client, stream_id: u32, size: usize) -> usize {
    let part = [b'a'; 16_384];
    for _ in 0..size / part.len() {
        client.data(stream_id, &part, false);
    }
    size
}

#[test]
fn content_that_is_taken_gets_credit() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    let mut credit = [0, 0];
    let mut sent = 0;
    for _ in 0..32 {
        sent += upload(&mut client, 1, STREAM_WINDOW / 4);
        for (stream_id, increment) in increments(&client.frames()) {
            credit[stream_id as usize] += increment as usize;
        }
    }
    assert_eq!(sent, 8 * STREAM_WINDOW);
    assert_eq!(credit[1], sent);
    assert_eq!(client.closing, None);
    // The connection's window is larger, so it gets credit in larger parts.
    assert!(credit[0] >= sent - STREAM_WINDOW);
}

#[test]
fn the_rest_of_a_large_piece_does_not_keep_the_piece() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.events();
    let next = encoded(kind::DATA, 0, 1, b"b");
    client.send(
        &[
            encoded(kind::DATA, 0, 1, &[b'a'; 16_384]),
            next[..3].to_vec(),
        ]
        .concat(),
    );
    let Some(Event::Body { pieces, .. }) = client.events().pop() else {
        panic!("no content");
    };
    assert!(pieces[0].len() == 16_384 && pieces[0].is_unique());
    client.send(&next[3..]);
    let expected = Event::Body {
        stream_id: 1,
        pieces: vec![Bytes::from_static(b"b")],
        ended: false,
    };
    assert_eq!(client.events(), [expected]);
}

#[test]
fn a_paused_request_gets_no_credit_until_it_continues() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.headers(3, &POST, false);
    client.http.pause(1);
    upload(&mut client, 1, STREAM_WINDOW);
    assert!(increments(&client.frames()).is_empty());
    // Another request continues meanwhile.
    upload(&mut client, 3, STREAM_WINDOW / 2);
    assert!(increments(&client.frames()).iter().all(|it| it.0 != 1));
    client.http.resume(1);
    client.collect();
    let given = increments(&client.frames());
    assert!(given.contains(&(1, STREAM_WINDOW as u32)), "{given:?}");
}

#[test]
fn a_client_must_not_exceed_the_window_of_a_stream() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.http.pause(1);
    upload(&mut client, 1, STREAM_WINDOW);
    client.data(1, b"a", false);
    assert_eq!(client.reset_code(1), Some(Code::FlowControlError as u32));
    assert_eq!(client.closing, None);
}

#[test]
fn a_client_must_not_exceed_the_window_of_the_connection() {
    let mut client = Client::new();
    for stream_id in [1, 3, 5, 7] {
        client.headers(stream_id, &POST, false);
        client.http.pause(stream_id.into());
        upload(&mut client, stream_id, STREAM_WINDOW);
    }
    assert_eq!(client.closing, None);
    client.headers(9, &POST, false);
    client.data(9, b"a", false);
    assert_eq!(client.goaway(), Some(Code::FlowControlError as u32));
}

#[test]
fn the_credit_of_an_ended_stream_returns_to_the_connection() {
    let mut client = Client::new();
    for stream_id in (1..200).step_by(2) {
        client.headers(stream_id, &POST, false);
        client.http.pause(stream_id.into());
        upload(&mut client, stream_id, STREAM_WINDOW);
        client.reset(stream_id);
        client.done(stream_id.into());
    }
    assert_eq!(client.closing, None);
}

#[test]
fn credit_is_withheld_while_the_server_has_no_memory() {
    let mut client = Client::new();
    client.headers(1, &POST, false);
    client.http.set_credit_withheld(true);
    upload(&mut client, 1, 2 * STREAM_WINDOW);
    assert!(increments(&client.frames()).iter().all(|it| it.0 == 1));
    client.http.set_credit_withheld(false);
    client.collect();
    assert_eq!(
        increments(&client.frames()),
        [(0, 2 * STREAM_WINDOW as u32)]
    );
}

#[test]
fn a_response_keeps_to_the_windows_of_the_client() {
    let mut client = Client::new();
    client.settings(&[(4, 5)]);
    client.headers(1, &GET, true);
    client
        .respond(1, &[OK], b"0123456789", true)
        .expect("a response");
    assert_eq!(content(&client.frames()), b"01234");
    client.window_update(1, 2);
    assert_eq!(content(&client.frames()), b"56");
    // A larger setting raises the windows of open streams.
    client.settings(&[(4, 6)]);
    assert_eq!(content(&client.frames()), b"7");
    // A smaller one makes them negative.
    client.settings(&[(4, 1)]);
    client.window_update(1, 5);
    assert!(content(&client.frames()).is_empty());
    client.window_update(1, 1);
    assert_eq!(content(&client.frames()), b"8");
    client.window_update(1, 9);
    let frames = client.frames();
    assert_eq!(content(&frames), b"9");
    assert!(frames[0].ends());
}

#[test]
fn the_window_of_the_connection_is_shared() {
    let mut client = Client::new();
    client.settings(&[(4, 1 << 20)]);
    for stream_id in [1u32, 3] {
        client.headers(stream_id, &GET, true);
        client
            .respond(stream_id.into(), &[OK], &[b'a'; 60_000], true)
            .expect("a response");
    }
    assert_eq!(content(&client.frames()).len(), 65_535);
    client.window_update(0, 1 << 20);
    assert_eq!(content(&client.frames()).len(), 120_000 - 65_535);
}

#[test]
fn an_empty_end_needs_no_window() {
    let mut client = Client::new();
    client.settings(&[(4, 0)]);
    client.headers(1, &GET, true);
    client.send_headers(1, &[OK], false).expect("a response");
    client.send_data(1, b"", true).expect("the end");
    let frames = client.frames_of(1);
    assert!(frames[1].ends() && frames[1].payload.is_empty());
}

#[test]
fn frames_keep_to_the_clients_maximum() {
    let mut client = Client::new();
    client.settings(&[(5, 20_000), (4, 1 << 20)]);
    client.headers(1, &GET, true);
    client
        .respond(1, &[OK], &[b'a'; 50_000], true)
        .expect("a response");
    let frames = client.frames();
    let sizes = frames
        .iter()
        .filter(|it| it.kind == kind::DATA)
        .map(|it| it.payload.len());
    assert_eq!(Vec::from_iter(sizes), [20_000, 20_000, 10_000]);
}

#[test]
fn a_full_queue_holds_the_host_until_the_client_has_read() {
    let mut client = Client::new();
    client.settings(&[(4, 0)]);
    client.headers(1, &GET, true);
    client.send_headers(1, &[OK], false).expect("a response");
    let now = client.now;
    assert!(!client.http.is_held_up(1, false, now));
    client
        .send_data(1, &[b'a'; 100 << 10], false)
        .expect("content");
    assert!(!client.http.is_held_up(1, false, now));
    // While the server has no memory, less is enough.
    assert!(client.http.is_held_up(1, true, now));
    client
        .send_data(1, &[b'a'; 28 << 10], false)
        .expect("content");
    assert!(client.http.is_held_up(1, false, now));
    client.events();
    client.window_update(0, 1 << 20);
    client.window_update(1, 90 << 10);
    assert!(client.events().is_empty());
    client.window_update(1, 10 << 10);
    assert_eq!(client.events(), [Event::Writable { stream_id: 1 }]);
}

#[test]
fn the_queues_of_a_connection_are_bounded_together() {
    let mut client = Client::new();
    client.settings(&[(4, 0)]);
    let now = client.now;
    let part = Bytes::from(vec![b'a'; 120 << 10]);
    let mut held = Vec::new();
    for stream_id in (1u32..99).step_by(2) {
        client.headers(stream_id, &GET, true);
        client
            .send_headers(stream_id.into(), &[OK], false)
            .expect("a response");
        let sent = client
            .http
            .send_data(stream_id.into(), part.clone(), false, now);
        sent.expect("content");
        if client.http.is_held_up(stream_id.into(), false, now) {
            held.push(u64::from(stream_id));
        }
    }
    assert_eq!(held.len(), 49 - (4 << 20) / (120 << 10));
    client.events();
    client.window_update(0, 1 << 30);
    for stream_id in (1u32..60).step_by(2) {
        client.window_update(stream_id, 1 << 20);
    }
    let woken = client.events().into_iter().map(|event| match event {
        Event::Writable { stream_id } => stream_id,
        event => panic!("{event:?}"),
    });
    assert_eq!(Vec::from_iter(woken), held);
}

#[test]
fn the_output_waits_while_the_transport_is_full() {
    let mut client = Client::new();
    client.settings(&[(4, 1 << 20)]);
    client.window_update(0, 1 << 20);
    client.headers(1, &GET, true);
    client.http.set_writable(false);
    client
        .respond(1, &[OK], &[b'a'; 100], true)
        .expect("a response");
    assert!(content(&client.frames()).is_empty());
    client.http.set_writable(true);
    client.collect();
    assert_eq!(content(&client.frames()).len(), 100);
}
