//! Datagrams on their way to the state machine, which knows one layout and one version a
//! connection.
//!
//! A packet of QUIC version 2 gets the type bits of version 1; its version field stays and tells the
//! packet keys what it was. What the state machine would not look at, because the version is not the
//! one that it knows, it gets as a datagram of its own. And Version Negotiation packets, in both
//! directions, are made and read here (RFC 9000 sections 6 and 17.2.1).
//!
//! Not here: what follows from a Version Negotiation packet (`negotiation`), and the way back to the
//! wire, which is the packet keys' (`tls::keys`).

use bytes::{Buf, BufMut, BytesMut};

use crate::qlog::{self, Arrival};
use crate::tls::{
    KNOWN_VERSIONS, VERSION_1, VERSION_2, reserved_version, unshift_type, version_of,
};

/// What the first packet of a datagram is to an endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For the state machine, in [`pieces`](next_piece).
    Packet,
    /// A Version Negotiation packet.
    Negotiation,
    /// A long header of a version without keys.
    Unknown(u32),
}

pub(super) fn kind(datagram: &[u8]) -> Kind {
    match version_of(datagram) {
        None => Kind::Packet,
        Some(0) => Kind::Negotiation,
        Some(version) if KNOWN_VERSIONS.contains(&version) => Kind::Packet,
        Some(version) => Kind::Unknown(version),
    }
}

/// The version of an Initial packet as it is on the wire.
pub(super) fn initial_version(datagram: &[u8]) -> Option<u32> {
    let version = version_of(datagram)?;
    (packet_type(datagram[0], version) == Type::Initial).then_some(version)
}

/// The packets in a [piece](next_piece).
pub(super) fn arrivals(mut piece: &[u8]) -> Vec<Arrival> {
    let mut found = Vec::new();
    while let Some(first) = piece.first() {
        let (kind, length) = match version_of(piece) {
            None if first & 0x80 == 0 => (qlog::Kind::OneRtt, None),
            None => (qlog::Kind::Unknown, None),
            Some(_) => {
                let kind = packet_type(*first, VERSION_1);
                (kind.logged(), length(piece, kind))
            }
        };
        let length = length.unwrap_or(piece.len()).min(piece.len());
        found.push(Arrival { kind, length });
        piece = &piece[length..];
    }
    found
}

/// Whether a piece is a Retry packet, and nothing else can be behind one.
pub(super) fn is_retry(piece: &[u8]) -> bool {
    // The layout is that of version 1 by now.
    version_of(piece).is_some() && packet_type(piece[0], VERSION_1) == Type::Retry
}

/// The destination of a packet with a long header.
pub(super) fn destination(packet: &[u8]) -> Option<&[u8]> {
    counted(&mut packet.get(5..)?)
}

/// Cuts off what the state machine can take in one go. The packets in it get the layout of version
/// 1.
///
/// A cut is made before a packet whose version may be another than that of the connection. 0-RTT
/// packets never need one: their version is the original one. A server gets Initial packets of one
/// version together, because the size of the first datagram is looked at (RFC 9000 section 14.1).
pub(super) fn next_piece(datagram: &mut BytesMut, is_server: bool) -> BytesMut {
    let end = end_of_piece(datagram, is_server);
    datagram.split_to(end)
}

