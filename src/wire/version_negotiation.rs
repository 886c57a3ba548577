//! Version Negotiation packets (RFC 9000 section 17.2.1). Not here: the choice of a version.

use bytes::{Buf, BufMut};

use super::packet_header::LongHeader;

#[derive(Debug, PartialEq, Eq)]
pub struct VersionNegotiation<'a> {
    pub destination: &'a [u8],
    pub source: &'a [u8],
    pub versions: Vec<u32>,
}

impl<'a> VersionNegotiation<'a> {
    pub fn read(datagram: &'a [u8]) -> Option<Self> {
        let header = LongHeader::read(datagram)?;
        let mut rest = header.rest;
        if rest.is_empty() || !rest.len().is_multiple_of(4) {
            return None;
        }
        let mut versions = Vec::with_capacity(rest.len() / 4);
        while rest.has_remaining() {
            versions.push(rest.get_u32());
        }
        Some(Self {
            destination: header.destination,
            source: header.source,
            versions,
        })
    }

    /// Builds the answer to a client's first packet of an unsupported version. The answer lists the supported versions
    /// and `reserved`, a reserved version other than the client's, so that clients keep ignoring unknown versions (RFC
    /// 9000 section 6.3).
    pub fn answer(
        first_packet: &[u8],
        reserved: u32,
        versions: &[u32],
        into: &mut Vec<u8>,
    ) -> Option<()> {
        let asked = LongHeader::read(first_packet)?;
        // The other bits of the first byte are arbitrary. The fixed bit is set, because it helps demultiplexers to
        // recognize QUIC.
        into.put_u8(0xc0 | (reserved as u8 >> 4));
        into.put_u32(0);
        for id in [asked.source, asked.destination] {
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
    use crate::{
        coalesced_packets::FirstPacket,
        packet_header::{VERSION_1, VERSION_2},
    };

    #[test]
    fn a_written_version_negotiation_packet_is_read_back() {
        for version in [0x1a2a_3a4a_u32, 0xface_b00c] {
            let mut first = vec![0xc0];
            first.extend(version.to_be_bytes());
            first.extend([8, 1, 2, 3, 4, 5, 6, 7, 8, 2, 9, 9]);
            first.resize(1_200, 0);
            assert_eq!(FirstPacket::of(&first), FirstPacket::UnknownVersion);
            let mut answer = Vec::new();
            let (reserved, spoken) = (0x7a6a_5a4a, [VERSION_2, VERSION_1]);
            VersionNegotiation::answer(&first, reserved, &spoken, &mut answer).unwrap();
            assert_eq!(FirstPacket::of(&answer), FirstPacket::Negotiation);
            let read = VersionNegotiation::read(&answer).unwrap();
            assert_eq!(read.destination, [9, 9]);
            assert_eq!(read.source, [1, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(read.versions, [reserved, VERSION_2, VERSION_1]);
            answer.pop();
            assert_eq!(VersionNegotiation::read(&answer), None);
        }
        let without_versions = [0x80, 0, 0, 0, 0, 0, 0];
        assert_eq!(VersionNegotiation::read(&without_versions), None);
    }
}
