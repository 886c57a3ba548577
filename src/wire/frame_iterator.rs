//! An iterator over the frames of a decrypted packet (RFC 9000 section 19): the position of each frame, and the fields
//! that code beside quinn-proto needs.
//!
//! This is not a full decoder; quinn-proto decodes all fields. A malformed or unknown frame ends the iteration.

use std::ops::RangeInclusive;

use super::varint;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The iterator skips PADDING and does not return it.
    Padding,
    Ping,
    Ack(Ack<'a>),
    /// CONNECTION_CLOSE of the application, type 0x1d.
    ApplicationClose,
    /// CONNECTION_CLOSE of the transport, type 0x1c.
    TransportClose,
    RetireConnectionId {
        sequence: u64,
    },
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    ResetStreamAt(ResetAt),
    Crypto {
        offset: u64,
        data: &'a [u8],
    },
    /// STREAM. The offset is that of the byte after the frame's data.
    Stream {
        stream_id: u64,
        end: u64,
        fin: bool,
    },
    ResetStream {
        stream_id: u64,
        final_size: u64,
    },
    /// MAX_DATA: the limit of the bytes on all streams together.
    MaxData(u64),
    Datagram,
    Other,
}

/// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetAt {
    pub stream_id: u64,
    pub code: u64,
    pub final_size: u64,
    /// The first `reliable_size` bytes of the stream are delivered in spite of the reset.
    pub reliable_size: u64,
}

/// The packet numbers that an ACK frame covers (RFC 9000 section 19.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    pub largest: u64,
    first_range: u64,
    range_count: u64,
    ranges: &'a [u8],
    ecn_counts: &'a [u8],
}

impl<'a> Ack<'a> {
    #[inline]
    pub fn covers(&self, number: u64) -> bool {
        self.ranges()
            .take_while(|range| *range.end() >= number)
            .any(|range| range.contains(&number))
    }

    /// The encoded ECN counts after the ACK ranges; empty in an ACK frame of type 0x02.
    #[inline]
    pub fn ecn_counts(&self) -> &'a [u8] {
        self.ecn_counts
    }

    /// The ranges of acknowledged packet numbers, the largest first. An invalid range ends the iteration.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + use<'a> {
        let mut rest = self.ranges;
        let mut further = self.range_count;
        let first = self.largest.checked_sub(self.first_range);
        let first = first.map(|start| start..=self.largest);
        std::iter::successors(first, move |last| {
            further = further.checked_sub(1)?;
            // RFC 9000 section 19.3.1: the largest number of the next range is the smallest of this one - gap - 2.
            let gap = varint::take(&mut rest)?;
            let length = varint::take(&mut rest)?;
            let end = last.start().checked_sub(gap)?.checked_sub(2)?;
            Some(end.checked_sub(length)?..=end)
        })
    }
}

/// Iterates over the frames of `payload`.
pub struct Frames<'a> {
    payload: &'a [u8],
    rest: &'a [u8],
    /// True if the iteration has ended at a malformed or unknown frame.
    is_stuck: bool,
}

impl<'a> Frames<'a> {
    #[inline]
    pub fn new(payload: &'a [u8]) -> Self {
        Self {
            payload,
            rest: payload,
            is_stuck: false,
        }
    }

    /// The offset after the last frame that is not PADDING; `None` if a frame is malformed or unknown.
    pub fn end(mut self) -> Option<usize> {
        let mut end = 0;
        for (_, until, _) in &mut self {
            end = until;
        }
        (!self.is_stuck).then_some(end)
    }

    fn skip_padding(&mut self) {
        while let Some(after) = self.rest.strip_prefix(&[PADDING; 32]) {
            self.rest = after;
        }
        while let Some((&PADDING, after)) = self.rest.split_first() {
            self.rest = after;
        }
    }

