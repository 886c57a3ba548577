//! Passes received datagrams and expired timers to quinn-proto. Both can change the peer's address: a datagram from a
//! new address, and a timer when the validation of that address fails.
//!
//! Not here: sending (`transmit`), and this side's own change of address (`migration`).

use std::{net::SocketAddr, time::Instant};

use quinn_proto::{self as quinn, EcnCodepoint};

use super::Connection;
use crate::{
    Event, paths::path::Local, workarounds::authentic_datagram_detection::frames_received,
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
            } else if self.path.proved(local) && !self.phase.is_closed() {
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
}
