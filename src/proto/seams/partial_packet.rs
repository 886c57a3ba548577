//! Packets of which only a part is sent.
//!
//! An address that is not validated gets at most three times the bytes that came from it (RFC 9000 section 8.1).
//! The state machine does not count that exactly: while any of the budget is left it sends a whole datagram, and it
//! expands each datagram with a PATH_CHALLENGE or PATH_RESPONSE to 1,200 bytes, which section 8.2 forbids where the
//! budget does not allow it. So the packet key seals a shorter packet: the frames about the path, and of the others
//! those that fit, without the padding.
//!
//! If a frame was left out, the packet must not count as acknowledged: the state machine would take data for
//! delivered that never left. Its number is therefore taken out of the ACK frames that the peer sends
//! ([`Withheld`]), until the state machine has counted it as lost and has sent its frames again.
//!
//! Assumed of quinn-proto: each packet on a path that it validates has a PATH_CHALLENGE; a response for another
//! address is alone in its packet; a packet that was lost is forgotten as soon as later ones are acknowledged; and
//! a datagram that is shorter than it made it does no harm.

use bytes::{BufMut, BytesMut};

use crate::wire::{
    frames::{Ack, Frame, Frames},
    varint,
};

/// What remains of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub length: usize,
    /// Nothing but PADDING was left out.
    pub is_whole: bool,
}

/// Moves to the front of `payload` what fits into `room` bytes, with PADDING up to `least`. `None`: the packet is not
/// about a path, or what it says about it does not fit. Then the payload is as it was.
pub fn cut(payload: &mut [u8], room: usize, least: usize) -> Option<Part> {
    Frames::new(payload).end()?;
    let frames: Vec<_> = Frames::new(payload).collect();
    if !frames.iter().any(|(_, _, frame)| is_about_path(frame)) {
        return None;
    }
    let mut part = Vec::with_capacity(room.min(payload.len()));
    let mut is_whole = true;
    for is_first in [true, false] {
        for &(start, end, frame) in &frames {
            if (is_about_path(&frame) || frame == Frame::Ping) != is_first {
                continue;
            }
            let bytes = &payload[start..end];
            match part.len() + bytes.len() <= room && has_length(bytes) {
                true => part.extend_from_slice(bytes),
                false if is_first => return None,
                false => is_whole = false,
            }
        }
    }
    let length = part.len().max(least).max(SHORTEST).min(payload.len());
    part.resize(length, PADDING);
    payload[..length].copy_from_slice(&part);
    Some(Part { length, is_whole })
}

/// Whether nothing but a PATH_RESPONSE is in a packet.
pub fn is_response_alone(payload: &[u8]) -> bool {
    let mut frames = Frames::new(payload);
    let first = frames.next();
    matches!(first, Some((_, _, Frame::PathResponse(_)))) && frames.next().is_none()
}

fn is_about_path(frame: &Frame<'_>) -> bool {
    matches!(
        frame,
        Frame::PathChallenge(_)
            | Frame::PathResponse(_)
            | Frame::ApplicationClose
            | Frame::TransportClose
    )
}

/// Whether a frame says how long it is. STREAM and DATAGRAM frames may reach to the packet's end instead, where
/// PADDING would be taken for their data (RFC 9000 section 19.8, RFC 9221 section 4).
fn has_length(frame: &[u8]) -> bool {
    match frame.first() {
        Some(kind @ 0x08..=0x0f) => kind & 0x02 != 0,
        Some(kind) => *kind != 0x30,
        None => false,
    }
}

/// Numbers of packets of which frames were left out, and that the state machine may still see acknowledged.
#[derive(Debug, Default)]
pub struct Withheld(Vec<u64>);

impl Withheld {
    pub fn insert(&mut self, number: u64) {
        self.0.push(number);
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= WITHHELD_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the numbers out of the ACK frames of an opened packet, and forgets those that the state machine has
    /// forgotten.
    pub fn hide(&mut self, payload: &mut BytesMut) {
        let acks = Frames::new(payload).filter_map(|(start, end, frame)| match frame {
            Frame::Ack(ack) => Some((start, end, ack)),
            _ => None,
        });
        let acks: Vec<_> = acks.collect();
        let Some(largest) = acks.iter().map(|(_, _, ack)| ack.largest).max() else {
            return;
        };
        let covered = |ack: &Ack<'_>| self.0.iter().any(|number| ack.covers(*number));
        if acks.iter().any(|(_, _, ack)| covered(ack)) {
            let mut edited = BytesMut::with_capacity(payload.len() + WITHHELD_MAX * ACK_RANGE_MAX);
            let mut done = 0;
            for (start, end, ack) in acks.into_iter().filter(|(_, _, ack)| covered(ack)) {
                edited.extend_from_slice(&payload[done..start]);
                self.put_rest(&mut edited, &payload[start..end], &ack);
                done = end;
            }
            edited.extend_from_slice(&payload[done..]);
            if edited.is_empty() {
                // RFC 9000 section 12.4: a packet without a frame is an error.
                edited.put_u8(PADDING);
            }
            *payload = edited;
        }
        self.0.retain(|number| number + FORGOTTEN_AFTER > largest);
    }

    /// Writes an ACK frame without the numbers.
    fn put_rest(&self, out: &mut BytesMut, frame: &[u8], ack: &Ack<'_>) {
        let mut ranges: Vec<_> = ack.ranges().collect();
        for number in &self.0 {
            let Some(at) = ranges.iter().position(|range| range.contains(number)) else {
                continue;
            };
            let range = ranges.remove(at);
            let (below, above) = (*range.start()..*number, number + 1..*range.end() + 1);
            for part in [below, above].into_iter().filter(|part| !part.is_empty()) {
                ranges.insert(at, part.start..=part.end - 1);
            }
        }
        let Some((first, further)) = ranges.split_first() else {
            return;
        };
        let mut rest = frame;
        let kind = varint::take(&mut rest).unwrap_or_default();
        let _largest = varint::take(&mut rest);
        let delay = varint::take(&mut rest).unwrap_or_default();
        varint::put(out, kind);
        varint::put(out, *first.end());
        varint::put(out, delay);
        varint::put(out, further.len() as u64);
        varint::put(out, first.end() - first.start());
        let mut last = *first.start();
        for range in further {
            // RFC 9000 section 19.3.1.
            varint::put(out, last - range.end() - 2);
            varint::put(out, range.end() - range.start());
            last = *range.start();
        }
        out.extend_from_slice(ack.ecn_counts());
    }
}

const PADDING: u8 = 0;
/// With the shortest packet number and a tag that is enough for the sample of header protection (RFC 9001 section
/// 5.4.2).
const SHORTEST: usize = 4;
/// How many packets of a path that is not validated may lack frames at a time.
const WITHHELD_MAX: usize = 8;
/// A gap and a length.
const ACK_RANGE_MAX: usize = 2 * varint::SIZE_MAX;
/// The reordering threshold is three (RFC 9002 section 6.1.1). More, since the packets above may be ones that
/// the state machine does not track.
const FORGOTTEN_AFTER: u64 = 64;
