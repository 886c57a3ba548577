//! Path changes of a connection (RFC 9000 section 9): of this side, to another socket or to the server's preferred
//! address, and of the peer.
//!
//! quinn-proto validates the peer's migrations. This side's migrations only notify it that the local address has
//! changed: it then uses another connection ID and resets its measurements. Packets leave on the new path at once,
//! which a client may do if the server's address is unchanged (section 9.2). If no authentic packet arrives on the
//! new path in time, the connection returns to the old one.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto::{self as quinn, EcnCodepoint};

use super::Connection;
#[cfg(test)]
use crate::tls::Probe;
use crate::{
    Event, earliest,
    error::MigrationError,
    paths::{path::Local, peer_transport_parameters::PreferredAddress},
    tls::random_bytes,
    workarounds::authentic_datagram_detection::frames_received,
};

/// The time at which a datagram arrived, its addresses, its ECN bits and its length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub now: Instant,
    pub remote: SocketAddr,
    pub local: Local,
    pub ecn: Option<EcnCodepoint>,
    /// The length of the UDP payload. Zero for all pieces of a split datagram but the first.
    pub length: usize,
}

/// The result of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receipt {
    Taken,
    /// The datagram has proved the peer's new address.
    AddressValidated,
    /// The datagram was dropped, because it came from a new address and the limit of migrations is reached.
    Dropped,
}

impl Connection {
    /// Passes a datagram to quinn-proto, and handles a change of the peer's address.
    pub(crate) fn receive(&mut self, event: quinn::ConnectionEvent, arrived: Arrived) -> Receipt {
        let Arrived { remote, local, .. } = arrived;
        let old = self.quinn.remote_address();
        // On a client, the peer's address never changes for quinn-proto.
        let is_counted = !self.is_client() && (remote != old || self.addresses.are_limited());
        if is_counted && !self.addresses.allows_migration(arrived.now, remote, old) {
            // A server must probe each new address (RFC 9000 section 9.3), so the number of migrations is limited.
            self.log_received(true);
            return Receipt::Dropped;
        }
        let challenges = is_counted.then(|| self.challenges_received());
        self.counters.received(arrived.ecn);
        let frames = self
            .path
            .needs_proof(local, remote)
            .then(|| frames_received(&self.quinn));
        let is_stranger = self.log.is_enabled() && self.is_stranger(remote);
        self.quinn.handle_event(event);
        if self.observer.uses_resets() {
            // Resets in this datagram are processed before the next datagram is opened.
            self.pump();
        }
        self.log_received(is_stranger);
        let has_moved = is_counted && self.quinn.remote_address() != old;
        if has_moved {
            self.path.peer_moved(old, local);
            self.log_migration("migration_started");
        } else if frames.is_some_and(|before| frames_received(&self.quinn) > before) {
            if !self.is_client() && remote != old {
                self.path.probed_from(remote, local);
            } else if self.path.proved(local) && !self.lifecycle.is_closed() {
                // A connection that is closed still receives packets, but the application gets no more events of it.
                self.log_migration("migration_complete");
                self.events
                    .push(Event::MigrationFinished { succeeded: true });
            }
        }
        let Some(challenges) = challenges else {
            return Receipt::Taken;
        };
        let before = self.addresses.validated();
        self.note_address(arrived, has_moved, challenges);
        match self.addresses.validated() == before {
            true => Receipt::Taken,
            false => Receipt::AddressValidated,
        }
    }

    /// Called before quinn-proto gets another piece of the datagram that was received last.
    pub(crate) fn count_piece(&mut self) {
        self.counters.count_piece();
    }

    /// Returns an error if the application may not migrate this client to another socket now.
    pub(crate) fn check_migration(&self) -> Result<(), MigrationError> {
        if self.lifecycle.is_closed() {
            return Err(MigrationError::Closed);
        }
        if !self.is_client() {
            return Err(MigrationError::Server);
        }
        if !self.is_confirmed() {
            return Err(MigrationError::NotConfirmed);
        }
        if self.negotiated.forbids_migration() && self.path.alias().is_none() {
            return Err(MigrationError::Forbidden);
        }
        match self.path.is_on_trial() {
            true => Err(MigrationError::UnderWay),
            false => Ok(()),
        }
    }

    /// Sends and expects packets on `socket` from now on. If nothing arrives there before `timeout`, the old socket is
    /// used again.
    pub(crate) fn try_socket(&mut self, now: Instant, socket: u32, timeout: Duration) {
        self.stop_probing();
        self.path.try_socket(socket, now + timeout);
        self.log_migration("migration_started");
        self.quinn.path_changed(now);
    }

    /// Sends to quinn-proto's address of the peer again, and stops probing another one.
    pub(crate) fn leave_alias(&mut self, now: Instant) {
        self.stop_probing();
        if self.path.alias().is_some() {
            self.path.leave_alias();
            self.quinn.local_address_changed();
            self.quinn.path_changed(now);
        }
    }

    /// The time at which a path that is being tried is given up, or at which a challenge must be repeated.
    pub(crate) fn path_deadline(&self) -> Option<Instant> {
        if self.lifecycle.is_closed() {
            return None;
        }
        let of_paths = earliest(self.path.deadline(), self.preferred.deadline());
        earliest(of_paths, self.addresses.deadline())
    }

