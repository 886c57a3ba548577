//! Path changes of a connection (RFC 9000 section 9): ours to another socket, and the peer's. `preferred` has our
//! migration to the server's preferred address.
//!
//! The state machine validates the peer's migrations. For ours it only learns that the local address has changed:
//! it uses another connection ID and resets its measurements. Packets are sent on the new path, which a client may
//! do if its server's address has not changed (section 9.2). If nothing authentic arrives on it in time, the
//! connection returns to the old path.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto::{self as quinn, EcnCodepoint};

use super::{Connection, Phase};
use crate::seams::authentic::frames_received;
use crate::{Event, error::MigrationError, paths::path::Local};

/// The circumstances of a received datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub now: Instant,
    pub remote: SocketAddr,
    pub local: Local,
    pub ecn: Option<EcnCodepoint>,
    /// The length of its UDP payload, with the first of the pieces that it was cut into.
    pub length: usize,
}

/// The result of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receipt {
    Taken,
    /// The datagram has proved the peer's new address.
    AddressValidated,
    /// The datagram came from a new address, and the limit of migrations was reached.
    Dropped,
}

impl Connection {
    /// Handles a datagram.
    pub(crate) fn receive(&mut self, event: quinn::ConnectionEvent, arrived: Arrived) -> Receipt {
        let Arrived { remote, local, .. } = arrived;
        let old = self.quinn.remote_address();
        // For the state machine of a client, the peer's address never changes.
        let is_counted = !self.is_client() && (remote != old || self.addresses.are_limited());
        if is_counted && !self.addresses.may_move(arrived.now, remote, old) {
            // RFC 9000 section 9.3 requires probing after each migration, so their number is limited.
            self.log_received(true);
            return Receipt::Dropped;
        }
        let challenges = is_counted.then(|| self.challenges_received());
        self.ecn.received(arrived.ecn);
        let heard = self
            .path
            .needs_proof(local, remote)
            .then(|| frames_received(&self.quinn));
        let is_stranger = self.packet_log.is_some() && self.is_stranger(remote);
        self.quinn.handle_event(event);
        if self.observer.resets().is_used() {
            // Resets in one datagram are processed before the next is opened.
            self.pump();
        }
        self.log_received(is_stranger);
        let has_moved = is_counted && self.quinn.remote_address() != old;
        if has_moved {
            self.path.peer_moved(old, local);
            self.log_migration("migration_started");
        } else if heard.is_some_and(|before| frames_received(&self.quinn) > before) {
            if !self.is_client() && remote != old {
                self.path.asked_from(remote, local);
            } else if self.path.proved(local) && self.phase != Phase::Closed {
                // A closed connection still receives packets, but reports nothing more to its host.
                self.log_migration("migration_complete");
                self.push(Event::MigrationFinished { succeeded: true });
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

    /// Checks if the host may migrate this client to another socket now.
    pub(crate) fn check_migration(&self) -> Result<(), MigrationError> {
        if self.phase == Phase::Closed {
            return Err(MigrationError::Closed);
        }
        if !self.is_client() {
            return Err(MigrationError::Server);
        }
        if !self.is_confirmed() {
            return Err(MigrationError::NotConfirmed);
        }
        if self.peer_parameters.disable_active_migration && self.path.alias().is_none() {
            return Err(MigrationError::Forbidden);
        }
        match self.path.is_on_trial() {
            true => Err(MigrationError::UnderWay),
            false => Ok(()),
        }
    }

    /// Sends and expects packets on `socket` from now on, until `timeout` or for good.
    pub(crate) fn try_socket(&mut self, now: Instant, socket: u32, timeout: Duration) {
        self.stop_probing();
        self.path.try_socket(socket, now + timeout);
        self.log_migration("migration_started");
        self.quinn.path_changed(now);
    }

    /// Returns to the address that the state machine uses, if packets went to another, and stops probing.
    pub(crate) fn leave_alias(&mut self, now: Instant) {
        self.stop_probing();
        if self.path.alias().is_some() {
            self.path.leave_alias();
            self.quinn.local_address_changed();
            self.quinn.path_changed(now);
        }
    }

    /// The deadline of the path that is being tried.
    pub(crate) fn path_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Closed => None,
            Phase::Handshake | Phase::Established => {
                let of_challenge = self.addresses.deadline();
                let deadlines = [self.path.deadline(), self.probe_deadline(), of_challenge];
                deadlines.into_iter().flatten().min()
            }
        }
    }

    /// Returns to the old path if nothing arrived on the new one.
    pub(crate) fn handle_path_timeout(&mut self, now: Instant) {
        if self.phase == Phase::Closed {
            return;
        }
        self.addresses.handle_timeout(now);
        self.handle_probe_timeout(now);
        if self.path.give_up(now) {
            self.quinn.local_address_changed();
            self.quinn.path_changed(now);
            self.log_migration("migration_abandoned");
            self.push(Event::MigrationFinished { succeeded: false });
        }
    }

    /// Handles a timer: the state machine may have abandoned the peer's new address.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.log_time(now);
        self.handle_path_timeout(now);
        let before = self.quinn.remote_address();
        self.quinn.handle_timeout(now);
        let after = self.quinn.remote_address();
        if after != before {
            self.path.peer_returned(after);
            self.log_migration("migration_abandoned");
            self.gave_up_address();
        }
    }

    /// The remote and local address of a batch.
    pub(crate) fn route(&self, remote: SocketAddr) -> (SocketAddr, Local) {
        (self.path.remote(remote), self.path.local(remote))
    }

    /// True if packets go, or may go, to another address than the state machine's.
    pub(crate) fn needs_alias(&self) -> bool {
        self.path.has_alias() || self.is_probing()
    }

    /// The number of the host's socket that the connection uses.
    pub fn socket(&self) -> u32 {
        self.path.socket()
    }

    /// True if the handshake is confirmed (RFC 9001 section 4.1.2).
    pub fn is_confirmed(&self) -> bool {
        let is_client = self.is_client();
        self.phase == Phase::Established
            && (!is_client || self.quinn.stats().frame_rx.handshake_done > 0)
    }
}
