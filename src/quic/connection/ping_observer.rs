//! Matches PING frames with the ACKs that cover their packets.
//!
//! Not here: sending a PING, which the state machine does, and the packets (`packet_observer`).

use std::collections::VecDeque;

use uringcore_wire::frames::{Ack, Frame, Frames};

/// The outstanding pings of one connection.
#[derive(Debug, Default)]
pub(super) struct PingObserver {
    pings: Vec<Ping>,
    /// Packet numbers that carried a PING, the newest last.
    sealed: VecDeque<u64>,
    results: PingResults,
}

/// The results of pings since they were last taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PingResults {
    /// Answered pings of the host.
    pub answered: Vec<u64>,
    /// The most key updates that an answered ping has proved.
    pub keys_answered: Option<u64>,
    /// A later packet was acknowledged and the PING was not: it is probably lost.
    pub send_again: bool,
}

#[derive(Debug)]
struct Ping {
    purpose: Purpose,
    /// The first packet with a PING that was sealed after the request.
    first: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// A ping of the host, with its identifier.
    Host(u64),
    /// A proof that the peer has the keys after this many updates.
    Keys(u64),
}

impl PingObserver {
    /// Expects an answer. The caller makes the state machine send a PING.
    pub fn expect(&mut self, purpose: Purpose) {
        self.pings.push(Ping {
            purpose,
            first: None,
        });
    }

    /// True if a ping is outstanding.
    pub fn is_waiting(&self) -> bool {
        !self.pings.is_empty()
    }

    /// Reads a packet before it is sealed.
    pub fn sealing(&mut self, number: u64, payload: &[u8]) {
        if self.pings.is_empty() || !Frames::new(payload).any(|(_, _, frame)| frame == Frame::Ping)
        {
            return;
        }
        for ping in self.pings.iter_mut().filter(|ping| ping.first.is_none()) {
            ping.first = Some(number);
        }
        if self.sealed.len() == SEALED_MAX {
            self.sealed.pop_front();
        }
        self.sealed.push_back(number);
    }

    /// Reads a packet of the peer. Returns true if there are results.
    pub fn opened(&mut self, payload: &[u8]) -> bool {
        if self.sealed.is_empty() {
            return false;
        }
        let mut has_results = false;
        for (_, _, frame) in Frames::new(payload) {
            if let Frame::Ack(ack) = frame {
                has_results |= self.acknowledged(&ack);
            }
        }
        has_results
    }

    fn acknowledged(&mut self, ack: &Ack<'_>) -> bool {
        let mut sealed = self.sealed.iter().rev().copied();
        if let Some(number) = sealed.find(|&number| ack.covers(number)) {
            self.answered(number);
            return true;
        }
        let is_newer = |&newest: &u64| ack.largest > newest;
        let is_lost = self.sealed.back().is_some_and(is_newer);
        if is_lost {
            self.results.send_again = self.is_waiting();
        }
        is_lost
    }

    /// A PING in packet `number` answers every request made before that packet was sealed.
    fn answered(&mut self, number: u64) {
        let results = &mut self.results;
        self.pings.retain(|ping| {
            if ping.first.is_none_or(|first| first > number) {
                return true;
            }
            match ping.purpose {
                Purpose::Host(uid) => results.answered.push(uid),
                Purpose::Keys(changes) => {
                    results.keys_answered = Some(changes).max(results.keys_answered);
                }
            }
            false
        });
        self.sealed.retain(|&sealed| sealed > number);
    }

    pub fn take_results(&mut self) -> PingResults {
        if self.pings.is_empty() {
            self.sealed.clear();
        }
        std::mem::take(&mut self.results)
    }
}

/// How many unanswered PING packets are remembered. More are only sent when PINGs keep being lost, and then the
/// newest matter.
const SEALED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(largest: u8, first_range: u8) -> [u8; 5] {
        [0x02, largest, 0, 0, first_range]
    }

    #[test]
    fn ping_is_answered_by_an_ack_of_its_packet_only() {
        let mut observer = PingObserver::default();
        observer.expect(Purpose::Host(7));
        assert!(!observer.opened(&ack(3, 3)));
        observer.sealing(4, &[0x08, 0, 1, 2]);
        observer.sealing(5, &[0x01, 0, 0]);
        assert!(!observer.opened(&ack(4, 4)));
        assert!(observer.is_waiting());
        assert!(observer.opened(&ack(5, 0)));
        assert_eq!(observer.take_results().answered, [7]);
        assert!(!observer.is_waiting());
        assert!(!observer.opened(&ack(5, 0)), "answered once");
    }

    #[test]
    fn an_answer_about_older_keys_says_nothing_of_newer_ones() {
        let mut observer = PingObserver::default();
        observer.expect(Purpose::Keys(1));
        observer.sealing(4, &[0x01]);
        observer.expect(Purpose::Keys(2));
        observer.sealing(9, &[0x01]);
        assert!(observer.opened(&ack(4, 0)));
        assert_eq!(observer.take_results().keys_answered, Some(1));
        assert!(observer.opened(&ack(9, 0)));
        assert_eq!(observer.take_results().keys_answered, Some(2));
    }

    #[test]
    fn lost_ping_is_sent_again_and_a_younger_request_waits_for_its_own_packet() {
        let mut observer = PingObserver::default();
        observer.expect(Purpose::Host(1));
        observer.sealing(10, &[0x01]);
        observer.expect(Purpose::Host(2));
        assert!(observer.opened(&ack(11, 0)));
        let lost = PingResults {
            send_again: true,
            ..PingResults::default()
        };
        assert_eq!(observer.take_results(), lost);
        observer.sealing(12, &[0x01]);
        assert!(observer.opened(&ack(10, 0)));
        assert_eq!(observer.take_results().answered, [1]);
        assert!(observer.opened(&ack(12, 0)));
        assert_eq!(observer.take_results().answered, [2]);
    }

    #[test]
    fn the_newest_packets_with_pings_are_remembered() {
        let mut observer = PingObserver::default();
        observer.expect(Purpose::Host(1));
        for number in 0..60 {
            observer.sealing(number, &[0x01]);
            assert!(observer.sealed.len() <= SEALED_MAX);
        }
        assert!(!observer.opened(&ack(20, 0)), "forgotten");
        assert!(observer.opened(&ack(59, 0)));
        assert_eq!(observer.take_results().answered, [1]);
    }
}
