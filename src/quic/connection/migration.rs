//! Path changes of a connection (RFC 9000 section 9): of this side, to another socket or to the server's preferred
//! address, and of the peer.
//!
//! quinn-proto validates the peer's migrations. This side's migrations only notify it that the local address has
//! changed: it then uses another connection ID and resets its measurements. Packets leave on the new path at once,
//! which a client may do if the server's address is unchanged (section 9.2). If no authentic packet arrives on the
//! new path in time, the connection returns to the old one.
//!
//! Not here: the datagrams that show a change of the peer's address (`receive`).

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto as quinn;

use super::Connection;
#[cfg(test)]
use crate::tls::Probe;
use crate::{
    Event, earliest,
    error::MigrationError,
    paths::{path::Local, peer_transport_parameters::PreferredAddress},
    tls::random_bytes,
};

impl Connection {
    /// Returns an error if the application may not migrate this client to another socket now.
    pub(crate) fn check_migration(&self) -> Result<(), MigrationError> {
        if self.phase.is_closed() {
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
        if self.phase.is_closed() {
            return None;
        }
        let of_paths = earliest(self.path.deadline(), self.preferred.deadline());
        earliest(of_paths, self.addresses.deadline())
    }

    /// Returns to the old path if nothing has arrived on the new one in time.
    pub(crate) fn handle_path_timeout(&mut self, now: Instant) {
        if self.phase.is_closed() {
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
        if !self.preferred.has_offer() || !self.is_confirmed() || self.phase.is_closed() {
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
