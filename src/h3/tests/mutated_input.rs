//! Real traffic with bytes changed, cut, repeated or swapped between streams. Nothing panics, the result does not
//! depend on the size of pieces, and the end of the connection leaves no state. The fuzz targets test more; this runs
//! in every test run, with a printed seed.

use crate::common::*;
use bytes::Bytes;
use uringcore_h3::{Code, Event, Output, QueuedConnection, Role, Settings};

const OK: [(&str, &str); 1] = [(":status", "200")];

/// xorshift64*, which is good enough to choose bytes, and gives the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// A client's output for some requests of different kinds, which use the dynamic table.
fn traffic() -> Vec<(u64, Vec<u8>, bool)> {
    let mut pair = Pair::blocking(Feed::Whole);
    let mut written = Vec::new();
    // The two connections have exchanged their first writes already, so these are added by hand.
    written.push((
        2,
        [&[0][..], &frame(0x4, &varints(&[0x1, 4096, 0x7, 16]))].concat(),
        false,
    ));
    // The capacity is the one that the encoder sets for a peer with default SETTINGS.
    written.push((6, b"\x02\x3f\xe1\x1f".to_vec(), false));
    written.push((10, b"\x03".to_vec(), false));
    for request in 0..6u64 {
        let stream_id = request * 4;
        let list = [
            &GET[..],
            &[("x-same", "each time"), ("content-length", "5")],
        ]
        .concat();
        pair.client.send_headers(stream_id, &list, false).unwrap();
        pair.client
            .send_data(stream_id, Bytes::from_static(b"hello"), request % 2 == 0)
            .unwrap();
        if request % 2 == 1 {
            pair.client
                .send_headers(stream_id, &[("x-trailer", "1")], true)
                .unwrap();
        }
        for output in outputs(&mut pair.client) {
            if let Output::Write {
                stream_id,
                data,
                fin,
            } = output
            {
                written.push((stream_id, data.to_vec(), fin));
            }
        }
    }
    written
}

/// A server's output: responses, two promises and their pushes.
fn pushing_traffic() -> Vec<(u64, Vec<u8>, bool)> {
    let mut pair = Pair::with_settings(Feed::Whole, pushable(), Settings::default());
    let mut written = vec![
        (
            3,
            [&[0][..], &frame(0x4, &varints(&[0x1, 4096, 0x7, 16]))].concat(),
            false,
        ),
        (7, b"\x02\x3f\xe1\x1f".to_vec(), false),
        (11, b"\x03".to_vec(), false),
    ];
    for stream_id in [0, 4, 8] {
        pair.client.send_headers(stream_id, &GET, true).unwrap();
    }
    pair.pump();
    let server = &mut pair.server;
    let style = [&GET[..3], &[(":path", "/style.css"), ("x-same", "again")]].concat();
    for (request, push_stream) in [(0, 15), (4, 19)] {
        server
            .send_push_promise(request, push_stream, &style)
            .unwrap();
        server.send_headers(push_stream, &OK, false).unwrap();
        server
            .send_data(push_stream, Bytes::from_static(b"style"), true)
            .unwrap();
    }
    for request in [0, 4, 8] {
        server.send_headers(request, &OK, false).unwrap();
        server
            .send_data(request, Bytes::from_static(b"page"), true)
            .unwrap();
    }
    for output in outputs(server) {
        if let Output::Write {
            stream_id,
            data,
            fin,
        } = output
        {
            written.push((stream_id, data.to_vec(), fin));
        }
    }
    written
}

fn pushable() -> Settings {
    Settings {
        max_push_id: Some(1),
        ..Settings::default()
    }
}

fn new_server() -> QueuedConnection {
    QueuedConnection::new(Role::Server, Settings::default(), SERVER_UNI)
}

fn new_client() -> QueuedConnection {
    let mut client = QueuedConnection::new(Role::Client, pushable(), CLIENT_UNI);
    for stream_id in [0, 4, 8] {
        client.send_headers(stream_id, &GET, true).unwrap();
    }
    outputs(&mut client);
    client
}

fn mutate(random: &mut Random, writes: &mut Vec<(u64, Vec<u8>, bool)>) {
    for _ in 0..=random.below(3) {
        let index = random.below(writes.len());
        let other = random.below(writes.len());
        let (_, data, fin) = &mut writes[index];
        match random.below(7) {
            0 if !data.is_empty() => {
                let position = random.below(data.len());
                data[position] ^= 1 << random.below(8);
            }
            1 if !data.is_empty() => {
                let position = random.below(data.len());
                data[position] = random.next() as u8;
            }
            2 => data.truncate(random.below(data.len() + 1)),
            3 => data.insert(random.below(data.len() + 1), random.next() as u8),
            4 => *fin = !*fin,
            5 => writes.swap(index, other),
            _ => {
                let copy = writes[other].clone();
                writes.insert(index, copy);
            }
        }
    }
}

/// Passes input to a connection. Returns the error code if it was closed, otherwise all its events.
fn outcome(
    new: fn() -> QueuedConnection,
    writes: &[(u64, Vec<u8>, bool)],
    feed: Feed,
) -> Result<Vec<Event>, Code> {
    let mut connection = new();
    let mut closed = None;
    let mut all = Vec::new();
    for (stream_id, data, fin) in writes {
        feed_stream(&mut connection, *stream_id, data, *fin, feed);
        assert!(
            closed.is_none() || outputs(&mut connection).is_empty(),
            "output after the close"
        );
        closed = closed.or_else(|| close_code(&mut connection));
        all.extend(events(&mut connection));
    }
    match closed {
        Some(code) => {
            assert_eq!(connection.open_requests(), 0);
            Err(code)
        }
        None => Ok(all),
    }
}

#[test]
fn mutated_traffic_has_one_outcome_in_pieces_of_any_size() {
    try_mutations(new_server, &traffic());
}

#[test]
fn mutated_pushes_have_one_outcome_in_pieces_of_any_size() {
    let original = pushing_traffic();
    let whole = outcome(new_client, &original, Feed::Whole).unwrap();
    let promises = |event: &&Event| matches!(event, Event::PushPromise { .. });
    assert_eq!(whole.iter().filter(promises).count(), 2);
    try_mutations(new_client, &original);
}

fn try_mutations(new: fn() -> QueuedConnection, original: &[(u64, Vec<u8>, bool)]) {
    assert_eq!(
        outcome(new, original, Feed::Whole),
        outcome(new, original, Feed::ByteByByte)
    );
    assert!(outcome(new, original, Feed::Whole).is_ok());
    let (mut closed, mut survived) = (0, 0);
    for seed in 1..4000u64 {
        let mut writes = original.to_vec();
        mutate(
            &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            &mut writes,
        );
        let whole = outcome(new, &writes, Feed::Whole);
        let pieces = outcome(new, &writes, Feed::ByteByByte);
        match (&whole, &pieces) {
            (Err(code), Err(other)) => {
                closed += 1;
                assert_eq!(code, other, "seed {seed}");
            }
            (Ok(_), Ok(_)) => survived += 1,
            _ => panic!("seed {seed}: {whole:?} as a whole, {pieces:?} byte by byte"),
        }
    }
    assert!(
        closed > 500 && survived > 500,
        "{closed} closed, {survived} survived"
    );
}
