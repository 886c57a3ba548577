//! Invariant: a connection does not panic on any input. Its requests, their content and its responses do not depend on
//! the splitting of the input.

#![no_main]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_http::http1::{Connection, Event, Limits};
use uringcore_http::tcp_output::{Closing, Piece, Source};

#[derive(Debug, Default, PartialEq)]
struct Seen {
    requests: Vec<(Bytes, Bytes, Vec<(Bytes, Bytes)>, Option<u16>)>,
    content: Vec<u8>,
    sent: Vec<u8>,
    ends: bool,
}

/// A host that echoes the length of each request's content.
fn serve(pieces: &mut dyn Iterator<Item = &[u8]>, now: Instant) -> Seen {
    let limits = Limits {
        header_bytes: 512,
        header_fields: 8,
        requests: Some(20),
        ..Limits::default()
    };
    let mut http = Connection::new(Arc::new(limits), now);
    let mut seen = Seen::default();
    let mut open = None;
    for piece in pieces {
        http.receive(piece.into(), now);
        while let Some(event) = http.poll_event() {
            let answer = match event {
                Event::Request {
                    serial,
                    head,
                    refusal,
                    ended,
                    ..
                } => {
                    let refused = refusal.map(|refusal| refusal.status);
                    open = Some((serial, head.is_websocket));
                    seen.requests
                        .push((head.method, head.target, head.fields, refused));
                    refused
                        .or(ended.then_some(200))
                        .or(head.is_websocket.then_some(200))
                }
                Event::Body { pieces, ended } => {
                    pieces
                        .iter()
                        .for_each(|piece| seen.content.extend_from_slice(piece));
                    ended.then_some(200)
                }
                Event::ContentRefused(refusal) => Some(refusal.status),
                Event::TooSlow(_) | Event::Aborted => None,
            };
            if let (Some(status), Some((serial, is_websocket))) = (answer, open) {
                let status = status.to_string();
                let fields = [(&b":status"[..], status.as_bytes())];
                let _ = http.respond(
                    serial,
                    &fields,
                    Bytes::from_static(b"ok"),
                    !is_websocket,
                    now,
                );
                if !is_websocket {
                    http.done(serial, now);
                }
            }
        }
        for piece in http.output().pieces() {
            match piece {
                Piece::Copied(bytes) => seen.sent.extend_from_slice(bytes),
                Piece::Kept(content) => seen.sent.extend_from_slice(content),
            }
        }
        http.written();
        seen.ends |= matches!(
            http.take_closing(),
            Some(Closing::Sending | Closing::Gracefully)
        );
    }
    http.tick(0, now);
    http.end();
    seen
}

fuzz_target!(|data: &[u8]| {
    let now = Instant::now();
    let whole = serve(&mut std::iter::once(data), now);
    let cut = serve(&mut data.chunks(1), now);
    // `ends` is not compared, because the end may depend on the splitting.
    assert_eq!(whole.requests, cut.requests);
    assert_eq!(whole.content, cut.content);
    assert_eq!(whole.sent, cut.sent);
});