    fn frame(&mut self) -> Option<Frame<'a>> {
        let rest = &mut self.rest;
        let frame = match varint::take(rest)? {
            0x00 => Frame::Padding,
            0x01 => Frame::Ping,
            kind @ 0x02..=0x03 => {
                let largest = varint::take(rest)?;
                let _delay = varint::take(rest)?;
                let range_count = varint::take(rest)?;
                let first_range = varint::take(rest)?;
                let ranges = *rest;
                for _ in 0..range_count {
                    skip_varints(rest, 2)?;
                }
                let behind_ranges = *rest;
                if kind == 0x03 {
                    skip_varints(rest, 3)?;
                }
                let ecn_length = behind_ranges.len() - rest.len();
                Frame::Ack(Ack {
                    largest,
                    first_range,
                    range_count,
                    ranges,
                    ecn_counts: &behind_ranges[..ecn_length],
                })
            }
            0x1c => {
                skip_varints(rest, 2)?;
                skip_counted(rest)?;
                Frame::TransportClose
            }
            0x1d => {
                skip_varints(rest, 1)?;
                skip_counted(rest)?;
                Frame::ApplicationClose
            }
            0x18 => {
                skip_varints(rest, 2)?;
                let (&length, after) = rest.split_first()?;
                *rest = after;
                // The connection ID, and the stateless reset token of 16 bytes.
                skip_bytes(rest, usize::from(length) + 16)?;
                Frame::Other
            }
            0x19 => Frame::RetireConnectionId {
                sequence: varint::take(rest)?,
            },
            0x1b => {
                let (data, after) = rest.split_first_chunk()?;
                *rest = after;
                Frame::PathResponse(*data)
            }
            0x1a => {
                let (data, after) = rest.split_first_chunk()?;
                *rest = after;
                Frame::PathChallenge(*data)
            }
            0x04 => {
                let stream_id = varint::take(rest)?;
                let _code = varint::take(rest)?;
                Frame::ResetStream {
                    stream_id,
                    final_size: varint::take(rest)?,
                }
            }
            0x24 => Frame::ResetStreamAt(ResetAt {
                stream_id: varint::take(rest)?,
                code: varint::take(rest)?,
                final_size: varint::take(rest)?,
                reliable_size: varint::take(rest)?,
            }),
            0x06 => {
                let offset = varint::take(rest)?;
                let length = usize::try_from(varint::take(rest)?).ok()?;
                let (data, after) = rest.split_at_checked(length)?;
                *rest = after;
                Frame::Crypto { offset, data }
            }
            0x10 => Frame::MaxData(varint::take(rest)?),
            // DATAGRAM without a length: its data extends to the end of the packet (RFC 9221 section 4).
            0x30 => {
                *rest = &[];
                Frame::Datagram
            }
            0x31 => {
                skip_counted(rest)?;
                Frame::Datagram
            }
            kind @ 0x08..=0x0f => stream(kind, rest)?,
            kind => {
                skip_body(kind, rest)?;
                Frame::Other
            }
        };
        Some(frame)
    }
}

impl<'a> Iterator for Frames<'a> {
    /// The offset at which the frame begins, the offset after its end, and the frame.
    type Item = (usize, usize, Frame<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if *self.rest.first()? == PADDING {
                self.skip_padding();
                continue;
            }
            let start = self.payload.len() - self.rest.len();
            match self.frame() {
                // The type of a PADDING frame in a longer varint than necessary, which RFC 9000 section 12.4 forbids
                // and quinn-proto accepts.
                Some(Frame::Padding) => {}
                Some(frame) => return Some((start, self.payload.len() - self.rest.len(), frame)),
                None => {
                    self.rest = &[];
                    self.is_stuck = true;
                    return None;
                }
            }
        }
    }
}

/// The fields of a STREAM frame (RFC 9000 section 19.8). Of its type, bit 0x04 shows an offset field, 0x02 a length
/// field, and 0x01 the end of the stream.
#[inline]
fn stream<'a>(kind: u64, rest: &mut &[u8]) -> Option<Frame<'a>> {
    let stream_id = varint::take(rest)?;
    let offset = match kind & 0x04 {
        0 => 0,
        _ => varint::take(rest)?,
    };
    let length = match kind & 0x02 {
        0 => rest.len() as u64,
        _ => varint::take(rest)?,
    };
    skip_bytes(rest, usize::try_from(length).ok()?)?;
    Some(Frame::Stream {
        stream_id,
        end: offset.saturating_add(length),
        fin: kind & 0x01 != 0,
    })
}

/// Takes a STREAM frame from the front of `rest`. Returns the stream's ID, the offset after the frame's last byte, and
/// the FIN bit. Returns `None`, and leaves `rest` unchanged, if another or an incomplete frame is in front. Most
/// packets with data consist of one such frame, and are read without the iterator.
#[inline]
pub fn take_stream(rest: &mut &[u8]) -> Option<(u64, u64, bool)> {
    let (&kind, mut behind) = rest.split_first()?;
    if kind & 0xf8 != 0x08 {
        return None;
    }
    match stream(u64::from(kind), &mut behind)? {
        Frame::Stream {
            stream_id,
            end,
            fin,
        } => {
            *rest = behind;
            Some((stream_id, end, fin))
        }
        _ => None,
    }
}

fn skip_body(kind: u64, rest: &mut &[u8]) -> Option<()> {
    match kind {
        // HANDSHAKE_DONE, IMMEDIATE_ACK.
        0x1e | 0x1f => Some(()),
        // MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED.
        0x12..=0x14 | 0x16 | 0x17 => skip_varints(rest, 1),
        // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED.
        0x05 | 0x11 | 0x15 => skip_varints(rest, 2),
        // ACK_FREQUENCY.
        0xaf => skip_varints(rest, 4),
        // NEW_TOKEN.
        0x07 => skip_counted(rest),
        _ => None,
    }
}

