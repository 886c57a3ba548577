//! The server's preferred address, on the client's side (RFC 9000 section 9.6). It is probed by PATH_CHALLENGEs,
//! each alone in its packet, while all other packets use the current path. The connection migrates only after an
//! answer.
//!
//! A challenge is sent instead of a PING (`seams::path_challenge`), so it waits until the state machine has nothing
//! else to send. If that does not happen by itself, stream data is held back for a while.
//!
//! Not here: if the address may be used at all (`paths::peer_transport_parameters`, `endpoint::migration`), and the packets
//! (`migration`).

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::{paths::peer_transport_parameters::PreferredAddress, tls::Probe};

/// The offer of a preferred address, and its probing.
pub(super) struct PreferredPath {
    /// False if the host's settings forbid it.
    is_allowed: bool,
    /// For use once the handshake is confirmed.
    offer: Option<PreferredAddress>,
    probing: Option<Probing>,
}

/// An address that is being probed.
struct Probing {
    to: PreferredAddress,
    challenge: [u8; 8],
    challenges_sent: u32,
    stage: Stage,
    /// The end of the stage.
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A challenge must be sent.
    Due,
    /// A challenge must be sent, and streams are held back for it.
    Pressing,
    /// A challenge was sent.
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

    /// The handshake is complete, and the server may have offered an address.
    pub fn offered(&mut self, offer: Option<PreferredAddress>) {
        self.offer = offer.filter(|_| self.is_allowed);
    }

    /// The offer, once.
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

    /// Ends the probing. Returns true if there was any.
    pub fn stop(&mut self) -> bool {
        self.probing.take().is_some()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.probing.as_ref().map(|probing| probing.until)
    }

    /// Handles the end of a stage. Returns true if the address has not answered and probing must stop: the connection
    /// stays at its current address, which probing has not disturbed.
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

    /// True if stream data has to wait for a challenge.
    pub fn holds_streams(&self) -> bool {
        let probing = self.probing.as_ref();
        probing.is_some_and(|probing| probing.stage == Stage::Pressing)
    }

    /// The packet with the next challenge, if one must be sent.
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

    /// A challenge is about to leave. Returns its destination.
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
/// The size that every path has to carry (RFC 9000 section 8.2.1 requires it of challenges).
const PROBE_LENGTH: usize = 1_200;
/// Three challenges, each followed by twice the previous pause: seven pauses in all.
const CHALLENGES_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a challenge waits for a moment in which nothing else is to be sent.
const DUE_MAX: Duration = Duration::from_millis(300);
/// How long streams are then held back for it. Data that the state machine has taken is still sent.
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
    fn an_offer_is_taken_once_and_only_if_the_host_allows_it() {
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
            assert!(path.due().is_none(), "one at a time");
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
    fn streams_wait_for_a_challenge_that_found_no_moment_and_go_on_after_a_second() {
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
