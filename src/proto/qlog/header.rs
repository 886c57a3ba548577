//! A packet's header, still or again without protection (RFC 9000 section 17).

use super::{Packet, json::Object};

pub(super) fn to_json(packet: &Packet<'_>) -> String {
    let mut header = Object::new();
    header.number("packet_number", packet.number);
    header.word("packet_type", packet.kind().name());
    match long(packet.header).filter(|_| is_long(packet.header)) {
        Some(long) => long.write(&mut header),
        None => {
            let first = packet.header.first().copied().unwrap_or_default();
            header.hex("scid", &[]);
            header.hex("dcid", destination(packet.header));
            header.flag("key_phase", first & 0x04 != 0);
        }
    }
    header.finish()
}

pub(super) fn is_long(header: &[u8]) -> bool {
    header.first().is_some_and(|first| first & 0x80 != 0)
}

/// The destination connection ID of a packet without header protection.
pub(super) fn destination(header: &[u8]) -> &[u8] {
    if let Some(long) = long(header).filter(|_| is_long(header)) {
        return long.destination;
    }
    // The first byte, the destination, the packet number in as many bytes as it says.
    let first = header.first().copied().unwrap_or_default();
    let end = header.len().saturating_sub(usize::from(first & 0x03) + 1);
    header.get(1..end).unwrap_or_default()
}

/// That of a packet without a number: Retry, Version Negotiation.
pub(super) fn without_number(packet_type: &str, bytes: &[u8]) -> String {
    let mut header = Object::new();
    header.word("packet_type", packet_type);
    if let Some(long) = long(bytes) {
        long.write(&mut header);
    }
    header.finish()
}

struct Long<'a> {
    version: &'a [u8],
    destination: &'a [u8],
    source: &'a [u8],
}

impl Long<'_> {
    fn write(&self, header: &mut Object) {
        header.hex("scid", self.source);
        header.hex("dcid", self.destination);
        header.hex("version", self.version);
    }
}

/// RFC 8999 section 5.1: what every version's long headers have in common.
fn long(bytes: &[u8]) -> Option<Long<'_>> {
    let (version, rest) = bytes.get(1..)?.split_at_checked(4)?;
    let (&length, rest) = rest.split_first()?;
    let (destination, rest) = rest.split_at_checked(usize::from(length))?;
    let (&length, rest) = rest.split_first()?;
    let source = rest.get(..usize::from(length))?;
    Some(Long {
        version,
        destination,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qlog::{Direction, Level};

    fn packet<'a>(level: Level, header: &'a [u8]) -> Packet<'a> {
        Packet {
            direction: Direction::Sent,
            level,
            number: 7,
            header,
            payload: &[],
            tag_len: 16,
        }
    }

    #[test]
    fn headers_of_every_kind() {
        let long = [0xc0, 0, 0, 0, 1, 2, 0xaa, 0xbb, 1, 0xcc, 0, 0x40, 0x20, 7];
        assert_eq!(
            to_json(&packet(Level::Initial, &long)),
            "{\"packet_number\":7,\"packet_type\":\"initial\",\"scid\":\"cc\",\"dcid\":\"aabb\",\
             \"version\":\"00000001\"}"
        );
        let short = [0x45, 0xaa, 0xbb, 0x00, 0x07];
        assert_eq!(
            to_json(&packet(Level::Data, &short)),
            "{\"packet_number\":7,\"packet_type\":\"1RTT\",\"scid\":\"\",\"dcid\":\"aabb\",\
             \"key_phase\":true}"
        );
        assert!(to_json(&packet(Level::Data, &long)).contains("\"0RTT\""));
        assert!(without_number("retry", &long).contains("\"retry\""));
        for end in 0..long.len() {
            to_json(&packet(Level::Handshake, &long[..end]));
            without_number("retry", &long[..end]);
        }
    }
}