fn end_of_piece(datagram: &mut [u8], is_server: bool) -> usize {
    let total = datagram.len();
    let mut at = 0;
    loop {
        let packet = &mut datagram[at..];
        // A short header is the last one; what has an unknown version is nobody's.
        let Some(version) = version_of(packet).filter(|version| KNOWN_VERSIONS.contains(version))
        else {
            return total;
        };
        let kind = packet_type(packet[0], version);
        if version == VERSION_2 {
            packet[0] = unshift_type(packet[0]);
        }
        let Some(length) = length(packet, kind).filter(|length| *length < packet.len()) else {
            return total;
        };
        at += length;
        let next = &datagram[at..];
        let Some(next_version) = version_of(next).filter(|next| KNOWN_VERSIONS.contains(next))
        else {
            return total;
        };
        match packet_type(next[0], next_version) {
            Type::ZeroRtt => {}
            Type::Initial if is_server && kind == Type::Initial && next_version == version => {}
            Type::Initial | Type::Handshake => return at,
            // Retry is never behind another packet.
            Type::Retry => return total,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
}

impl Type {
    fn logged(self) -> qlog::Kind {
        match self {
            Self::Initial => qlog::Kind::Initial,
            Self::ZeroRtt => qlog::Kind::Early,
            Self::Handshake => qlog::Kind::Handshake,
            Self::Retry => qlog::Kind::Retry,
        }
    }
}

fn packet_type(first: u8, version: u32) -> Type {
    let first = match version {
        VERSION_2 => unshift_type(first),
        _ => first,
    };
    match first >> 4 & 3 {
        0 => Type::Initial,
        1 => Type::ZeroRtt,
        2 => Type::Handshake,
        _ => Type::Retry,
    }
}

/// The length of a packet with a long header, where it says.
fn length(packet: &[u8], kind: Type) -> Option<usize> {
    let mut rest = packet.get(5..)?;
    for _ in 0..2 {
        counted(&mut rest)?;
    }
    match kind {
        Type::Retry => return None,
        Type::Initial => {
            let token = usize::try_from(crate::wire::frames::varint(&mut rest)?).ok()?;
            rest = rest.get(token..)?;
        }
        Type::ZeroRtt | Type::Handshake => {}
    }
    let payload = usize::try_from(crate::wire::frames::varint(&mut rest)?).ok()?;
    (packet.len() - rest.len()).checked_add(payload)
}

/// A connection ID: its length in one byte, then the ID. Of an unknown version it may be long.
fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first()?;
    let (id, tail) = tail.split_at_checked(usize::from(*length))?;
    *rest = tail;
    Some(id)
}

/// A Version Negotiation packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Negotiation<'a> {
    pub destination: &'a [u8],
    pub source: &'a [u8],
    pub versions: Vec<u32>,
}

impl<'a> Negotiation<'a> {
    pub fn read(datagram: &'a [u8]) -> Option<Self> {
        let mut rest = datagram.get(5..)?;
        let destination = counted(&mut rest)?;
        let source = counted(&mut rest)?;
        if rest.is_empty() || !rest.len().is_multiple_of(4) {
            return None;
        }
        let mut versions = Vec::with_capacity(rest.len() / 4);
        while rest.has_remaining() {
            versions.push(rest.get_u32());
        }
        Some(Self {
            destination,
            source,
            versions,
        })
    }

