//! What became of the packets of a received datagram: those that nobody opened were dropped, and
//! here is found out which, and why.
//!
//! The endpoint says what packets a datagram has, the packet keys say which of them they opened or
//! could not open. Not here: what is in them, and which of them came twice (`seams::duplicates`).

use uringcore_wire::{datagram::Arrival, header::PacketType};

/// The packets of the datagram that is being handled, and those that nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Vec<Arrival>);

impl Arrivals {
    pub fn begin(&mut self, packets: Vec<Arrival>) {
        self.0 = packets;
    }

    /// Somebody has looked at the next packet of this type. Returns its length, if there is one.
    pub fn seen(&mut self, packet_type: PacketType) -> Option<usize> {
        let is_it = |arrival: &Arrival| arrival.packet_type == Some(packet_type);
        let at = self.0.iter().position(is_it)?;
        Some(self.0.remove(at).length)
    }

    /// What nobody has looked at.
    pub fn finish(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_saw_is_left() {
        let arrival = |packet_type, length| Arrival {
            packet_type: Some(packet_type),
            length,
        };
        let mut arrivals = Arrivals::default();
        arrivals.begin(vec![
            arrival(PacketType::Initial, 1),
            arrival(PacketType::Handshake, 2),
            arrival(PacketType::Initial, 3),
        ]);
        assert_eq!(arrivals.seen(PacketType::Initial), Some(1));
        assert_eq!(arrivals.seen(PacketType::OneRtt), None);
        let rest = [
            arrival(PacketType::Handshake, 2),
            arrival(PacketType::Initial, 3),
        ];
        assert_eq!(arrivals.finish(), rest);
        assert!(arrivals.finish().is_empty());
    }
}
