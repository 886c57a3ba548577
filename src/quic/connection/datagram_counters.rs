//! Datagrams as the host counts them: the state machine does not report ECN bits, and counts each piece of a
//! datagram.

use quinn_proto as quinn;

use crate::EcnCounters;

#[derive(Debug, Default)]
pub(super) struct DatagramCounters {
    ecn: EcnCounters,
    /// Datagrams that were passed to the state machine in more than one piece.
    later_pieces: u64,
}

impl DatagramCounters {
    /// Another connection of the state machine, with counters of its own, replaces the first.
    pub fn begin_again(&mut self) {
        self.later_pieces = 0;
    }

    pub fn received(&mut self, codepoint: Option<quinn::EcnCodepoint>) {
        self.ecn.received(codepoint);
    }

    pub fn sent(&mut self, transmit: &quinn::Transmit) {
        self.ecn.sent(transmit);
    }

    /// Another piece of the last datagram is about to be handled.
    pub fn count_piece(&mut self) {
        self.later_pieces += 1;
    }

    pub fn ecn(&self) -> EcnCounters {
        self.ecn
    }

    /// The number of received datagrams, of which the state machine has counted `pieces`.
    pub fn datagrams_received(&self, pieces: u64) -> u64 {
        pieces.saturating_sub(self.later_pieces)
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::EcnCodepoint;

    use super::*;

    #[test]
    fn pieces_of_a_datagram_count_once_and_each_datagram_of_a_batch_counts() {
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
