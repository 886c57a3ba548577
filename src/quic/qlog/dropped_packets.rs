//! Finds out which packets of a received datagram were dropped.
//!
//! The endpoint lists the packets of a datagram, and the packet keys report each packet that they opened or could not
//! open. A packet that was not reported was dropped. Not here: the content of packets, and duplicates
//! (`workarounds::duplicate_packet_detection`).

use uringcore_wire::{coalesced_packets::CoalescedPacket, packet_header::PacketType};

/// The packets of the current datagram that were not reported yet.
#[derive(Debug, Default)]
pub(super) struct UnreportedPackets(Vec<CoalescedPacket>);

impl UnreportedPackets {
    pub fn begin(&mut self, packets: Vec<CoalescedPacket>) {
        self.0 = packets;
    }

    /// Called when a packet was reported as received. Removes the first packet of this type from the list of unreported
    /// ones, and returns its length in bytes if there is one.
    pub fn seen(&mut self, packet_type: PacketType) -> Option<usize> {
        let is_it = |arrival: &CoalescedPacket| arrival.packet_type == Some(packet_type);
        let at = self.0.iter().position(is_it)?;
        Some(self.0.remove(at).length)
    }

    /// Removes and returns the packets that were not reported, when the datagram was handled.
    pub fn finish(&mut self) -> Vec<CoalescedPacket> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_were_not_reported_are_returned() {
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
