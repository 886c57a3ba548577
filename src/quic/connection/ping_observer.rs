//! Finds out which PING frames the peer has acknowledged.
//!
//! Not here: sending a PING, which quinn-proto does, and access to packets (`packet_observer`).

use std::collections::VecDeque;

use uringcore_wire::frame_iterator::{Ack, Frame, Frames};

/// The pings of one connection that wait for an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct PingObserver {
    pings: Vec<Ping>,
    /// The numbers of sent packets with a PING, the newest last.
    sealed: VecDeque<u64>,
    results: PingResults,
}

/// The results of pings that were not taken yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PingResults {
    /// Identifiers of the application's pings that were acknowledged.
    pub answered: Vec<u64>,
    /// The highest number of key updates after which an acknowledged PING was sent.
    pub keys_answered: Option<u64>,
    /// True if a packet after the PING was acknowledged and the PING was not, so that it is probably lost.
    pub send_again: bool,
}

#[derive(Debug)]
struct Ping {
    purpose: Purpose,
    /// The number of the first packet with a PING that was sealed after the request. `None` until then.
    first: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// A ping that the application has requested, with the application's identifier.
    Application(u64),
    /// A ping that proves that the peer has the keys after this many updates.
    Keys(u64),
}

impl PingObserver {
    /// Adds a ping. The caller makes quinn-proto send a PING frame.
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

    /// Called for each packet before it is encrypted. If the packet has a PING frame and a ping waits for one, the
    /// packet's number is kept, and later compared with the numbers in ACK frames.
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

    /// Reads the ACK frames in a packet of the peer. Returns true if there are results.
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

    /// Answers each ping whose request was made before packet `number` was sealed.
    fn answered(&mut self, number: u64) {
        let results = &mut self.results;
        self.pings.retain(|ping| {
            if ping.first.is_none_or(|first| first > number) {
                return true;
            }
            match ping.purpose {
                Purpose::Application(uid) => results.answered.push(uid),
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

/// The number of unacknowledged packets with a PING that are remembered. There are more only if PINGs keep being
/// lost, and then the newest matter.
const SEALED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(largest: u8, first_range: u8) -> [u8; 5] {
        [0x02, largest, 0, 0, first_range]
    }

    #[test]
    fn only_an_ack_of_its_packet_answers_a_ping() {
        let mut observer = PingObserver::default();
        observer.expect(Purpose::Application(7));
        assert!(!observer.opened(&ack(3, 3)));
        observer.sealing(4, &[0x08, 0, 1, 2]);
        observer.sealing(5, &[0x01, 0, 0]);
        assert!(!observer.opened(&ack(4, 4)));
        assert!(observer.is_waiting());
        assert!(observer.opened(&ack(5, 0)));
        assert_eq!(observer.take_results().answered, [7]);
        assert!(!observer.is_waiting());
        assert!(!observer.opened(&ack(5, 0)), "a ping is answered once");
    }

    #[test]
    fn an_ack_of_older_keys_does_not_prove_newer_ones() {
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
    fn a_lost_ping_is_sent_again_and_does_not_answer_a_later_request() {
        let mut observer = PingObserver::default();
        observer.expect(Purpose::Application(1));
        observer.sealing(10, &[0x01]);
        observer.expect(Purpose::Application(2));
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
    fn only_the_newest_packets_with_pings_are_remembered() {
        let mut observer = PingObserver::default();
        observer.expect(Purpose::Application(1));
        for number in 0..60 {
            observer.sealing(number, &[0x01]);
            assert!(observer.sealed.len() <= SEALED_MAX);
        }
        assert!(!observer.opened(&ack(20, 0)), "forgotten");
        assert!(observer.opened(&ack(59, 0)));
        assert_eq!(observer.take_results().answered, [1]);
    }
}
