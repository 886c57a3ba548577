//! The packets of a received datagram: detects which of them were dropped, and why.
//!
//! The endpoint lists the packets of a datagram, and the packet keys report those that they opened or could not
//! open. Not here: the content of packets, and duplicates (`seams::duplicate_packets`).

use uringcore_wire::{coalesced_packets::CoalescedPacket, header::PacketType};

/// The packets of the current datagram that were not reported yet.
#[derive(Debug, Default)]
pub(super) struct UnreportedPackets(Vec<CoalescedPacket>);

impl UnreportedPackets {
    pub fn begin(&mut self, packets: Vec<CoalescedPacket>) {
        self.0 = packets;
    }

    /// The next packet of this type was reported. Returns its length, if there is one.
    pub fn seen(&mut self, packet_type: PacketType) -> Option<usize> {
        let is_it = |arrival: &CoalescedPacket| arrival.packet_type == Some(packet_type);
        let at = self.0.iter().position(is_it)?;
        Some(self.0.remove(at).length)
    }

    /// The packets that were not reported.
    pub fn finish(&mut self) -> Vec<CoalescedPacket> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_saw_is_left() {
        let arrival = |packet_type, length| CoalescedPacket {
            packet_type: Some(packet_type),
            length,
        };
        let mut unreported = UnreportedPackets::default();
        unreported.begin(vec![
            arrival(PacketType::Initial, 1),
            arrival(PacketType::Handshake, 2),
            arrival(PacketType::Initial, 3),
        ]);
        assert_eq!(unreported.seen(PacketType::Initial), Some(1));
        assert_eq!(unreported.seen(PacketType::OneRtt), None);
        let rest = [
            arrival(PacketType::Handshake, 2),
            arrival(PacketType::Initial, 3),
        ];
        assert_eq!(unreported.finish(), rest);
        assert!(unreported.finish().is_empty());
    }
}
