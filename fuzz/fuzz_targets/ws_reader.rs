//! Invariant: no bytes make the reader panic or keep more than its limit; its events do not depend
//! on the splitting of the input; and the frames that encode its events read back as equal events.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_http::ws::{Event, Violation, Reader, Side};

const MESSAGE_MAX: usize = 300;

fn read(side: Side, pieces: &mut dyn Iterator<Item = &[u8]>) -> (Vec<Event>, Option<Violation>) {
    let mut reader = Reader::new(side, MESSAGE_MAX);
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
    for side in [Side::Client, Side::Server] {
        let whole = read(side, &mut std::iter::once(data));
        let cut = read(side, &mut data.chunks(1));
        assert_eq!(whole, cut);
        let mask = (side == Side::Server).then_some([1, 2, 3, 4]);
        for event in whole.0 {
            assert!(event.size() <= MESSAGE_MAX);
            let again = event.to_frame(mask);
            let expected = (vec![event], None);
            assert_eq!(read(side, &mut std::iter::once(&again[..])), expected);
        }
    }
});