fn skip_varints(rest: &mut &[u8], count: usize) -> Option<()> {
    (0..count).try_for_each(|_| varint::take(rest).map(|_| ()))
}

fn skip_counted(rest: &mut &[u8]) -> Option<()> {
    let length = varint::take(rest)?;
    skip_bytes(rest, usize::try_from(length).ok()?)
}

fn skip_bytes(rest: &mut &[u8], count: usize) -> Option<()> {
    *rest = rest.get(count..)?;
    Some(())
}

/// The type of a PADDING frame, which consists only of its type.
const PADDING: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_ranges_cover_exactly_their_packet_numbers() {
        // Acknowledged packets: 98 to 100, 89 to 93, and 87. The gaps are encoded as 3 and 0, the lengths as 2, 4 and
        // 0.
        let payload = [0x02, 0x40, 100, 0, 2, 2, 3, 4, 0, 0, 0x01];
        let frames: Vec<_> = Frames::new(&payload).map(|(_, _, frame)| frame).collect();
        let [Frame::Ack(ack), Frame::Ping] = frames[..] else {
            panic!("{frames:?}")
        };
        let covered: Vec<u64> = (0..200).filter(|&n| ack.covers(n)).collect();
        assert_eq!(covered, [87, 89, 90, 91, 92, 93, 98, 99, 100]);
    }

    #[test]
    fn every_frame_type_is_skipped_by_its_length() {
        let frames: &[&[u8]] = &[
            &[0x03, 5, 0, 0, 5, 1, 2, 3],
            &[0x04, 0, 1, 2],
            &[0x05, 0, 1],
            &[0x06, 0, 2, 9, 9],
            &[0x07, 3, 1, 2, 3],
            &[0x0f, 0, 4, 2, 7, 7],
            &[0x0a, 0, 1, 7],
            &[0x10, 1],
            &[0x11, 0, 1],
            &[0x12, 1],
            &[0x13, 1],
            &[0x14, 1],
            &[0x15, 0, 1],
            &[0x16, 1],
            &[0x17, 1],
            &[&[0x18, 1, 0, 4][..], &[0; 20]].concat(),
            &[0x19, 0],
            &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1c, 1, 6, 2, b'n', b'o'],
            &[0x1d, 1, 2, b'n', b'o'],
            &[0x1e],
            &[0x1f],
            &[0x24, 0, 1, 5, 2],
            &[0x31, 2, 1, 2],
            &[0x40, 0xaf, 1, 2, 3, 4],
            &[0x30, 1, 1, 1],
        ];
        let payload = frames.concat();
        let mut at = 0;
        let mut seen = 0;
        for ((start, end, _), frame) in Frames::new(&payload).zip(frames) {
            assert_eq!((start, end), (at, at + frame.len()), "{frame:02x?}");
            at = end;
            seen += 1;
        }
        assert_eq!(seen, frames.len());
        // A payload that is cut at any byte, or begins with any byte, causes no panic.
        for length in 0..payload.len() {
            for first in 0..=255 {
                let mut cut = payload[..length].to_vec();
                if let Some(byte) = cut.first_mut() {
                    *byte = first;
                }
                for (_, _, frame) in Frames::new(&cut) {
                    if let Frame::Ack(ack) = frame {
                        ack.covers(3);
                    }
                }
            }
        }
    }

    #[test]
    fn a_stream_frame_is_taken_from_the_front_as_the_iterator_reads_it() {
        let payloads: &[&[u8]] = &[
            &[0x0f, 1, 4, 2, 7, 7, 0x01],
            &[0x0e, 1, 4, 2, 7, 7],
            &[0x0a, 2, 1, 7, 0x08, 3, 9, 9],
            &[0x08, 3],
            &[0x0c, 3, 0x40, 100, 9, 9],
        ];
        for payload in payloads {
            let mut rest = *payload;
            let (_, end_of_frame, frame) = Frames::new(payload).next().unwrap();
            let (stream_id, end, fin) = take_stream(&mut rest).unwrap();
            let taken = Frame::Stream {
                stream_id,
                end,
                fin,
            };
            assert_eq!((taken, rest), (frame, &payload[end_of_frame..]));
        }
        let others: &[&[u8]] = &[
            &[],
            &[0x01, 0x08, 3],
            &[0x40, 0x08, 3],
            &[0x0f, 1, 4],
            &[0x0a, 2, 5, 7],
            &[0x0c, 3],
        ];
        for payload in others {
            let mut rest = *payload;
            assert_eq!((take_stream(&mut rest), rest), (None, *payload));
        }
    }
}
