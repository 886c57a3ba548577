//! The endpoint's part in connection migration (RFC 9000 section 9): a client that changes its socket, its new
//! connection ID, the server's preferred address, and the limits of a client that has a new address.
//!
//! Not here: aliases of server addresses (`address_aliases`), and the path of one connection (`connection::migration`).

use std::time::{Duration, Instant};

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
}
