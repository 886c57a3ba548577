//! A packet's header as JSON, after removal of header protection (RFC 9000 section 17).

use uringcore_wire::packet_header::{LongHeader, PacketType, number_len};

use super::{Packet, json_writer::Object};

pub(super) fn to_json(packet: &Packet<'_>) -> String {
    let mut header = Object::new();
    header.number("packet_number", packet.number);
    header.unescaped("packet_type", type_name(Some(packet.packet_type())));
    match LongHeader::read(packet.header) {
        Some(long) => write(&long, &mut header),
        None => {
            let first = packet.header.first().copied().unwrap_or_default();
            header.hex("scid", &[]);
            header.hex("dcid", destination(packet.header));
            header.flag("key_phase", first & 0x04 != 0);
        }
    }
    header.finish()
}

/// The destination connection ID in a header without header protection.
pub(super) fn destination(header: &[u8]) -> &[u8] {
    if let Some(long) = LongHeader::read(header) {
        return long.destination;
    }
    // A short header consists of the first byte, the connection ID, and the packet number. The first byte contains the
    // length of the packet number.
    let first = header.first().copied().unwrap_or_default();
    let end = header.len().saturating_sub(number_len(first));
    header.get(1..end).unwrap_or_default()
}

/// The header of a packet that has no packet number: Retry or Version Negotiation.
pub(super) fn without_number(packet_type: &str, bytes: &[u8]) -> String {
    let mut header = Object::new();
    header.unescaped("packet_type", packet_type);
    if let Some(long) = LongHeader::read(bytes) {
        write(&long, &mut header);
    }
    header.finish()
}

fn write(long: &LongHeader<'_>, header: &mut Object) {
    header.hex("scid", long.source);
    header.hex("dcid", long.destination);
    header.hex("version", &long.version.to_be_bytes());
}

/// qlog's name of a packet type.
pub(super) fn type_name(packet_type: Option<PacketType>) -> &'static str {
    match packet_type {
        Some(PacketType::Initial) => "initial",
        Some(PacketType::ZeroRtt) => "0RTT",
        Some(PacketType::Handshake) => "handshake",
        Some(PacketType::OneRtt) => "1RTT",
        Some(PacketType::Retry) => "retry",
        None => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use uringcore_wire::packet_header::Space;

    use super::*;
    use crate::qlog::Direction;

    fn packet<'a>(space: Space, header: &'a [u8]) -> Packet<'a> {
        Packet {
            direction: Direction::Sent,
            space,
            number: 7,
            header,
            payload: &[],
            tag_len: 16,
        }
    }

    #[test]
    fn headers_of_every_packet_type_are_written_as_json() {
        let long = [0xc0, 0, 0, 0, 1, 2, 0xaa, 0xbb, 1, 0xcc, 0, 0x40, 0x20, 7];
        assert_eq!(
            to_json(&packet(Space::Initial, &long)),
            "{\"packet_number\":7,\"packet_type\":\"initial\",\"scid\":\"cc\",\"dcid\":\"aabb\",\
             \"version\":\"00000001\"}"
        );
        let short = [0x45, 0xaa, 0xbb, 0x00, 0x07];
        assert_eq!(
            to_json(&packet(Space::Data, &short)),
            "{\"packet_number\":7,\"packet_type\":\"1RTT\",\"scid\":\"\",\"dcid\":\"aabb\",\
             \"key_phase\":true}"
        );
        assert!(to_json(&packet(Space::Data, &long)).contains("\"0RTT\""));
        assert!(without_number("retry", &long).contains("\"retry\""));
        for end in 0..long.len() {
            to_json(&packet(Space::Handshake, &long[..end]));
            without_number("retry", &long[..end]);
        }
    }
}
