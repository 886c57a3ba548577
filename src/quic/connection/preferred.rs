//! The server's preferred address, on the client's side (RFC 9000 section 9.6). It is probed by PATH_CHALLENGEs,
//! each alone in its packet, while all other packets use the current path. The connection migrates only after an
//! answer.
//!
//! A challenge is sent instead of a PING (`seams::path_challenge`), so it waits until the state machine has nothing
//! else to send. If that does not happen by itself, stream data is held back for a while.
//!
//! Not here: if the address may be used at all (`paths::peer_parameters`, `endpoint::migration`).

use std::time::{Duration, Instant};

use quinn_proto as quinn;

use super::{Connection, Phase};
use crate::{
    paths::peer_parameters::PreferredAddress,
    tls::{Probe, random_bytes},
};

/// An address that is being probed.
pub(super) struct Probing {
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

impl Connection {
    /// The server's preferred address, once, when the handshake is confirmed.
    pub(crate) fn take_preferred_address(&mut self) -> Option<PreferredAddress> {
        if self.preferred.is_none() || !self.is_confirmed() || self.phase == Phase::Closed {
            return None;
        }
        self.preferred.take()
    }

    /// Starts to probe the address.
    pub(crate) fn probe_preferred(&mut self, now: Instant, to: PreferredAddress) {
        let challenge = random_bytes();
        self.observer.expect_path_response(challenge);
        self.probing = Some(Probing {
            to,
            challenge,
            challenges_sent: 0,
            stage: Stage::Due,
            until: now + DUE_MAX,
        });
        if let Some(log) = &self.packet_log {
            log.migration("probing_started", to.address);
        }
    }

    /// True if an address is being probed.
    pub(crate) fn is_probing(&self) -> bool {
        self.probing.is_some()
    }

    pub(crate) fn stop_probing(&mut self) {
        if self.probing.take().is_some() {
            self.observer.forget_path();
        }
    }

    /// True if the probed address has answered.
    pub(crate) fn has_answer(&self) -> bool {
        self.probing.is_some() && self.observer.path_answered()
    }

    /// Migrates to the address that has answered. The state machine has switched to the connection ID for it.
    pub(crate) fn move_to_preferred(&mut self, now: Instant) {
        if let Some(probing) = &self.probing {
            let known = self.quinn.remote_address();
            self.path.use_alias(known, probing.to.address);
            self.quinn.path_changed(now);
            self.log_migration("migration_complete");
        }
        self.stop_probing();
    }

    pub(super) fn probe_deadline(&self) -> Option<Instant> {
        self.probing.as_ref().map(|probing| probing.until)
    }

    pub(super) fn handle_probe_timeout(&mut self, now: Instant) {
        let Some(probing) = self.probing.as_mut().filter(|probing| probing.until <= now) else {
            return;
        };
        let (stage, time) = match probing.stage {
            Stage::Due => (Stage::Pressing, PRESSING_MAX),
            Stage::Sent if probing.challenges_sent < CHALLENGES_MAX => (Stage::Due, DUE_MAX),
            // The connection stays at the current address; probing has not disturbed it.
            Stage::Pressing | Stage::Sent => return self.stop_probing(),
        };
        (probing.stage, probing.until) = (stage, now + time);
    }

    /// True if stream data has to wait for a challenge.
    pub(super) fn holds_streams(&self) -> bool {
        let probing = self.probing.as_ref();
        probing.is_some_and(|probing| probing.stage == Stage::Pressing)
    }

    /// A challenge, if one must be sent and the state machine has nothing else to send. Otherwise the state
    /// machine's packet, if it has one.
    pub(super) fn poll_probe(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<quinn::Transmit> {
        let probing = self.probing.as_mut()?;
        if probing.stage == Stage::Sent || self.phase != Phase::Established {
            return None;
        }
        let mut payload = vec![PATH_CHALLENGE];
        payload.extend(probing.challenge);
        self.observer.probe().want(Probe {
            destination: probing.to.id.to_vec(),
            payload,
            length: PROBE_LENGTH,
        });
        self.quinn.ping();
        let transmit = self.quinn.poll_transmit(now, 1, buf);
        let Some(packet) = self.observer.probe().take() else {
            if transmit.is_none() {
                buf.clear();
            }
            return transmit;
        };
        // The PING is dropped unsealed.
        buf.clear();
        buf.extend(packet);
        let pause = (self.quinn.rtt() * 3).clamp(PAUSE_MIN, PAUSE_MAX);
        probing.until = now + pause * (1 << probing.challenges_sent);
        probing.stage = Stage::Sent;
        probing.challenges_sent += 1;
        transmit.map(|transmit| quinn::Transmit {
            destination: probing.to.address,
            size: buf.len(),
            segment_size: None,
            ..transmit
        })
    }

    /// A packet with frames that no client of ours sends, for a connection ID that is not in use.
    #[cfg(test)]
    pub(crate) fn forged_packet(&mut self, now: Instant, probe: Probe) -> Option<Vec<u8>> {
        self.observer.probe().want(probe);
        self.quinn.ping();
        // The state machine's own output is discarded.
        let _ = self.quinn.poll_transmit(now, 1, &mut Vec::new());
        self.observer.probe().take()
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
