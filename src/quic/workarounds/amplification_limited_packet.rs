//! Sends only a part of a packet, to stay within the amplification limit.
//!
//! An address that is not validated gets at most three times the bytes that have arrived from it (RFC 9000 section
//! 8.1). quinn-proto does not keep the limit exactly: while any of it is left it sends a whole datagram, and it
//! expands each datagram with a PATH_CHALLENGE or PATH_RESPONSE to 1,200 bytes, which section 8.2 forbids if the
//! limit is smaller. So the packet key seals a shorter packet, without PADDING: the frames for path validation, and
//! those others that fit.
//!
//! A packet from which a frame was left out must not be acknowledged, because quinn-proto would count data as
//! delivered that was never sent. So its number is removed from the peer's ACK frames ([`Withheld`]), until
//! quinn-proto has declared the packet lost and sent its frames again.
//!
//! Assumed of quinn-proto: each packet on a path that it validates has a PATH_CHALLENGE; a response for another
//! address is alone in its packet; a lost packet is forgotten as soon as later ones are acknowledged; and a datagram
//! that is shorter than it was made does no harm.

use bytes::{BufMut, BytesMut};
use uringcore_wire::{
    frame_iterator::{Ack, Frame, Frames},
    varint,
};

/// The result of [`cut`]: the part of a payload that remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub length: usize,
    /// True if the shortened packet lacks nothing but PADDING.
    pub is_whole: bool,
}

/// Moves the frames that fit into `room` bytes to the front of `payload`, with PADDING up to `least` bytes. Path frames
/// and PINGs may fill the room. Other frames are added only while the packet stays within half of it: the rest of the
/// limit is for a challenge that has to be sent again. Returns `None` and leaves the payload unchanged if it has no path
/// frames, if its path frames do not fit, or if frames would be left out and `may_be_partial` is false.
pub fn cut(payload: &mut [u8], room: usize, least: usize, may_be_partial: bool) -> Option<Part> {
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
            let room = if is_first { room } else { room / 2 };
            match part.len() + bytes.len() <= room && has_length(bytes) {
                true => part.extend_from_slice(bytes),
                false if is_first => return None,
                false => is_whole = false,
            }
        }
    }
    if !is_whole && !may_be_partial {
        return None;
    }
    let length = part.len().max(least).max(SHORTEST).min(payload.len());
    part.resize(length, PADDING);
    payload[..length].copy_from_slice(&part);
    Some(Part { length, is_whole })
}

/// True if a packet has nothing but a PATH_RESPONSE.
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

/// True if a frame has a length. Without one, a STREAM or DATAGRAM frame extends to the end of the packet, so that
/// PADDING after it would be taken for data (RFC 9000 section 19.8, RFC 9221 section 4).
fn has_length(frame: &[u8]) -> bool {
    match frame.first() {
        Some(kind @ 0x08..=0x0f) => kind & 0x02 != 0,
        Some(kind) => *kind != 0x30,
        None => false,
    }
}

/// The numbers of packets from which frames were left out, and for which quinn-proto would accept an acknowledgement.
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

    /// Removes the numbers from the ACK frames of an opened packet. Forgets numbers that quinn-proto does not track any
    /// more.
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
                // RFC 9000 section 12.4: a packet without frames is an error.
                edited.put_u8(PADDING);
            }
            *payload = edited;
        }
        self.0.retain(|number| number + FORGOTTEN_AFTER > largest);
    }

    /// Appends an ACK frame to `out`. Packet numbers that were withheld from quinn-proto are left out.
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
            // RFC 9000 section 19.3.1: a gap and a range length.
            varint::put(out, last - range.end() - 2);
            varint::put(out, range.end() - range.start());
            last = *range.start();
        }
        out.extend_from_slice(ack.ecn_counts());
    }
}

