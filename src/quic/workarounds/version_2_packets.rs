//! Converts packets of version 2 for quinn-proto, which has only the packet layout of version 1 and one version a
//! connection.
//!
//! A received packet of version 2 gets the type bits of version 1. Its version field stays, so that the packet keys
//! can read it. In a datagram, quinn-proto skips packets whose version differs from the first packet's, so these are
//! passed to it as a datagram of their own. On sending, a packet key writes the real version and type bits before it
//! seals the packet. Nothing changes these bytes after that, header protection included.
//!
//! Assumed of quinn-proto: it reads and writes the type bits of version 1 for any version field that is among the
//! endpoint's versions; a packet key gets the whole packet, header included, before it is sealed, and the header key
//! gets it after that; after the first packet of a datagram it skips packets of another version.

use bytes::BytesMut;
use uringcore_wire::packet_header::{
    Extent, KNOWN_VERSIONS, PacketType, VERSION_2, shift_type, unshift_type, version_of,
};

/// Splits off the first packets of a datagram, which quinn-proto can process together, and gives them the type bits
/// of version 1.
///
/// A cut is made before a packet whose version may differ from the connection's. 0-RTT packets never need a cut,
/// because their version is the original one. A server gets all Initial packets of one version together, because the
/// size of the first datagram is checked (RFC 9000 section 14.1).
pub fn next_piece(datagram: &mut BytesMut, is_server: bool) -> BytesMut {
    let end = end_of_piece(datagram, is_server);
    match end == datagram.len() {
        // Most datagrams consist of one piece, which is passed on without a copy.
        true => std::mem::take(datagram),
        false => datagram.split_to(end),
    }
}

fn end_of_piece(datagram: &mut [u8], is_server: bool) -> usize {
    let total = datagram.len();
    let mut at = 0;
    loop {
        let packet = &mut datagram[at..];
        // A packet with a short header is the last one of a datagram. Packets of unknown versions are ignored.
        let Some(version) = version_of(packet).filter(|version| KNOWN_VERSIONS.contains(version))
        else {
            return total;
        };
        let kind = PacketType::of_long(packet[0], version);
        hide_type(packet);
        let Some(extent) = Extent::of(packet, kind).filter(|extent| extent.end < packet.len())
        else {
            return total;
        };
        at += extent.end;
        let next = &datagram[at..];
        let Some(next_version) = version_of(next).filter(|next| KNOWN_VERSIONS.contains(next))
        else {
            return total;
        };
        match PacketType::of_long(next[0], next_version) {
            PacketType::ZeroRtt => {}
            PacketType::Initial
                if is_server && kind == PacketType::Initial && next_version == version => {}
            PacketType::Initial | PacketType::Handshake => return at,
            // A Retry never follows another packet.
            PacketType::Retry | PacketType::OneRtt => return total,
        }
    }
}

/// Gives a packet of quinn-proto with a long header the version and the type bits of `version`.
pub fn show(packet: &mut [u8], version: u32) {
    if version_of(packet).is_none() {
        return;
    }
    packet[1..5].copy_from_slice(&version.to_be_bytes());
    show_type(packet);
}

/// The header of a received packet as the peer has sealed it: with the type bits of the QUIC version on the wire.
pub fn received(header: &[u8]) -> Vec<u8> {
    let mut header = header.to_vec();
    show_type(&mut header);
    header
}

/// Gives a packet with the right version field the type bits of that version.
pub fn show_type(packet: &mut [u8]) {
    if version_of(packet) == Some(VERSION_2) {
        packet[0] = shift_type(packet[0]);
    }
}

/// Gives a packet the type bits of version 1, which quinn-proto and its keys expect. The version field stays.
pub fn hide_type(packet: &mut [u8]) {
    if version_of(packet) == Some(VERSION_2) {
        packet[0] = unshift_type(packet[0]);
    }
}

#[cfg(test)]
mod tests {
    use uringcore_wire::{
        coalesced_packets::arrivals, packet_header::VERSION_1,
        version_negotiation::VersionNegotiation,
    };