    /// Returns to the old path if nothing has arrived on the new one in time.
    pub(crate) fn handle_path_timeout(&mut self, now: Instant) {
        if self.lifecycle.is_closed() {
            return;
        }
        self.addresses.handle_timeout(now);
        if self.preferred.handle_timeout(now) {
            self.stop_probing();
        }
        if self.path.give_up(now) {
            self.quinn.local_address_changed();
            self.quinn.path_changed(now);
            self.log_migration("migration_abandoned");
            self.events
                .push(Event::MigrationFinished { succeeded: false });
        }
    }

    /// Handles a timer. quinn-proto may abandon the peer's new address in this call.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.log.set_time(now);
        self.handle_path_timeout(now);
        let before = self.quinn.remote_address();
        self.quinn.handle_timeout(now);
        let after = self.quinn.remote_address();
        if after != before {
            self.path.peer_returned(after);
            self.log_migration("migration_abandoned");
            self.address_abandoned();
        }
    }

    /// Logs that a received datagram has been handled, and why it was dropped if its address is unknown.
    fn log_received(&self, is_stranger: bool) {
        let reason = is_stranger.then(|| match self.is_client() {
            true => "unknown_server_address",
            false => "unknown_client_address",
        });
        self.log.received(&self.quinn, reason);
    }

    /// True if quinn-proto accepts no packets from `remote`: on a client from no new address, on a server from none
    /// before the handshake is complete (RFC 9000 section 9).
    fn is_stranger(&self, remote: SocketAddr) -> bool {
        let known = self.quinn.remote_address();
        let is_known = remote == known || remote == self.path.remote(known);
        !is_known && (self.is_client() || self.quinn.is_handshaking())
    }

    pub(super) fn log_migration(&self, state: &'static str) {
        self.log.migration(state, self.remote_addr());
    }

    /// The remote and the local address for datagrams that quinn-proto sends to `remote`.
    pub(crate) fn route(&self, remote: SocketAddr) -> (SocketAddr, Local) {
        (self.path.remote(remote), self.path.local(remote))
    }

    /// True if packets go to another address of the peer than quinn-proto's, or such an address is being probed.
    pub(crate) fn needs_alias(&self) -> bool {
        self.path.has_alias() || self.is_probing()
    }

    /// The number of the application's socket that the connection uses.
    pub fn socket(&self) -> u32 {
        self.path.socket()
    }

    /// True if the handshake is confirmed (RFC 9001 section 4.1.2).
    pub fn is_confirmed(&self) -> bool {
        let is_client = self.is_client();
        self.is_established() && (!is_client || self.quinn.stats().frame_rx.handshake_done > 0)
    }

    /// The server's preferred address, once, after the handshake is confirmed.
    pub(crate) fn take_preferred_address(&mut self) -> Option<PreferredAddress> {
        if !self.preferred.has_offer() || !self.is_confirmed() || self.lifecycle.is_closed() {
            return None;
        }
        self.preferred.take_offer()
    }

    /// Starts to probe the server's preferred address.
    pub(crate) fn probe_preferred(&mut self, now: Instant, to: PreferredAddress) {
        let challenge = random_bytes();
        self.observer.expect_path_response(challenge);
        self.preferred.probe(now, to, challenge);
        self.log.migration("probing_started", to.address);
    }

    /// True if an address is being probed.
    pub(crate) fn is_probing(&self) -> bool {
        self.preferred.probed_address().is_some()
    }

    pub(crate) fn stop_probing(&mut self) {
        if self.preferred.stop() {
            self.observer.forget_path();
        }
    }

    /// True if the probed address has answered.
    pub(crate) fn has_answer(&self) -> bool {
        self.is_probing() && self.observer.path_answered()
    }

    /// Migrates to the address that has answered. quinn-proto uses the connection ID for that address already.
    pub(crate) fn move_to_preferred(&mut self, now: Instant) {
        if let Some(address) = self.preferred.probed_address() {
            self.path.use_alias(self.quinn.remote_address(), address);
            self.quinn.path_changed(now);
            self.log_migration("migration_complete");
        }
        self.stop_probing();
    }

    /// Returns a challenge to the preferred address, if one is due and quinn-proto has nothing else to send. Otherwise
    /// returns quinn-proto's packet, if there is one.
    pub(super) fn poll_probe(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<quinn::Transmit> {
        if !self.is_probing() || !self.is_established() {
            return None;
        }
        self.observer.probe().want(self.preferred.due()?);
        self.quinn.ping();
        let transmit = self.quinn.poll_transmit(now, 1, buf);
        let Some(packet) = self.observer.probe().take() else {
            if transmit.is_none() {
                buf.clear();
            }
            return transmit;
        };
        // The buffer contains quinn-proto's PING, which was not sealed. The challenge replaces it.
        buf.clear();
        buf.extend(packet);
        let destination = self.preferred.sent(now, self.quinn.rtt())?;
        transmit.map(|transmit| quinn::Transmit {
            destination,
            size: buf.len(),
            segment_size: None,
            ..transmit
        })
    }

    /// A packet that no client of this crate sends: it has frames of the test's choice and an unused connection ID.
    #[cfg(test)]
    pub(crate) fn forged_packet(&mut self, now: Instant, probe: Probe) -> Option<Vec<u8>> {
        self.observer.probe().want(probe);
        self.quinn.ping();
        // quinn-proto makes a packet here, which is discarded. The probe is sent in its place.
        let _ = self.quinn.poll_transmit(now, 1, &mut Vec::new());
        self.observer.probe().take()
    }
}
