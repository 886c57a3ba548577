//! Aliases of server addresses, and the connections of the endpoint that use them. A client's connection whose server
//! has a preferred address gets datagrams from two addresses, and quinn-proto accepts them only from the first one.
//!
//! Not here: the table of aliases (`paths::address_aliases`), and the move to the preferred address (`migration`).

use std::{net::SocketAddr, time::Instant};

use super::Endpoint;

impl Endpoint {
    /// True if quinn-proto may get datagrams from `address` as if they came from `known`: no other peer may use
    /// `address`.
    pub(super) fn is_free(&mut self, address: SocketAddr, known: SocketAddr) -> bool {
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

    /// Makes `address` an alias of `known` for a connection.
    pub(super) fn add_alias(&mut self, index: usize, address: SocketAddr, known: SocketAddr) {
        self.aliases.enter(address, known);
        self.connections[index].alias = Some(address);
    }

    /// Releases the alias of a connection that does not use it any more.
    pub(super) fn drop_alias(&mut self, index: usize) {
        if let Some(address) = self.connections[index].alias.take() {
            self.aliases.leave(address);
        }
    }

    /// Counts a client's connection for its server's address.
    pub(super) fn note_dialed(&mut self, index: usize, remote: SocketAddr) {
        *self.dialed.entry(remote).or_default() += 1;
        self.connections[index].dialed = Some(remote);
    }

    /// Reverses `note_dialed`.
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

/// The capacity of the table of server addresses that an endpoint without client connections keeps.
const DIALED_KEPT: usize = 128;
