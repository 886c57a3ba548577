//! The endpoint's part in path changes of clients (RFC 9000 section 9): sockets, connection IDs, aliases of
//! addresses.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{ConnectionKey, Endpoint};
use crate::{error::MigrationError, workarounds::fresh_connection_id};

impl Endpoint {
    /// Moves a client's connection to another socket of the application. `MigrationFinished` follows when the peer has
    /// answered there. If it has not answered after `timeout`, the connection returns to its old socket.
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
        if !self.use_fresh_connection_id(key.index()) {
            return Err(MigrationError::NoConnectionId);
        }
        if was_probing {
            // The connection uses the ID of the preferred address, which was visible on the old path. Another one is
            // taken if the peer has issued any.
            self.use_fresh_connection_id(key.index());
        }
        let connection = self.connection(key).ok_or(MigrationError::Closed)?;
        connection.try_socket(now, socket, timeout);
        self.reconcile(key.index());
        Ok(())
    }

    /// Switches the connection to another of the peer's connection IDs (RFC 9000 section 9.5). False if the peer has
    /// issued no other one.
    pub(super) fn use_fresh_connection_id(&mut self, index: usize) -> bool {
        let Some(entry) = self.connections.get_mut(index) else {
            return false;
        };
        if entry.drained {
            return false;
        }
        fresh_connection_id::take(&mut self.quinn, entry.handle, entry.connection.quinn())
    }

    /// Probes a server's preferred address after the handshake is confirmed, and migrates the connection after an
    /// answer.
    pub(crate) fn use_preferred_address(&mut self, now: Instant, index: usize) {
        let connection = &mut self.connections[index].connection;
        if connection.has_answer() {
            self.reconcile(index);
            let has_id = self.use_fresh_connection_id(index);
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

    /// Counts a connection at the address that its client has just proved.
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

    /// Prevents migration to preferred addresses, because the application's socket is connected and reaches only its
    /// peer.
    pub fn keep_to_peer(&mut self) {
        self.keeps_to_peer = true;
    }

    /// True if quinn-proto may get datagrams from `address` as if they came from `known`: no other peer may use
    /// `address`.
    fn is_free(&mut self, address: SocketAddr, known: SocketAddr) -> bool {
        // Connections of this endpoint's clients stay in `dialed`. Clients of its server may have migrated.
        let has_moving = self.server.is_some();
        self.aliases.may_stand_for(address, known)
            && !self.dialed.contains_key(&address)
            && !(has_moving && self.is_in_use(address))
    }

    /// True if the peer of any connection has this address.
    fn is_in_use(&mut self, address: SocketAddr) -> bool {
        self.connections
            .iter_mut()
            .any(|(_, entry)| entry.connection.quinn().remote_address() == address)
    }

    /// The address that quinn-proto has for a peer whose datagram came from `remote`.
    pub(crate) fn known_address(&self, remote: SocketAddr) -> SocketAddr {
        self.aliases.known(remote)
    }

    /// Frees the address `remote` for a new connection. Datagrams are dispatched by address first, so connections that
    /// have `remote` as an alias return to the address that quinn-proto has.
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

    /// Releases the alias of a connection that does not use it any more.
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
