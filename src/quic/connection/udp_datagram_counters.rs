//! Counters of received datagrams. quinn-proto does not report ECN bits, and counts a datagram that was split into
//! pieces (`workarounds::version_2_packets`) once for each piece.

use quinn_proto as quinn;

use crate::EcnCounters;

#[derive(Debug, Default)]
pub(super) struct DatagramCounters {
    ecn: EcnCounters,
    /// Received datagrams may be split into pieces for quinn-proto. This is the number of pieces after the first one of
    /// their datagram.
    later_pieces: u64,
}

impl DatagramCounters {
    /// Resets the counter, for a new quinn-proto connection whose counters begin at zero.
    pub fn begin_again(&mut self) {
        self.later_pieces = 0;
    }

    pub fn received(&mut self, codepoint: Option<quinn::EcnCodepoint>) {
        self.ecn.received(codepoint);
    }

    pub fn sent(&mut self, transmit: &quinn::Transmit) {
        self.ecn.sent(transmit);
    }

    /// Counts a piece of a split datagram, unless it is the datagram's first piece.
    pub fn count_piece(&mut self) {
        self.later_pieces += 1;
    }

    pub fn ecn(&self) -> EcnCounters {
        self.ecn
    }

    /// The number of received datagrams, if quinn-proto has counted `pieces`.
    pub fn datagrams_received(&self, pieces: u64) -> u64 {
        pieces.saturating_sub(self.later_pieces)
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::EcnCodepoint;

    use super::*;

    #[test]
    fn a_datagram_in_pieces_counts_once() {
        let mut counters = DatagramCounters::default();
        counters.received(Some(EcnCodepoint::Ce));
        counters.received(None);
        counters.count_piece();
        assert_eq!(counters.datagrams_received(3), 2);
        counters.sent(&quinn::Transmit {
            destination: ([192, 0, 2, 1], 443).into(),
            ecn: Some(EcnCodepoint::Ect0),
            size: 2_500,
            segment_size: Some(1_200),
            src_ip: None,
        });
        let ecn = counters.ecn();
        assert_eq!(
            (ecn.ce_received, ecn.ect0_received, ecn.ect0_sent),
            (1, 0, 3)
        );
        counters.begin_again();
        assert_eq!(counters.datagrams_received(3), 3);
        assert_eq!(counters.ecn().ect0_sent, 3);
    }
}
