//! Packet headers (RFC 8999, RFC 9000 section 17, RFC 9369 section 3.2).
//!
//! The headers of versions 1 and 2 differ only in the type bits of long headers. Not here: header protection, and the
//! frames of a packet (`frame_iterator`).

use super::varint;

/// QUIC version 1, RFC 9000.
pub const VERSION_1: u32 = 1;
/// QUIC version 2, RFC 9369.
pub const VERSION_2: u32 = 0x6b33_43cf;

/// The versions whose packet types this crate can read.
pub const KNOWN_VERSIONS: [u32; 2] = [VERSION_1, VERSION_2];

/// The packet number spaces (RFC 9000 section 12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Initial,
    Handshake,
    Data,
}

/// The type of a packet, from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketType {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    OneRtt,
}

impl PacketType {
    /// The packet type in a long header of `version`; `first` is the header's first byte. An unknown version is read
    /// like version 1.
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

    /// The type of a packet whose packet number belongs to `space`.
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

/// The version field of a packet; `None` if the header is short or incomplete.
#[inline]
pub fn version_of(packet: &[u8]) -> Option<u32> {
    match packet {
        [first, a, b, c, d, ..] if first & LONG_HEADER != 0 => {
            Some(u32::from_be_bytes([*a, *b, *c, *d]))
        }
        _ => None,
    }
}

/// Converts the type bits of a version 1 header to version 2: plus one, modulo four (RFC 9369 section 3.2).
#[inline]
pub fn shift_type(first: u8) -> u8 {
    first & !TYPE_BITS | first.wrapping_add(0x10) & TYPE_BITS
}

/// Converts the type bits of a version 2 header to version 1.
#[inline]
pub fn unshift_type(first: u8) -> u8 {
    first & !TYPE_BITS | first.wrapping_sub(0x10) & TYPE_BITS
}

/// The length of the packet number in bytes, from the header's first byte after header protection was removed (RFC
/// 9000 sections 17.2 and 17.3.1).
#[inline]
pub fn number_len(first: u8) -> usize {
    usize::from(first & 0x03) + 1
}

/// The fields of a long header that are the same in all versions (RFC 8999 section 5.1).
pub struct LongHeader<'a> {
    pub version: u32,
    pub destination: &'a [u8],
    pub source: &'a [u8],
    /// The bytes after these fields, whose meaning depends on the version.
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

/// Reads a connection ID after its one-byte length. In unknown versions it may be longer than 20 bytes.
fn connection_id<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first()?;
    let (id, tail) = tail.split_at_checked(usize::from(*length))?;
    *rest = tail;
    Some(id)
}

/// Offsets in a packet with a long header.
pub struct Extent {
    /// The offset of the packet number field.
    pub number_at: usize,
    /// The offset after the packet's last byte, from its Length field.
    pub end: usize,
}

impl Extent {
    /// `None` if the header is malformed, and for a Retry packet, which has no Length field.
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
        // The first bytes of Initial, 0-RTT, Handshake and Retry packets.
        for (v1, v2) in [(0xc3, 0xd3), (0xd0, 0xe0), (0xe1, 0xf1), (0xf0, 0xc0)] {
            assert_eq!((shift_type(v1), unshift_type(v2)), (v2, v1));
        }
    }
}
