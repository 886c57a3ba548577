//! Invariant: no priority field value makes the parser panic, its result is in range, and values in
//! its own notation parse correctly between any other members.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::Priority;

fuzz_target!(|data: &[u8]| {
    let read = Priority::parse(data);
    assert!(read.urgency <= 7);

    // A field split into lines, at any place, equals the joined field.
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

    // A preceding dictionary member counts only if its value is otherwise unset.
    let [options, rest @ ..] = data else { return };
    let meant = Priority {
        urgency: options & 7,
        incremental: options & 8 != 0,
    };
    let flag = u8::from(meant.incremental);
    let written = format!("x;{}=1, u={}, i=?{flag}", "p", meant.urgency);
    assert_eq!(Priority::parse(written.as_bytes()), meant);
    // Appended text keeps the value, changes it, or makes the whole no dictionary.
    let longer = [written.as_bytes(), b", ", rest].concat();
    assert!(Priority::parse(&longer).urgency <= 7);
});
