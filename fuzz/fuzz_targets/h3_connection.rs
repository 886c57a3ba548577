//! Invariant: no input makes a connection panic or answer after it has closed, and the splitting of
//! streams makes no difference: unless an error ends something, every stream has equal events.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::{
    Code, Event, Field, Output, Priority, QueuedConnection, Role, Settings, settings,
};

fuzz_target!(|data: &[u8]| {
    let Some((&options, script)) = data.split_first() else {
        return;
    };
    let whole = run(options, script, false);
    let pieces = run(options, script, true);
    // If one piece contains two errors, the first one found gives the code. An encoder that evicts an entry
    // that a blocked section refers to (RFC 9204 section 2.1.1 forbids it) is caught only if the eviction
    // arrives in one piece with the entry that the section waited for. Split input leaves more unfinished.
    if whole.closed.is_some() != pieces.closed.is_some() {
        let evicted = Some(Code::QPACK_DECOMPRESSION_FAILED.0);
        let load = Some(Code::H3_EXCESSIVE_LOAD.0);
        let code = whole.closed.or(pieces.closed);
        assert!(code == evicted || (code == load && pieces.closed == load));
    }
    if whole.closed.or(pieces.closed).is_none() && !whole.gave_up && !pieces.gave_up {
        assert_eq!(whole.streams, pieces.streams);
    }
});

/// The events of one stream, independent of its splitting.
#[derive(Debug, Default, PartialEq)]
struct Stream {
    sections: Vec<(Vec<Field>, usize)>,
    content: Vec<u8>,
    ended: bool,
    resets: Vec<u64>,
    priorities: Vec<Priority>,
    session: Option<u64>,
}

#[derive(Default)]
struct Outcome {
    streams: BTreeMap<u64, Stream>,
    closed: Option<u64>,
    gave_up: bool,
}

fn run(options: u8, mut script: &[u8], byte_by_byte: bool) -> Outcome {
    let webtransport = options & 2 != 0;
    let (role, uni) = match options & 1 {
        0 => (Role::Server, [3, 7, 11]),
        _ => (Role::Client, [2, 6, 10]),
    };
    let settings = Settings {
        max_field_section_size: 512,
        max_fields: 12,
        max_unfinished_size: Some(1024),
        max_requests: Some(4),
        enable_connect_protocol: options & 16 != 0,
        qpack_max_table_capacity: 256,
        qpack_blocked_streams: 3,
        h3_datagram: webtransport,
        webtransport,
        max_push_id: (options & 8 != 0).then_some(2),
        extra: vec![(settings::id::ENABLE_WEBTRANSPORT, 1)],
        ..Settings::default()
    };
    let mut connection = QueuedConnection::new(role, settings, uni);
    connection.set_strict(options & 4 != 0);
    connection.set_answers_large_requests(options & 32 != 0);
    if role == Role::Client {
        let get = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/"),
        ];
        for stream_id in [0, 4, 8] {
            connection
                .send_headers(stream_id, &get, true)
                .expect("a good request");
        }
    }
    let mut outcome = Outcome::default();
    // QUIC delivers nothing after a FIN or a reset.
    let mut over = BTreeSet::new();
    // Steps of [stream and FIN flag][length or kind][bytes].
    while let [head, length, rest @ ..] = script {
        let stream_id = u64::from(head & 0x1f);
        let fin = head & 0x20 != 0;
        match head >> 6 {
            0 | 1 => {
                let (chunk, rest) = rest.split_at(usize::from(*length).min(rest.len()));
                script = rest;
                if !over.contains(&stream_id) {
                    feed(&mut connection, stream_id, chunk, fin, byte_by_byte);
                }
                if fin {
                    over.insert(stream_id);
                }
            }
            2 => {
                script = rest;
                match length & 3 {
                    0 if over.insert(stream_id) => {
                        connection.handle_stream_reset(stream_id, u64::from(*length));
                    }
                    0 => {}
                    1 => connection.handle_stop_sending(stream_id, u64::from(*length)),
                    2 => connection.cancel_request(stream_id, u64::from(*length)),
                    _ => drop(connection.send_goaway(u64::from(*length))),
                }
            }
            _ => {
                let (chunk, rest) = rest.split_at(usize::from(*length).min(rest.len()));
                script = rest;
                connection.handle_datagram(Bytes::copy_from_slice(chunk));
            }
        }
        collect(&mut connection, &mut outcome);
    }
    outcome
}

fn feed(
    connection: &mut QueuedConnection,
    stream_id: u64,
    data: &[u8],
    fin: bool,
    byte_by_byte: bool,
) {
    if !byte_by_byte || data.is_empty() {
        connection.handle_stream_data(stream_id, Bytes::copy_from_slice(data), fin);
        return;
    }
    for (index, &byte) in data.iter().enumerate() {
        let last = index + 1 == data.len();
        connection.handle_stream_data(stream_id, Bytes::copy_from_slice(&[byte]), fin && last);
    }
}

fn collect(connection: &mut QueuedConnection, outcome: &mut Outcome) {
    while let Some(output) = connection.poll_output() {
        assert!(
            outcome.closed.is_none(),
            "output after the close: {output:?}"
        );
        if let Output::CloseConnection { code, .. } = output {
            outcome.closed = Some(code.0);
        }
    }
    while let Some(event) = connection.poll_event() {
        match event {
            Event::Headers {
                stream_id,
                fields,
                fin,
                ..
            } => {
                let stream = outcome.streams.entry(stream_id).or_default();
                assert!(!stream.ended);
                stream.sections.push((fields, stream.content.len()));
                stream.ended = fin;
            }
            Event::Data {
                stream_id,
                data,
                fin,
            } => {
                let stream = outcome.streams.entry(stream_id).or_default();
                assert!(!stream.ended && (fin || !data.is_empty()));
                stream.content.extend_from_slice(&data);
                stream.ended = fin;
            }
            // The promises of one stream arrive in order too.
            Event::PushPromise {
                stream_id, fields, ..
            } => {
                let stream = outcome.streams.entry(stream_id).or_default();
                assert!(!stream.ended);
                stream.sections.push((fields, stream.content.len()));
            }
            Event::WebTransportData {
                session_id,
                stream_id,
                data,
                fin,
            } => {
                let stream = outcome.streams.entry(stream_id).or_default();
                assert!(fin || !data.is_empty());
                stream.session = Some(session_id);
                stream.content.extend_from_slice(&data);
                stream.ended = fin;
            }
            Event::Reset {
                stream_id,
                code,
                local,
            } => {
                outcome.gave_up |= local;
                outcome
                    .streams
                    .entry(stream_id)
                    .or_default()
                    .resets
                    .push(code);
            }
            // No event follows, with or without the host's response.
            Event::HeadersTooLarge { stream_id, fields } => {
                let stream = outcome.streams.entry(stream_id).or_default();
                assert!(!stream.ended && stream.sections.is_empty());
                stream.sections.push((fields, 0));
                stream.ended = true;
            }
            Event::PriorityUpdate {
                stream_id,
                priority,
            } => {
                assert!(priority.urgency <= 7);
                let stream = outcome.streams.entry(stream_id).or_default();
                stream.priorities.push(priority);
            }
            Event::SettingsReceived
            | Event::Datagram { .. }
            | Event::StopSending { .. }
            | Event::GoAway { .. } => {}
        }
    }
}
