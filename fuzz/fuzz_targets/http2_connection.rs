//! Invariant: a connection does not panic on any input. Its requests, their content and its responses do not depend on
//! the splitting of the input. Everything that it sends consists of whole frames.

#![no_main]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_http::http2::frame_codec::{FrameHeader, PREFACE};
use uringcore_http::http2::{Connection, Event, Limits, RequestLimits, SectionLimits};
use uringcore_http::tcp_output::{Piece, Source};

#[derive(Debug, Default, PartialEq)]
struct Seen {
    requests: Vec<(u64, Bytes, Bytes, Vec<(Bytes, Bytes)>, Option<u16>)>,
    content: Vec<(u64, Vec<u8>)>,
    sent: Vec<u8>,
}

/// A host that answers each request when it is complete.
fn serve(pieces: &mut dyn Iterator<Item = &[u8]>, now: Instant) -> Seen {
    let limits = Limits {
        requests: RequestLimits {
            open_requests: 4,
            requests: Some(20),
            ..RequestLimits::default()
        },
        sections: SectionLimits {
            bytes: 512,
            fields: 8,
        },
    };
    let mut http = Connection::new(Arc::new(limits), now);
    let mut seen = Seen::default();
    http.receive(PREFACE[..].into(), now);
    for piece in pieces {
        http.receive(piece.into(), now);
        while let Some(event) = http.poll_event() {
            let answered = match event {
                Event::Request {
                    stream_id,
                    head,
                    refusal,
                    ended,
                } => {
                    let refused = refusal.map(|refusal| refusal.status);
                    seen.requests
                        .push((stream_id, head.method, head.target, head.fields, refused));
                    ended.then_some(stream_id)
                }
                Event::Body {
                    stream_id,
                    pieces,
                    ended,
                } => {
                    match seen.content.iter_mut().find(|(id, _)| *id == stream_id) {
                        Some((_, content)) => content.extend(pieces.concat()),
                        None => seen.content.push((stream_id, pieces.concat())),
                    }
                    ended.then_some(stream_id)
                }
                Event::Aborted { stream_id } => {
                    http.done(stream_id, now);
                    None
                }
                Event::BodyTimedOut { .. } | Event::TooSlow(_) | Event::Writable { .. } => None,
            };
            if let Some(stream_id) = answered {
                let fields = [(&b":status"[..], &b"200"[..])];
                let _ = http.respond(stream_id, &fields, Bytes::from_static(b"ok"), true, now);
                http.done(stream_id, now);
            }
        }
        while http.fill_output(now) {
            for piece in http.output().pieces() {
                match piece {
                    Piece::Copied(bytes) => seen.sent.extend_from_slice(bytes),
                    Piece::Kept(content) => seen.sent.extend_from_slice(content),
                }
            }
            http.written();
        }
    }
    http.tick(0, now);
    http.end();
    seen
}

/// The sent frames of each stream, because the order of streams depends on the splitting.
fn by_stream(sent: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut rest = sent;
    let mut frames: Vec<(u32, Vec<u8>)> = Vec::new();
    while !rest.is_empty() {
        let header = FrameHeader::read(rest).expect("a whole header");
        let (frame, others) = rest.split_at(9 + header.length);
        rest = others;
        if header.stream_id != 0 {
            frames.push((header.stream_id, frame[..9].to_vec()));
        }
    }
    frames.sort();
    frames
}

fuzz_target!(|data: &[u8]| {
    let now = Instant::now();
    let whole = serve(&mut std::iter::once(data), now);
    let cut = serve(&mut data.chunks(1), now);
    by_stream(&whole.sent);
    by_stream(&cut.sent);
    // A request may be reset by bytes that arrive with it, so later ones may find room only if they arrive later.
    if !whole.sent.windows(9).any(|it| it[3] == 3) && !cut.sent.windows(9).any(|it| it[3] == 3) {
        let requests = |seen: &Seen| seen.requests.iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(requests(&whole), requests(&cut));
    }
});
