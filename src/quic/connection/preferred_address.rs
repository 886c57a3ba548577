//! The server's preferred address, on a client (RFC 9000 section 9.6). The client probes it by PATH_CHALLENGE frames,
//! each alone in its packet, and sends all other packets on the current path. It migrates after an answer.
//!
//! A challenge replaces a PING of quinn-proto (`workarounds::path_challenge`), so it waits until quinn-proto has
//! nothing else to send. If that takes too long, stream data is held back until the challenge has left.
//!
//! Not here: the decision if the address may be used (`paths::peer_transport_parameters`, `endpoint::migration`), and
//! the packets (`migration`).

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::{paths::peer_transport_parameters::PreferredAddress, tls::Probe};

/// The preferred address that a server has offered, and the probing of it.
pub(super) struct PreferredPath {
    /// False if the settings forbid that the client uses a preferred address.
    is_allowed: bool,
    /// The offered address, until probing begins. Probing waits until the handshake is confirmed.
    offer: Option<PreferredAddress>,
    probing: Option<Probing>,
}

/// An address that is being probed.
struct Probing {
    to: PreferredAddress,
    challenge: [u8; 8],
    challenges_sent: u32,
    stage: Stage,
    /// The time at which the present stage ends.
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A challenge waits until quinn-proto has nothing else to send.
    Due,
    /// A challenge waits for a packet. Stream data is held back until the challenge was sent.
    Pressing,
    /// A challenge was sent, and its answer has not arrived.
    Sent,
}

impl PreferredPath {
    pub fn new(is_allowed: bool) -> Self {
        Self {
            is_allowed,
            offer: None,
            probing: None,
        }
    }

    /// Stores the server's offer, when the handshake is complete.
    pub fn offered(&mut self, offer: Option<PreferredAddress>) {
        self.offer = offer.filter(|_| self.is_allowed);
    }

    /// Returns the address that the server has offered. `None` from the second call on.
    pub fn take_offer(&mut self) -> Option<PreferredAddress> {
        self.offer.take()
    }

    pub fn has_offer(&self) -> bool {
        self.offer.is_some()
    }

    /// Starts to probe the address.
    pub fn probe(&mut self, now: Instant, to: PreferredAddress, challenge: [u8; 8]) {
        self.probing = Some(Probing {
            to,
            challenge,
            challenges_sent: 0,
            stage: Stage::Due,
            until: now + DUE_MAX,
        });
    }

    /// The address that is being probed.
    pub fn probed_address(&self) -> Option<SocketAddr> {
        self.probing.as_ref().map(|probing| probing.to.address)
    }

    /// Ends the probing. Returns true if an address was being probed.
    pub fn stop(&mut self) -> bool {
        self.probing.take().is_some()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.probing.as_ref().map(|probing| probing.until)
    }

    /// Handles the end of a stage. Returns true if the address has not answered and probing must stop. The connection
    /// then stays at its current address.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        let Some(probing) = self.probing.as_mut().filter(|probing| probing.until <= now) else {
            return false;
        };
        let (stage, time) = match probing.stage {
            Stage::Due => (Stage::Pressing, PRESSING_MAX),
            Stage::Sent if probing.challenges_sent < CHALLENGES_MAX => (Stage::Due, DUE_MAX),
            Stage::Pressing | Stage::Sent => return true,
        };
        (probing.stage, probing.until) = (stage, now + time);
        false
    }

    /// True if stream data must be held back until a challenge was sent.
    pub fn holds_streams(&self) -> bool {
        let probing = self.probing.as_ref();
        probing.is_some_and(|probing| probing.stage == Stage::Pressing)
    }

    /// Returns the packet with the next challenge. `None` if it is not time for one.
    pub fn due(&self) -> Option<Probe> {
        let probing = self.probing.as_ref();
        let probing = probing.filter(|probing| probing.stage != Stage::Sent)?;
        let mut payload = vec![PATH_CHALLENGE];
        payload.extend(probing.challenge);
        Some(Probe {
            destination: probing.to.id.to_vec(),
            payload,
            length: PROBE_LENGTH,
        })
    }

    /// Called when a packet for a challenge is about to be sent. Returns the address to which the challenge goes.
    pub fn sent(&mut self, now: Instant, rtt: Duration) -> Option<SocketAddr> {
        let probing = self.probing.as_mut()?;
        let pause = (rtt * 3).clamp(PAUSE_MIN, PAUSE_MAX);
        probing.until = now + pause * (1 << probing.challenges_sent);
        probing.stage = Stage::Sent;
        probing.challenges_sent += 1;
        Some(probing.to.address)
    }
}

const PATH_CHALLENGE: u8 = 0x1a;
/// The size of a challenge's datagram, which every path must carry (RFC 9000 section 8.2.1).
const PROBE_LENGTH: usize = 1_200;
/// The number of challenges. The pause after each challenge is twice the pause before it, so all three together last
/// seven times the first pause.
const CHALLENGES_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a challenge waits for a moment in which quinn-proto has nothing else to send.
const DUE_MAX: Duration = Duration::from_millis(300);
/// The time after [`DUE_MAX`] for which stream data is held back, so that the challenge can be sent. Data that
/// quinn-proto has taken is still sent.
const PRESSING_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use quinn_proto::ConnectionId;

    use super::*;

    fn address() -> PreferredAddress {
        PreferredAddress {
            address: SocketAddr::from(([192, 0, 2, 2], 443)),
            id: ConnectionId::new(&[5; 8]),
        }
    }

    #[test]
    fn a_preferred_address_is_taken_once_and_only_if_settings_allow_it() {
        let mut path = PreferredPath::new(true);
        path.offered(Some(address()));
        assert!(path.has_offer());
        assert_eq!(path.take_offer(), Some(address()));
        assert_eq!(path.take_offer(), None);
        let mut forbidden = PreferredPath::new(false);
        forbidden.offered(Some(address()));
        assert!(!forbidden.has_offer());
    }

    #[test]
    fn three_challenges_are_sent_with_growing_pauses() {
        let (mut now, rtt) = (Instant::now(), Duration::from_millis(100));
        let mut path = PreferredPath::new(true);
        assert!(path.due().is_none() && path.deadline().is_none());
        path.probe(now, address(), [7; 8]);
        for pause in [300, 600, 1_200] {
            assert_eq!(path.due().unwrap().payload[1..], [7; 8]);
            assert_eq!(path.sent(now, rtt), Some(address().address));
            assert!(path.due().is_none(), "a challenge is due once");
            let end = now + Duration::from_millis(pause);
            assert_eq!(path.deadline(), Some(end));
            assert!(!path.handle_timeout(end - Duration::from_millis(1)));
            now = end;
            if pause < 1_200 {
                assert!(!path.handle_timeout(now));
            }
        }
        assert!(path.handle_timeout(now), "no answer");
        assert!(path.stop() && !path.stop());
        assert_eq!((path.probed_address(), path.deadline()), (None, None));
    }

    #[test]
    fn streams_are_held_back_for_an_overdue_challenge_for_one_second() {
        let now = Instant::now();
        let mut path = PreferredPath::new(true);
        path.probe(now, address(), [7; 8]);
        assert!(!path.holds_streams());
        assert!(!path.handle_timeout(now + DUE_MAX));
        assert!(path.holds_streams() && path.due().is_some());
        assert!(path.handle_timeout(now + DUE_MAX + PRESSING_MAX));
        path.stop();
        assert!(!path.holds_streams());
    }
}
