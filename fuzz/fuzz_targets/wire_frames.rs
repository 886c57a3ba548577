//! Invariant: iterating a packet's payload yields frames in sequence with only PADDING between
//! them, and parses each as it parses alone. The ranges of an ACK descend and do not touch. Edits
//! of decrypted payloads (PADDING cut or folded, ACKs hidden, RESET_STREAM_AT replaced) change no
//! other frame. The qlog text of a payload has at most 200 bytes for each of its bytes.

#![no_main]

use std::collections::HashMap;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use uringcore_quic::fuzzing::received_offsets::ReceivedOffsets;
use uringcore_quic::fuzzing::{
    qlog_events, received_padding_removal, reset_stream_at, server_hello_ack_hiding,
};
use uringcore_wire::frame_iterator::{Ack, Frame, Frames};

fuzz_target!(|data: &[u8]| {
    let frames: Vec<_> = Frames::new(data).collect();
    let mut at = 0;
    for (start, end, frame) in &frames {
        assert!(at <= *start && start < end && *end <= data.len());
        assert_eq!(Frames::new(&data[at..*start]).end(), Some(0));
        let alone: Vec<_> = Frames::new(&data[*start..*end]).collect();
        let [(0, length, again)] = &alone[..] else {
            panic!("{frame:?} alone: {alone:?}")
        };
        assert_eq!((*length, plain(again)), (end - start, plain(frame)));
        if let Frame::Ack(ack) = frame {
            check_ack(ack);
        }
        at = *end;
    }
    let is_whole = Frames::new(data).end().inspect(|end| assert_eq!(*end, at));
    check_padding(data, is_whole.is_some());
    check_hidden(data);
    check_resets(data);
    assert!(qlog_events(data).len() <= 1000 + 200 * data.len());
});

/// The text of a frame, without the bytes after it that an ACK keeps.
fn plain(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Ack(ack) => format!("{} {:?}", ack.largest, ack.ranges().collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

fn all(payload: &[u8]) -> Vec<String> {
    let frames = Frames::new(payload).map(|(_, _, frame)| plain(&frame));
    frames.collect()
}

fn check_ack(ack: &Ack<'_>) {
    let mut above = None;
    for range in ack.ranges() {
        let (start, end) = (*range.start(), *range.end());
        assert!(start <= end && end <= ack.largest);
        assert!(above.is_none_or(|above| end + 1 < above));
        assert!(ack.covers(start) && ack.covers(end) && !ack.covers(end + 1));
        above = Some(start);
    }
}

fn check_padding(data: &[u8], is_whole: bool) {
    let mut cut = BytesMut::from(data);
    received_padding_removal::cut(&mut cut);
    assert!(data.starts_with(&cut) && (is_whole || cut.len() == data.len()));
    assert_eq!(all(&cut), all(data));
    assert!(data.is_empty() || !cut.is_empty());
    let mut folded = data.to_vec();
    received_padding_removal::fold(&mut folded);
    assert_eq!(all(&folded), all(data));
}

fn check_hidden(data: &[u8]) {
    let mut hidden = data.to_vec();
    server_hello_ack_hiding::hide(&mut hidden);
    let frames = Frames::new(data).filter(|(_, _, frame)| !matches!(frame, Frame::Ack(_)));
    let others: Vec<_> = frames.map(|(_, _, frame)| plain(&frame)).collect();
    assert_eq!(all(&hidden), others);
}

/// For each stream the furthest end is recorded, or the final size.
fn check_inflow(data: &[u8], inflow: &ReceivedOffsets) {
    let mut expected = HashMap::new();
    for (_, _, frame) in Frames::new(data) {
        let (stream_id, noted) = match frame {
            Frame::Stream {
                stream_id,
                end,
                fin,
            } => (stream_id, (fin, end)),
            Frame::ResetStream {
                stream_id,
                final_size,
            } => (stream_id, (true, final_size)),
            _ => continue,
        };
        let furthest = expected.entry(stream_id).or_insert(noted);
        *furthest = noted.max(*furthest);
    }
    let mut noted = HashMap::new();
    inflow.take_each(|arrived| {
        let end = (arrived.is_final(), arrived.end());
        let furthest = noted.entry(arrived.stream_id).or_insert(end);
        *furthest = end.max(*furthest);
    });
    assert_eq!(noted, expected);
}

/// The replacement of a RESET_STREAM_AT: a STREAM frame without data.
fn emptied(stream_id: u64) -> Frame<'static> {
    Frame::Stream {
        stream_id,
        end: 0,
        fin: false,
    }
}

fn check_resets(data: &[u8]) {
    let slot = reset_stream_at::ResetSlot::default();
    slot.enable();
    let mut opened = BytesMut::from(data);
    let inflow = ReceivedOffsets::default();
    inflow.enable();
    slot.opened(&mut opened, &inflow);
    check_inflow(data, &inflow);
    assert_eq!(opened.len(), data.len());
    let mut found = slot.take_found().into_iter();
    for ((_, _, before), (_, _, after)) in Frames::new(data).zip(Frames::new(&opened)) {
        match before {
            Frame::ResetStreamAt(reset) if reset.reliable_size <= reset.final_size => {
                assert_eq!(
                    (after, found.next()),
                    (emptied(reset.stream_id), Some(reset))
                );
            }
            _ => assert_eq!(plain(&before), plain(&after)),
        }
    }
    assert_eq!(found.next(), None);
}
