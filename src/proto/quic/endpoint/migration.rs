//! Clients that change their path (RFC 9000 section 9): what concerns the whole endpoint.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{ConnectionKey, Endpoint};
use crate::quic::error::MigrationError;

/// Addresses of servers that stand for others, while connections use them.
pub(super) type Aliases = HashMap<SocketAddr, SocketAddr>;

impl Endpoint {
    /// Has a client's connection use another of the host's sockets. `MigrationFinished` follows:
    /// when the peer was heard there, or after `timeout`, when the connection is back on its old
    /// socket.
    pub fn migrate(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        socket: u32,
        timeout: Duration,
    ) -> Result<(), MigrationError> {
        let connection = self.connection(key).ok_or(MigrationError::Closed)?;
        connection.check_migration()?;
        self.settle(key.index());
        if !self.uses_fresh_id(key.index()) {
            return Err(MigrationError::NoConnectionId);
        }
        let connection = self.connection(key).ok_or(MigrationError::Closed)?;
        connection.try_socket(now, socket, timeout);
        self.settle(key.index());
        Ok(())
    }

    /// Has the connection use another of the peer's connection IDs (RFC 9000 section 9.5). False
    /// when there is none.
    fn uses_fresh_id(&mut self, index: usize) -> bool {
        let Some(entry) = self.connections.get_mut(index) else {
            return false;
        };
        if entry.drained {
            return false;
        }
        entry.connection.quinn().local_address_changed();
        // The new ID's reset token is told, and nothing else waited to be.
        let mut is_fresh = false;
        while let Some(event) = entry.connection.quinn().poll_endpoint_events() {
            is_fresh = true;
            if let Some(event) = self.quinn.handle_event(entry.handle, event) {
                entry.connection.quinn().handle_event(event);
            }
        }
        is_fresh
    }

    /// Moves a connection to the address that its server prefers, once the handshake is confirmed.
    pub(in crate::quic) fn follow_preference(&mut self, now: Instant, index: usize) {
        let Some(address) = self.connections[index].connection.take_preferred_address() else {
            return;
        };
        let known = self.connections[index].connection.quinn().remote_address();
        let is_known = |other: &SocketAddr| *other == known;
        // Packets are told apart by connection ID only after their address was translated.
        let is_free = self.aliases.get(&address).is_none_or(is_known) && !self.is_in_use(address);
        self.settle(index);
        if address != known && is_free && !self.keeps_to_peer && self.uses_fresh_id(index) {
            self.aliases.insert(address, known);
            self.connections[index]
                .connection
                .try_preferred_address(now, address);
        }
    }

    /// The host's socket is connected to its peer: no other address can be reached, and trying one
    /// would be a time of silence.
    pub fn keep_to_peer(&mut self) {
        self.keeps_to_peer = true;
    }

    /// Whether a connection's peer has this very address.
    fn is_in_use(&mut self, address: SocketAddr) -> bool {
        self.connections
            .iter_mut()
            .any(|(_, entry)| entry.connection.quinn().remote_address() == address)
    }

    /// The address that the state machine knows for one that a datagram came from.
    pub(in crate::quic) fn known_address(&self, remote: SocketAddr) -> SocketAddr {
        match self.aliases.is_empty() {
            true => remote,
            false => self.aliases.get(&remote).copied().unwrap_or(remote),
        }
    }

    /// Somebody connects to `remote` itself: connections that know it by another address go back to
    /// that one, for datagrams are told apart by address first.
    pub(super) fn release_alias(&mut self, now: Instant, remote: SocketAddr) {
        if self.aliases.remove(&remote).is_none() {
            return;
        }
        let uses_it = |entry: &super::Entry| {
            let alias = entry.connection.alias();
            alias.is_some_and(|(_, actual)| actual == remote)
        };
        let connections = self.connections.iter();
        let indices: Vec<usize> = connections
            .filter_map(|(index, entry)| uses_it(entry).then_some(index))
            .collect();
        for index in indices {
            self.connections[index].connection.leave_alias(now);
            self.touch(index);
        }
    }

    /// A connection is gone: aliases that nobody uses go.
    pub(super) fn tidy_aliases(&mut self) {
        let used: Vec<_> = self
            .connections
            .iter()
            .filter_map(|(_, entry)| entry.connection.alias())
            .collect();
        self.aliases
            .retain(|actual, known| used.contains(&(*known, *actual)));
    }
}