const PADDING: u8 = 0;
/// The shortest payload in bytes. With it, the packet has enough for the sample of header protection (RFC 9001
/// section 5.4.2).
const SHORTEST: usize = 4;
/// The number of packets with frames left out that may be outstanding at a time.
const WITHHELD_MAX: usize = 8;
/// The largest size of an ACK range: a gap and a length.
const ACK_RANGE_MAX: usize = 2 * varint::SIZE_MAX;
/// A number is forgotten after this many later ones. The reordering threshold is three (RFC 9002 section 6.1.1); this
/// is larger, because quinn-proto may not track all packets above the number.
const FORGOTTEN_AFTER: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::SocketAddr,
        sync::{Arc, Mutex},
        time::Duration,
    };

    use quinn_proto::{Dir, TransportConfig};

    use crate::workarounds::bare_quinn::{BareQuinn, Packet};

    const CHALLENGE: [u8; 9] = [0x1a, 1, 2, 3, 4, 5, 6, 7, 8];
    const RESPONSE: [u8; 9] = [0x1b, 1, 2, 3, 4, 5, 6, 7, 8];
    const PING: u8 = 0x01;

    fn payload(parts: &[&[u8]]) -> Vec<u8> {
        let mut payload = parts.concat();
        payload.resize(1_100, PADDING);
        payload
    }

    fn part_of(payload: &[u8], room: usize, least: usize) -> Option<(Vec<u8>, bool)> {
        let mut rest = payload.to_vec();
        let part = cut(&mut rest, room, least, true);
        if part.is_none() {
            assert_eq!(rest, payload);
        }
        part.map(|part| (rest[..part.length].to_vec(), part.is_whole))
    }

    #[test]
    fn path_frames_are_kept_and_others_if_they_fit() {
        let ack = [0x02, 9, 0, 0, 3];
        let stream = [&[0x0a, 0, 40][..], &[7; 40]].concat();
        let all = payload(&[&ack, &CHALLENGE, &stream, &[PING]]);
        let (part, is_whole) = part_of(&all, 32, 0).unwrap();
        assert_eq!(part, [&CHALLENGE[..], &[PING], &ack].concat());
        assert!(!is_whole);
        let (part, is_whole) = part_of(&all, 120, 0).unwrap();
        assert_eq!((part.len(), is_whole), (9 + 1 + 5 + 43, true));
        assert_eq!(
            part_of(&all, 9, 0),
            None,
            "the other frames must be sent, too"
        );
        let (part, is_whole) = part_of(&payload(&[&RESPONSE]), 60, 60).unwrap();
        assert_eq!((part.len(), is_whole), (60, true));
        let mut rest = all.clone();
        assert_eq!(
            cut(&mut rest, 32, 0, false),
            None,
            "the STREAM frame without a length"
        );
        assert_eq!(rest, all);
        assert!(is_response_alone(&part) && !is_response_alone(&all));
    }

    #[test]
    fn mtu_probes_and_frames_without_a_length_are_not_cut() {
        assert_eq!(part_of(&payload(&[&[PING]]), 500, 0), None);
        let to_the_end = [&CHALLENGE[..], &[0x08, 0], &[7; 100]].concat();
        let (part, is_whole) = part_of(&to_the_end, 110, 110).unwrap();
        assert_eq!((&part[..9], is_whole), (&CHALLENGE[..], false));
        assert!(part[9..].iter().all(|byte| *byte == PADDING));
    }

    fn acked(payload: &[u8]) -> Vec<u64> {
        let acks = Frames::new(payload).filter_map(|(_, _, frame)| match frame {
            Frame::Ack(ack) => Some(ack),
            _ => None,
        });
        let ranges = acks.flat_map(|ack| ack.ranges().flatten().collect::<Vec<_>>());
        let mut numbers: Vec<_> = ranges.collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn only_withheld_numbers_are_removed_from_acks() {
        // An ACK with largest 20, delay 5 and two further ranges: 20 to 16, 13 to 10, and 7.
        let ack = [0x03, 20, 5, 2, 4, 1, 3, 1, 0, 61, 62, 63];
        let all: Vec<u64> = [7].into_iter().chain(10..=13).chain(16..=20).collect();
        assert_eq!(acked(&ack), all);
        for hidden in [
            vec![20],
            vec![16],
            vec![18],
            vec![7],
            vec![12, 20, 7],
            vec![17, 18, 19],
            vec![1],
        ] {
            let mut withheld = Withheld(hidden.clone());
            let mut payload = BytesMut::from(&[&[PING], &ack[..], &CHALLENGE].concat()[..]);
            withheld.hide(&mut payload);
            let left: Vec<_> = all
                .iter()
                .copied()
                .filter(|number| !hidden.contains(number))
                .collect();
            assert_eq!(acked(&payload), left, "{hidden:?}");
            assert!(payload.starts_with(&[PING]) && payload.ends_with(&CHALLENGE));
            let counts = [61, 62, 63];
            assert!(payload.windows(3).any(|bytes| bytes == counts));
            assert_eq!(withheld.0, hidden);
        }
        let mut payload = BytesMut::from(&[0x02, 9, 0, 0, 0][..]);
        Withheld(vec![9]).hide(&mut payload);
        assert_eq!(payload[..], [PADDING]);
    }

    #[test]
    fn withheld_numbers_are_forgotten_after_later_acks() {
        let mut withheld = Withheld(vec![3]);
        let mut at = |largest: u64| {
            let mut payload = BytesMut::new();
            varint::put(&mut payload, 0x02);
            varint::put(&mut payload, largest);
            payload.extend_from_slice(&[0, 0, 0]);
            withheld.hide(&mut payload);
            withheld.is_empty()
        };
        assert!(!at(3 + FORGOTTEN_AFTER - 1));
        assert!(at(3 + FORGOTTEN_AFTER));
    }

    fn has(packet: &Packet, wanted: impl Fn(Frame<'_>) -> bool) -> bool {
        Frames::new(&packet.payload).any(|(_, _, frame)| wanted(frame))
    }

    fn is_challenge(frame: Frame<'_>) -> bool {
        matches!(frame, Frame::PathChallenge(_))
    }

    /// Makes a server whose client has sent a PING from a new address. Returns the server, that address, and the
    /// packets that the server sends to it.
    fn moved() -> (BareQuinn, SocketAddr, Vec<Vec<u8>>) {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let elsewhere = "192.0.2.9:9".parse().unwrap();
        let server = bare.server.connection();
        let id = server.streams().open(Dir::Uni).unwrap();
        server.send_stream(id).write(&[7; 50_000]).unwrap();
        bare.client.connection().ping();
        bare.server.spy.sealed.lock().unwrap().clear();
        for datagram in bare.client.transmit(bare.now) {
            bare.server.receive(bare.now, elsewhere, &datagram);
        }
        assert_eq!(bare.server.connection().remote_address(), elsewhere);
        let sent = bare.server.transmit(bare.now);
        (bare, elsewhere, sent)
    }

    #[test]
    fn bare_quinn_challenges_the_old_address_once_and_the_new_one_with_each_packet() {
        let (mut bare, elsewhere, sent) = moved();
        let sealed = bare.server.spy.sealed.lock().unwrap().clone();
        assert_eq!(
            (sealed.len(), sent.len()),
            (2, 2),
            "the amplification limit is used up"
        );
        let mut first = Frames::new(&sealed[0].payload);
        assert!(is_challenge(first.next().unwrap().2) && first.next().is_none());
        assert!(has(&sealed[1], is_challenge));
        assert!(sent[1].len() >= 1_200, "for {} bytes", 40);
        for datagram in sent {
            bare.client_gets(&datagram);
        }
        for datagram in bare.client.transmit(bare.now) {
            bare.server.receive(bare.now, elsewhere, &datagram);
        }
        bare.server.spy.sealed.lock().unwrap().clear();
        assert!(!bare.server.transmit(bare.now).is_empty());
        let sealed = bare.server.spy.sealed.lock().unwrap();
        assert!(!sealed.iter().any(|packet| has(packet, is_challenge)));
    }

    #[test]
    fn bare_quinn_resends_packets_whose_acks_are_hidden() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let server = bare.server.connection();
        let id = server.streams().open(Dir::Uni).unwrap();
        server.send_stream(id).write(b"withheld").unwrap();
        let datagrams = bare.server.transmit(bare.now);
        let carries = |packet: &Packet| packet.payload.windows(8).any(|bytes| bytes == b"withheld");
        let number = bare.server.spy.last_sealed().number;
        assert!(carries(&bare.server.spy.last_sealed()));
        datagrams
            .iter()
            .for_each(|datagram| bare.client_gets(datagram));
        let withheld = Arc::new(Mutex::new(Withheld(vec![number])));
        *bare.server.spy.on_open.lock().unwrap() = Some(Box::new(move |_, payload| {
            withheld.lock().unwrap().hide(payload);
        }));
        bare.server.spy.sealed.lock().unwrap().clear();
        for _ in 0..8 {
            bare.server.connection().ping();
            bare.exchange();
            bare.sleep(Duration::from_millis(30));
        }
        assert!(bare.server.spy.sealed.lock().unwrap().iter().any(carries));
        assert!(!bare.server.connection().is_closed());
    }
}
