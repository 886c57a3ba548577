//! Splits a UDP datagram into the QUIC packets that it consists of (RFC 9000 section 12.2, "Coalescing Packets").

use super::packet_header::{Extent, KNOWN_VERSIONS, PacketType, VERSION_1, is_long, version_of};

/// The kind of a datagram's first packet.
#[derive(Debug, PartialEq, Eq)]
pub enum FirstPacket {
    /// A packet of a known version with a long header, or a packet with a short header.
    Packet,
    /// A Version Negotiation packet.
    Negotiation,
    /// A packet with a long header of an unknown version.
    UnknownVersion,
}

impl FirstPacket {
    #[inline]
    pub fn of(datagram: &[u8]) -> Self {
        match version_of(datagram) {
            None => Self::Packet,
            Some(0) => Self::Negotiation,
            Some(version) if KNOWN_VERSIONS.contains(&version) => Self::Packet,
            Some(_) => Self::UnknownVersion,
        }
    }
}

/// The version in a datagram's first packet; `None` if that is not an Initial packet.
#[inline]
pub fn initial_version(datagram: &[u8]) -> Option<u32> {
    let version = version_of(datagram)?;
    (PacketType::of_long(datagram[0], version) == PacketType::Initial).then_some(version)
}

/// One packet of a datagram, as its header describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoalescedPacket {
    /// `None` if the first byte has the long-header bit, but the version field is missing.
    pub packet_type: Option<PacketType>,
    pub length: usize,
}

/// Splits a datagram, or a part of one, into packets. Long headers are assumed to have the layout of version 1.
pub fn arrivals(mut datagram: &[u8]) -> Vec<CoalescedPacket> {
    let mut found = Vec::new();
    while let Some(first) = datagram.first() {
        let packet_type = match version_of(datagram) {
            None if is_long(datagram) => None,
            None => Some(PacketType::OneRtt),
            Some(_) => Some(PacketType::of_long(*first, VERSION_1)),
        };
        let extent = packet_type.and_then(|kind| Extent::of(datagram, kind));
        let length = extent.map_or(datagram.len(), |extent| extent.end.min(datagram.len()));
        found.push(CoalescedPacket {
            packet_type,
            length,
        });
        datagram = &datagram[length..];
    }
    found
}

/// True if a datagram is a Retry packet, which is always alone in its datagram.
#[inline]
pub fn is_retry(datagram: &[u8]) -> bool {
    version_of(datagram).is_some()
        && PacketType::of_long(datagram[0], VERSION_1) == PacketType::Retry
}
