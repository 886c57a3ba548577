//! Invariant: no priority field value makes the parser panic, what it says is in range, and values
//! that it would write itself are read as they were meant, whatever stands around them.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::Priority;

fuzz_target!(|data: &[u8]| {
    let read = Priority::parse(data);
    assert!(read.urgency <= 7);

    // In lines of a field, cut anywhere, it is what it is joined.
    let middle = data
        .first()
        .map_or(0, |&at| usize::from(at) % (data.len() + 1));
    let (first, second) = data.split_at(middle);
    let lines = [first, second].map(|line| {
        (
            Bytes::from_static(b"priority"),
            Bytes::copy_from_slice(line),
        )
    });
    let joined = [first, b", ", second].concat();
    assert_eq!(Priority::of(&lines), Priority::parse(&joined));

    // A member in front of a dictionary counts only where that says nothing else.
    let [options, rest @ ..] = data else { return };
    let meant = Priority {
        urgency: options & 7,
        incremental: options & 8 != 0,
    };
    let flag = u8::from(meant.incremental);
    let written = format!("x;{}=1, u={}, i=?{flag}", "p", meant.urgency);
    assert_eq!(Priority::parse(written.as_bytes()), meant);
    // Whatever follows either keeps it, says something else, or makes the whole no dictionary.
    let longer = [written.as_bytes(), b", ", rest].concat();
    assert!(Priority::parse(&longer).urgency <= 7);
});