    /// The answer to a first packet of a version that is not spoken. A reserved version goes with
    /// those that are, so that clients keep ignoring what they do not know (RFC 9000 section 6.3).
    pub fn answer(first_packet: &[u8], versions: &[u32], into: &mut Vec<u8>) -> Option<()> {
        let mut rest = first_packet.get(5..)?;
        let destination = counted(&mut rest)?;
        let source = counted(&mut rest)?;
        let asked = version_of(first_packet)?;
        let reserved =
            std::iter::repeat_with(reserved_version).find(|reserved| *reserved != asked)?;
        // The other bits are arbitrary; a set fixed bit helps those who tell QUIC from other things.
        into.put_u8(0xc0 | (reserved as u8 >> 4));
        into.put_u32(0);
        for id in [source, destination] {
            into.put_u8(id.len() as u8);
            into.extend_from_slice(id);
        }
        into.put_u32(reserved);
        versions.iter().for_each(|version| into.put_u32(*version));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of `version` whose type, in the numbers of version 1, is `kind`.
    fn packet(kind: u8, version: u32, payload: usize) -> Vec<u8> {
        let kind = match version {
            VERSION_2 => (kind + 1) % 4,
            _ => kind,
        };
        let mut bytes = vec![0xc0 | kind << 4];
        bytes.extend(version.to_be_bytes());
        bytes.extend([8, 1, 2, 3, 4, 5, 6, 7, 8, 2, 9, 9]);
        let in_v1 = match version {
            VERSION_2 => (kind + 3) % 4,
            _ => kind,
        };
        if in_v1 == INITIAL {
            bytes.extend([3, 7, 7, 7]);
        }
        bytes.extend((payload as u16 | 0x4000).to_be_bytes());
        bytes.resize(bytes.len() + payload, 0xab);
        bytes
    }

    fn cut(packets: &[Vec<u8>], is_server: bool) -> Vec<usize> {
        let mut rest = BytesMut::from(&packets.concat()[..]);
        let mut sizes = Vec::new();
        while !rest.is_empty() {
            sizes.push(next_piece(&mut rest, is_server).len());
        }
        sizes
    }

    const INITIAL: u8 = 0;
    const ZERO_RTT: u8 = 1;
    const HANDSHAKE: u8 = 2;

    #[test]
    fn packets_that_may_be_of_another_version_come_alone() {
        let initial = packet(INITIAL, VERSION_2, 100);
        let handshake = packet(HANDSHAKE, VERSION_2, 200);
        let mut short = vec![0x40];
        short.extend([1; 50]);
        let (i, h, s) = (initial.len(), handshake.len(), short.len());
        let all = [initial.clone(), handshake.clone(), short.clone()];
        assert_eq!(cut(&all, false), [i, h + s]);
        assert_eq!(cut(&all, true), [i, h + s]);
        let early = packet(ZERO_RTT, VERSION_1, 60);
        let flight = [initial.clone(), early.clone(), handshake];
        assert_eq!(cut(&flight, true), [i + early.len(), h]);
        let two = [initial.clone(), initial.clone()];
        assert_eq!(cut(&two, true), [2 * i]);
        assert_eq!(cut(&two, false), [i, i]);
        let other = [initial.clone(), packet(INITIAL, VERSION_1, 100)];
        assert_eq!(cut(&other, true), [i, i]);
        let junk = [initial, vec![0; 300]];
        assert_eq!(cut(&junk, true), [i + 300]);
    }

    #[test]
    fn type_bits_become_those_of_version_1() {
        for kind in [INITIAL, ZERO_RTT, HANDSHAKE, 3] {
            for version in KNOWN_VERSIONS {
                let mut datagram = BytesMut::from(&packet(kind, version, 50)[..]);
                let piece = next_piece(&mut datagram, false);
                assert_eq!(piece[0], 0xc0 | kind << 4);
                assert_eq!(version_of(&piece), Some(version), "it marks the keys");
            }
        }
        let two = [
            packet(INITIAL, VERSION_2, 50),
            packet(ZERO_RTT, VERSION_2, 50),
        ];
        let first = two[0].len();
        let mut datagram = BytesMut::from(&two.concat()[..]);
        let piece = next_piece(&mut datagram, true);
        assert_eq!((piece[0], piece[first]), (0xc0, 0xd0));
    }

    #[test]
    fn no_datagram_is_too_odd_to_cut() {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize
        };
        let whole = [
            packet(INITIAL, VERSION_2, 80),
            packet(ZERO_RTT, VERSION_1, 40),
            packet(HANDSHAKE, VERSION_2, 60),
        ]
        .concat();
        for _ in 0..100_000 {
            let mut bytes = whole[..random() % (whole.len() + 1)].to_vec();
            for _ in 0..random() % 4 {
                if !bytes.is_empty() {
                    let at = random() % bytes.len();
                    bytes[at] = random() as u8;
                }
            }
            let total = bytes.len();
            let mut rest = BytesMut::from(&bytes[..]);
            let mut sum = 0;
            while !rest.is_empty() {
                sum += next_piece(&mut rest, random() % 2 == 0).len();
            }
            assert_eq!(sum, total);
            let _ = Negotiation::read(&bytes);
        }
    }

    #[test]
    fn version_negotiation_is_read_as_it_was_written() {
        for version in [0x1a2a_3a4a, 0xface_b00c] {
            let first = packet(INITIAL, version, 1_200);
            assert_eq!(kind(&first), Kind::Unknown(version));
            let mut answer = Vec::new();
            Negotiation::answer(&first, &[VERSION_2, VERSION_1], &mut answer).unwrap();
            assert_eq!(kind(&answer), Kind::Negotiation);
            let read = Negotiation::read(&answer).unwrap();
            assert_eq!(read.destination, [9, 9]);
            assert_eq!(read.source, [1, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(read.versions[1..], [VERSION_2, VERSION_1]);
            assert_eq!(read.versions[0] & 0x0f0f_0f0f, 0x0a0a_0a0a);
            assert_ne!(read.versions[0], version);
            answer.pop();
            assert_eq!(Negotiation::read(&answer), None);
        }
        assert_eq!(
            Negotiation::read(&[0x80, 0, 0, 0, 0, 0, 0]),
            None,
            "no version"
        );
    }
}
