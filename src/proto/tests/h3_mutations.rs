//! Real traffic with bytes changed, cut, repeated or swapped between streams: nothing panics, the
//! outcome does not depend on how the bytes are cut, and no state outlives the connection's end.
//! The fuzz targets go deeper; this runs with every test run, from a printed seed.

mod h3_common;

use bytes::Bytes;
use h3_common::*;
use uringcore_proto::h3::{Code, Connection, Event, Output, Role, Settings};

/// xorshift64*: good enough to choose bytes, and the same everywhere.
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

/// What a client writes for a few requests of different kinds, the dynamic table in use.
fn traffic() -> Vec<(u64, Vec<u8>, bool)> {
    let mut pair = Pair::new(Feed::Whole);
    pair.client.set_qpack_may_block(true);
    let mut written = Vec::new();
    // The writes of the connection's beginning are not in the pair's queue any more: by hand.
    written.push((
        2,
        [&[0][..], &frame(0x4, &varints(&[0x1, 4096, 0x7, 16]))].concat(),
        false,
    ));
    // With the capacity that our encoder sets for a peer with the default SETTINGS.
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

/// Feeds a server and returns what it came to: the code of its close, or all its events.
fn outcome(writes: &[(u64, Vec<u8>, bool)], feed: Feed) -> Result<Vec<Event>, Code> {
    let mut server = Connection::new(Role::Server, Settings::default(), SERVER_UNI);
    let mut closed = None;
    let mut all = Vec::new();
    for (stream_id, data, fin) in writes {
        feed_stream(&mut server, *stream_id, data, *fin, feed);
        assert!(
            closed.is_none() || outputs(&mut server).is_empty(),
            "output after the close"
        );
        closed = closed.or_else(|| close_code(&mut server));
        all.extend(events(&mut server));
    }
    match closed {
        Some(code) => {
            assert_eq!(server.open_requests(), 0);
            Err(code)
        }
        None => Ok(all),
    }
}

#[test]
fn mutated_traffic_has_one_outcome_however_it_is_cut() {
    let original = traffic();
    assert_eq!(
        outcome(&original, Feed::Whole),
        outcome(&original, Feed::ByteByByte)
    );
    assert!(outcome(&original, Feed::Whole).is_ok());
    let (mut closed, mut survived) = (0, 0);
    for seed in 1..4000u64 {
        let mut writes = original.clone();
        mutate(
            &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            &mut writes,
        );
        let whole = outcome(&writes, Feed::Whole);
        let pieces = outcome(&writes, Feed::ByteByByte);
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
