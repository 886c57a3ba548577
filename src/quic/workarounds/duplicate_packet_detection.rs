//! Detects packets that have arrived before (RFC 9000 section 12.3).
//!
//! quinn-proto drops duplicates without a report, but opens them first. So code that reads opened packets must detect
//! duplicates by the same rule.
//!
//! Assumed of quinn-proto: in each packet number space it remembers the largest number and the 128 below it; older
//! packets count as duplicates.

/// The packet numbers of one space that have arrived.
#[derive(Debug, Default)]
pub struct ReceivedNumbers {
    /// The largest number that has arrived, plus one.
    next: u64,
    /// Bit `n` is set if the number `next - 2 - n` has arrived.
    window: u128,
}

impl ReceivedNumbers {
    /// Records a packet number. Returns false if it has arrived before.
    pub fn insert(&mut self, number: u64) -> bool {
        if number >= self.next {
            let step = u32::try_from(number - self.next).unwrap_or(u32::MAX);
            let window = (self.window << 1) | 1;
            self.window = window.checked_shl(step).unwrap_or(0);
            self.next = number + 1;
            return true;
        }
        let below = self.next - 1 - number;
        let Some(bit) = below
            .checked_sub(1)
            .and_then(|bit| 1_u128.checked_shl(bit.min(128) as u32))
        else {
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
    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn each_packet_number_is_new_once() {
        let mut numbers = ReceivedNumbers::default();
        for (number, is_new) in [
            (0, true),
            (0, false),
            (5, true),
            (3, true),
            (3, false),
            (5, false),
            (133, true),
            (5, false),
            (4, false),
            (6, true),
            (135, true),
            (133, false),
            (134, true),
            (7, true),
            (1 << 61, true),
            (135, false),
            ((1 << 61) - 1, true),
        ] {
            assert_eq!(numbers.insert(number), is_new, "{number}");
        }
    }

    #[test]
    fn bare_quinn_remembers_the_largest_number_and_128_below_it() {
        let mut bare = BareQuinn::connected(quinn_proto::TransportConfig::default());
        bare.client.spy.sealed.lock().unwrap().clear();
        // More than 255 packets, so that packet numbers need two bytes.
        let sent: Vec<Vec<u8>> = (0..300)
            .flat_map(|_| {
                bare.client.connection().ping();
                bare.client.transmit(bare.now)
            })
            .collect();
        let numbers = bare.client.spy.sealed.lock().unwrap().clone();
        assert_eq!((sent.len(), numbers.len()), (300, 300));
        let largest = numbers[299].number;
        let mut ours = ReceivedNumbers::default();
        // Sometimes quinn-proto skips a packet number, so numbers are looked up.
        for at in [299, 299].into_iter().chain(140..299).chain(140..299) {
            let before = bare.server.connection().stats().frame_rx.ping;
            bare.server_gets(&sent[at]);
            let is_new = bare.server.connection().stats().frame_rx.ping > before;
            let number = numbers[at].number;
            assert_eq!(ours.insert(number), is_new, "{number} of {largest}");
        }
        let kept = numbers[140..299].iter();
        let kept = kept.filter(|packet| packet.number + 128 >= largest).count();
        let received = bare.server.connection().stats().frame_rx.ping;
        assert_eq!(received, 1 + kept as u64);
    }
}