    use super::*;
    use crate::workarounds::bare_quinn::{BareQuinn, OTHER_VERSION};

    /// A packet of `version`. `kind` is its type in the type bits of version 1.
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
    fn packets_of_another_version_are_split_off() {
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
    fn type_bits_are_converted_to_version_1() {
        for kind in [INITIAL, ZERO_RTT, HANDSHAKE, 3] {
            for version in KNOWN_VERSIONS {
                let mut datagram = BytesMut::from(&packet(kind, version, 50)[..]);
                let piece = next_piece(&mut datagram, false);
                assert_eq!(piece[0], 0xc0 | kind << 4);
                assert_eq!(
                    version_of(&piece),
                    Some(version),
                    "the version field selects the keys"
                );
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
    fn random_datagrams_are_split_without_a_panic() {
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
            arrivals(&bytes);
            let _ = VersionNegotiation::read(&bytes);
        }
    }

    #[test]
    fn bare_quinn_uses_the_type_bits_of_version_1_for_every_version() {
        let mut bare = BareQuinn::begin(VERSION_2, quinn_proto::TransportConfig::default());
        bare.exchange();
        assert!(!bare.client.connection().is_handshaking());
        for end in [&bare.client, &bare.server] {
            let sealed = end.spy.sealed.lock().unwrap();
            let long = sealed.iter().filter(|packet| packet.is_long());
            let types: Vec<u8> = long
                .inspect(|packet| assert_eq!(version_of(&packet.header), Some(VERSION_2)))
                .map(|packet| packet.header[0] & 0x30)
                .collect();
            assert!(types.contains(&0x00) && types.contains(&0x20), "{types:x?}");
        }
    }

    #[test]
    fn bare_quinn_seals_the_edited_header_and_then_masks_it() {
        let mut bare = BareQuinn::begin(VERSION_2, quinn_proto::TransportConfig::default());
        *bare.client.spy.on_header.lock().unwrap() = Some(|header| show(header, VERSION_2));
        let datagram = bare.client.transmit(bare.now).remove(0);
        assert_eq!(*bare.client.spy.steps.lock().unwrap(), ["seal", "mask"]);
        assert_eq!(datagram[0] & 0xf0, 0xd0, "an Initial packet of version 2");
    }

    #[test]
    fn bare_quinn_skips_later_packets_of_another_version() {
        let server_flight = || {
            let mut bare = BareQuinn::begin(VERSION_1, quinn_proto::TransportConfig::default());
            let first_flight = bare.client.transmit(bare.now);
            first_flight
                .iter()
                .for_each(|datagram| bare.server_gets(datagram));
            let datagram = bare.server.transmit(bare.now).remove(0);
            let second = Extent::of(&datagram, PacketType::Initial).unwrap().end;
            assert_eq!(version_of(&datagram[second..]), Some(VERSION_1));
            bare.client.spy.tried.lock().unwrap().clear();
            (bare, datagram, second)
        };
        let tried = |bare: &BareQuinn| {
            let tried = bare.client.spy.tried.lock().unwrap();
            tried
                .iter()
                .filter_map(|header| version_of(header))
                .collect::<Vec<_>>()
        };
        let both = [VERSION_1; 2];
        let (mut bare, datagram, _) = server_flight();
        bare.client_gets(&datagram);
        assert_eq!(tried(&bare), both);
        let (mut bare, mut datagram, second) = server_flight();
        datagram[second + 1..second + 5].copy_from_slice(&OTHER_VERSION.to_be_bytes());
        bare.client_gets(&datagram);
        assert_eq!(
            tried(&bare),
            both[..1],
            "quinn-proto skips a packet of another version"
        );
        let (mut bare, mut datagram, second) = server_flight();
        datagram[1..5].copy_from_slice(&OTHER_VERSION.to_be_bytes());
        bare.client_gets(&datagram[..second]);
        assert_eq!(
            tried(&bare),
            [OTHER_VERSION],
            "quinn-proto tries to open the packet if it is alone"
        );
    }
}
