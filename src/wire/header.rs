//! Packet headers (RFC 8999, RFC 9000 section 17, RFC 9369 section 3.2).
//!
//! Versions 1 and 2 differ only in the type bits of long headers. Not here: header protection, and the payload
//! (`frames`).

use super::varint;

/// QUIC version 1, RFC 9000.
pub const VERSION_1: u32 = 1;
/// QUIC version 2, RFC 9369.
pub const VERSION_2: u32 = 0x6b33_43cf;

/// The versions whose packet types are defined.
pub const KNOWN_VERSIONS: [u32; 2] = [VERSION_1, VERSION_2];

/// The packet number spaces (RFC 9000 section 12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Initial,
    Handshake,
    Data,
}

/// The packet type in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketType {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    OneRtt,
}

impl PacketType {
    /// The type in a long header of `version`, from its first byte. Other versions have the layout of version 1.
    #[inline]
    pub fn of_long(first: u8, version: u32) -> Self {
        let first = match version {
            VERSION_2 => unshift_type(first),
            _ => first,
        };
        match first >> 4 & 3 {
            0 => Self::Initial,
            1 => Self::ZeroRtt,
            2 => Self::Handshake,
            _ => Self::Retry,
        }
    }

    /// The type of a packet whose number is in `space`.
    #[inline]
    pub fn in_space(space: Space, is_long: bool) -> Self {
        match (space, is_long) {
            (Space::Initial, _) => Self::Initial,
            (Space::Handshake, _) => Self::Handshake,
            (Space::Data, true) => Self::ZeroRtt,
            (Space::Data, false) => Self::OneRtt,
        }
    }
}

#[inline]
pub fn is_long(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first & LONG_HEADER != 0)
}

/// The version of a packet with a long header, from the packet's first bytes.
#[inline]
pub fn version_of(packet: &[u8]) -> Option<u32> {
    match packet {
        [first, a, b, c, d, ..] if first & LONG_HEADER != 0 => {
            Some(u32::from_be_bytes([*a, *b, *c, *d]))
        }
        _ => None,
    }
}

/// Converts the type bits of version 1 to version 2 (RFC 9369 section 3.2): plus one, modulo four.
#[inline]
pub fn shift_type(first: u8) -> u8 {
    first & !TYPE_BITS | first.wrapping_add(0x10) & TYPE_BITS
}

/// Converts the type bits of version 2 to version 1.
#[inline]
pub fn unshift_type(first: u8) -> u8 {
    first & !TYPE_BITS | first.wrapping_sub(0x10) & TYPE_BITS
}

/// The length of the packet number, from the first byte of a header without protection (RFC 9000 sections 17.2 and
/// 17.3.1).
#[inline]
pub fn number_len(first: u8) -> usize {
    usize::from(first & 0x03) + 1
}

/// The version-independent part of a long header (RFC 8999 section 5.1).
pub struct LongHeader<'a> {
    pub version: u32,
    pub destination: &'a [u8],
    pub source: &'a [u8],
    /// The version-specific rest.
    pub rest: &'a [u8],
}

impl<'a> LongHeader<'a> {
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        let version = version_of(packet)?;
        let mut rest = &packet[5..];
        Some(Self {
            version,
            destination: connection_id(&mut rest)?,
            source: connection_id(&mut rest)?,
            rest,
        })
    }
}

/// A connection ID with a one-byte length. IDs of unknown versions may be longer than 20 bytes.
fn connection_id<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first()?;
    let (id, tail) = tail.split_at_checked(usize::from(*length))?;
    *rest = tail;
    Some(id)
}

/// The positions in a packet with a long header.
pub struct Extent {
    /// The offset of the packet number.
    pub number_at: usize,
    /// The end of the packet, by its Length field.
    pub end: usize,
}

impl Extent {
    /// `None` also for a Retry packet, which extends to the end of its datagram.
    pub fn of(packet: &[u8], packet_type: PacketType) -> Option<Self> {
        let mut rest = LongHeader::read(packet)?.rest;
        match packet_type {
            PacketType::Retry | PacketType::OneRtt => return None,
            PacketType::Initial => {
                let token = usize::try_from(varint::take(&mut rest)?).ok()?;
                rest = rest.get(token..)?;
            }
            PacketType::ZeroRtt | PacketType::Handshake => {}
        }
        let length = usize::try_from(varint::take(&mut rest)?).ok()?;
        let number_at = packet.len() - rest.len();
        let end = number_at.checked_add(length)?;
        Some(Self { number_at, end })
    }
}

const LONG_HEADER: u8 = 0x80;
const TYPE_BITS: u8 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_rotates_the_packet_type_bits() {
        // Initial, 0-RTT, Handshake, Retry.
        for (v1, v2) in [(0xc3, 0xd3), (0xd0, 0xe0), (0xe1, 0xf1), (0xf0, 0xc0)] {
            assert_eq!((shift_type(v1), unshift_type(v2)), (v2, v1));
        }
    }
}
