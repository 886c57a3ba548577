//! Invariant: no bytes make the reader panic or keep more than its limit; its events do not depend
//! on the splitting of the input; and the frames that encode its events read back as equal events.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_http::ws::{Agreed, Event, Reader, Side, Violation};

const MESSAGE_MAX: usize = 300;

fn read(
    side: Side,
    compresses: bool,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> (Vec<Event>, Option<Violation>) {
    let mut reader = Reader::new(side, MESSAGE_MAX);
    if compresses && let Some(agreed) = Agreed::to_offers([&b"permessage-deflate"[..]]) {
        reader.accept_compressed(&agreed);
    }
    let mut events = Vec::new();
    for mut piece in pieces {
        loop {
            match reader.read(&mut piece) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(fault) => return (events, Some(fault)),
            }
            assert!(reader.held_bytes() <= MESSAGE_MAX);
        }
    }
    (events, None)
}

fuzz_target!(|data: &[u8]| {
    for (side, compresses) in [
        (Side::Client, false),
        (Side::Server, false),
        (Side::Server, true),
    ] {
        let whole = read(side, compresses, &mut std::iter::once(data));
        let cut = read(side, compresses, &mut data.chunks(1));
        assert_eq!(whole, cut);
        let mask = (side == Side::Server).then_some([1, 2, 3, 4]);
        for event in whole.0 {
            assert!(event.size() <= MESSAGE_MAX);
            let again = event.to_frame(mask);
            let expected = (vec![event], None);
            let read_again = read(side, compresses, &mut std::iter::once(&again[..]));
            assert_eq!(read_again, expected);
        }
    }
});
