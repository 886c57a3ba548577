//! Changes of the path under a connection (RFC 9000 section 9): ours to another socket, ours to the
//! server's preferred address, and the peer's.
//!
//! The state machine validates the peer's moves. Of ours it knows nothing but that something has
//! changed: it uses another connection ID and begins to measure anew. We send on the new path and
//! go back to the old one if nothing authentic is heard there in time.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto::{self as quinn, EcnCodepoint};

use super::{Connection, Phase};
use crate::quic::{
    Event,
    error::MigrationError,
    path::{Local, TrialKind, frames_received},
};

impl Connection {
    /// Takes a datagram that arrived at `local` from `remote`.
    pub(in crate::quic) fn receive(
        &mut self,
        event: quinn::ConnectionEvent,
        local: Local,
        remote: SocketAddr,
        ecn: Option<EcnCodepoint>,
    ) {
        self.ecn.received(ecn);
        let old = self.quinn.remote_address();
        let heard = self
            .path
            .needs_proof(local, remote)
            .then(|| frames_received(&self.quinn));
        self.quinn.handle_event(event);
        if self.quinn.remote_address() != old {
            self.path.peer_moved(old, local);
        } else if heard.is_some_and(|before| frames_received(&self.quinn) > before)
            && self.path.proved(local) == Some(TrialKind::Migration)
            // A closed connection still hears its peer, and has nothing more to say to its host.
            && self.phase != Phase::Closed
        {
            self.push(Event::MigrationFinished { succeeded: true });
        }
    }

    /// Whether the host may have this client move to another socket now.
    pub(in crate::quic) fn check_migration(&self) -> Result<(), MigrationError> {
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
        match self.path.trial() {
            Some(TrialKind::Migration) => Err(MigrationError::UnderWay),
            Some(TrialKind::PreferredAddress) | None => Ok(()),
        }
    }

    /// Sends and expects packets at `socket` from now on, until `timeout` or for good.
    pub(in crate::quic) fn try_socket(&mut self, now: Instant, socket: u32, timeout: Duration) {
        self.path.try_socket(socket, now + timeout);
        self.quinn.path_changed(now);
    }

    /// The server's preferred address, once, when the time for it has come.
    pub(in crate::quic) fn take_preferred_address(&mut self) -> Option<SocketAddr> {
        if self.preferred.is_none() || !self.is_confirmed() || self.phase == Phase::Closed {
            return None;
        }
        self.preferred.take()
    }

    pub(in crate::quic) fn try_preferred_address(&mut self, now: Instant, address: SocketAddr) {
        // Three probe time-outs, of a path that is probably much like the one there is.
        let timeout = (self.quinn.rtt() * 9).clamp(PREFERRED_TRIAL_MIN, PREFERRED_TRIAL_MAX);
        let known = self.quinn.remote_address();
        self.path.try_alias(known, address, now + timeout);
        self.quinn.path_changed(now);
    }

    /// Sends to the address that the state machine knows again.
    pub(in crate::quic) fn leave_alias(&mut self, now: Instant) {
        self.path.leave_alias();
        self.quinn.local_address_changed();
        self.quinn.path_changed(now);
    }

    /// When the path that is being tried has had its time.
    pub(in crate::quic) fn path_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Closed => None,
            Phase::Handshake | Phase::Established => self.path.deadline(),
        }
    }

    /// Goes back to the old path when nothing was heard on the new one.
    pub(in crate::quic) fn handle_path_timeout(&mut self, now: Instant) {
        if self.phase == Phase::Closed {
            return;
        }
        let Some(kind) = self.path.give_up(now) else {
            return;
        };
        self.quinn.local_address_changed();
        self.quinn.path_changed(now);
        if kind == TrialKind::Migration {
            self.push(Event::MigrationFinished { succeeded: false });
        }
    }

    /// Time has passed, and the state machine may have given the peer's new address up.
    pub(in crate::quic) fn handle_timeout(&mut self, now: Instant) {
        self.handle_path_timeout(now);
        let before = self.quinn.remote_address();
        self.quinn.handle_timeout(now);
        let after = self.quinn.remote_address();
        if after != before {
            self.path.peer_returned(after);
        }
    }

    /// Where a batch goes and from where.
    pub(in crate::quic) fn route(&self, remote: SocketAddr) -> (SocketAddr, Local) {
        (self.path.remote(remote), self.path.local(remote))
    }

    /// The address that the state machine knows, and the one that stands for it.
    pub(in crate::quic) fn alias(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.path.alias()
    }

    /// The number of the host's socket that the connection uses.
    pub fn socket(&self) -> u32 {
        self.path.socket()
    }

    /// Whether both sides know that the handshake is complete (RFC 9001 section 4.1.2).
    pub fn is_confirmed(&self) -> bool {
        let is_client = self.is_client();
        self.phase == Phase::Established
            && (!is_client || self.quinn.stats().frame_rx.handshake_done > 0)
    }
}

const PREFERRED_TRIAL_MIN: Duration = Duration::from_millis(500);
const PREFERRED_TRIAL_MAX: Duration = Duration::from_secs(3);
