//! Path changes of clients (RFC 9000 section 9): the part that concerns the whole endpoint.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{ConnectionKey, Endpoint};
use crate::{error::MigrationError, seams::fresh_connection_id};

impl Endpoint {
    /// Moves a client's connection to another of the host's sockets. `MigrationFinished` follows: when the peer has
    /// answered there, or after `timeout`, when the connection has returned to its old socket.
    pub fn migrate(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        socket: u32,
        timeout: Duration,
    ) -> Result<(), MigrationError> {
        let connection = self.connection(key).ok_or(MigrationError::Closed)?;
        connection.check_migration()?;
        let was_probing = connection.is_probing();
        self.reconcile(key.index());
        if !self.uses_fresh_id(key.index()) {
            return Err(MigrationError::NoConnectionId);
        }
        if was_probing {
            // The ID for the preferred address was visible on the old path. Use another one, if there is one.
            self.uses_fresh_id(key.index());
        }
        let connection = self.connection(key).ok_or(MigrationError::Closed)?;
        connection.try_socket(now, socket, timeout);
        self.reconcile(key.index());
        Ok(())
    }

    /// Switches the connection to another of the peer's connection IDs (RFC 9000 section 9.5). False if there is
    /// none.
    pub(super) fn uses_fresh_id(&mut self, index: usize) -> bool {
        let Some(entry) = self.connections.get_mut(index) else {
            return false;
        };
        if entry.drained {
            return false;
        }
        fresh_connection_id::take(&mut self.quinn, entry.handle, entry.connection.quinn())
    }

    /// Probes a server's preferred address, once the handshake is confirmed, and migrates the connection after an
    /// answer.
    pub(crate) fn follow_preference(&mut self, now: Instant, index: usize) {
        let connection = &mut self.connections[index].connection;
        if connection.has_answer() {
            self.reconcile(index);
            let has_id = self.uses_fresh_id(index);
            let connection = &mut self.connections[index].connection;
            match has_id {
                true => connection.move_to_preferred(now),
                false => connection.stop_probing(),
            }
            return;
        }
        let Some(preferred) = connection.take_preferred_address() else {
            return;
        };
        let (address, known) = (preferred.address, connection.quinn().remote_address());
        if address != known && !self.keeps_to_peer && self.is_free(address, known) {
            self.add_alias(index, address, known);
            self.connections[index]
                .connection
                .probe_preferred(now, preferred);
        }
    }

    /// The connection's client has proved an address; the connection counts there from now on.
    pub(super) fn count_at_validated(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        let Some(address) = entry.connection.validated_addr() else {
            return;
        };
        if let Some(old) = entry.block
            && !entry.lingers
        {
            entry.block = Some(self.accept_policy.moved(old, address.ip()));
        }
        if let Some(holding) = entry.connection.account_mut().holding_mut() {
            holding.move_to(address.ip());
        }
    }

    /// The host's socket is connected to its peer: no other address can be reached.
    pub fn keep_to_peer(&mut self) {
        self.keeps_to_peer = true;
    }

    /// True if `address` can be an alias of `known`. The state machine sees only translated addresses, so two peers
    /// must not share one.
    fn is_free(&mut self, address: SocketAddr, known: SocketAddr) -> bool {
        // Our clients stay in the table under their address; others may move.
        let has_moving = self.server.is_some();
        self.aliases.may_stand_for(address, known)
            && !self.dialed.contains_key(&address)
            && !(has_moving && self.is_in_use(address))
    }

    /// True if a connection's peer has this address.
    fn is_in_use(&mut self, address: SocketAddr) -> bool {
        self.connections
            .iter_mut()
            .any(|(_, entry)| entry.connection.quinn().remote_address() == address)
    }

    /// The state machine's address for the address that a datagram came from.
    pub(crate) fn known_address(&self, remote: SocketAddr) -> SocketAddr {
        self.aliases.known(remote)
    }

    /// A new connection uses `remote` itself: connections that have it as an alias return to their known address,
    /// because datagrams are dispatched by address first.
    pub(super) fn release_alias(&mut self, now: Instant, remote: SocketAddr) {
        if !self.aliases.release(remote) {
            return;
        }
        let connections = self.connections.iter_mut();
        let indices: Vec<usize> = connections
            .filter_map(|(index, entry)| {
                let uses_it = entry.alias.take_if(|alias| *alias == remote);
                uses_it.map(|_| index)
            })
            .collect();
        for index in indices {
            self.connections[index].connection.leave_alias(now);
            self.touch(index);
        }
    }

    fn add_alias(&mut self, index: usize, address: SocketAddr, known: SocketAddr) {
        self.aliases.enter(address, known);
        self.connections[index].alias = Some(address);
    }

    /// Releases the alias of a connection that no longer uses it.
    pub(super) fn drop_alias(&mut self, index: usize) {
        if let Some(address) = self.connections[index].alias.take() {
            self.aliases.leave(address);
        }
    }

    pub(super) fn note_dialed(&mut self, index: usize, remote: SocketAddr) {
        *self.dialed.entry(remote).or_default() += 1;
        self.connections[index].dialed = Some(remote);
    }

    pub(super) fn forget_dialed(&mut self, index: usize) {
        let Some(remote) = self.connections[index].dialed.take() else {
            return;
        };
        if let Some(count) = self.dialed.get_mut(&remote) {
            *count -= 1;
            if *count == 0 {
                self.dialed.remove(&remote);
            }
        }
        if self.dialed.is_empty() {
            self.dialed.shrink_to(DIALED_KEPT);
        }
    }
}

const DIALED_KEPT: usize = 128;
