//! What became of the packets of a received datagram: those that nobody opened were dropped, and
//! here is found out which, and why.
//!
//! The endpoint says what packets a datagram has, the packet keys say which of them they opened or
//! could not open. Not here: what is in them.

use crate::wire::{datagram::Arrival, header::PacketType};

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

/// The packet numbers of one space that have arrived, as far as duplicates are told from others (RFC
/// 9000 section 12.3): 128 of them, as in the state machine. What is older counts as a duplicate.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// One more than the largest.
    next: u64,
    /// Bit `n`: `next - 1 - n` has arrived.
    window: u128,
}

impl Numbers {
    /// Notes a number. Returns whether it is the first time.
    pub fn insert(&mut self, number: u64) -> bool {
        if number >= self.next {
            let step = u32::try_from(number - self.next + 1).unwrap_or(u32::MAX);
            self.window = self.window.checked_shl(step).unwrap_or(0) | 1;
            self.next = number + 1;
            return true;
        }
        let Some(bit) = 1_u128.checked_shl((self.next - 1 - number).min(128) as u32) else {
            return false;
        };
        let is_new = self.window & bit == 0;
        self.window |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_new_once() {
        let mut numbers = Numbers::default();
        for (number, is_new) in [
            (0, true),
            (0, false),
            (5, true),
            (3, true),
            (3, false),
            (5, false),
            (132, true),
            (5, false),
            (4, false),
            (6, true),
            (1 << 61, true),
            (132, false),
            ((1 << 61) - 1, true),
        ] {
            assert_eq!(numbers.insert(number), is_new, "{number}");
        }
    }

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
