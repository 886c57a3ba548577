//! Aliases of server addresses. quinn-proto gives a client's connection one fixed address of its server. Packets from
//! the server's preferred address are therefore passed to quinn-proto with the fixed address.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
};

/// The aliases that the connections of an endpoint use or probe.
#[derive(Default)]
pub(crate) struct AddressAliases(HashMap<SocketAddr, Alias>);

struct Alias {
    known: SocketAddr,
    /// The number of connections that use the alias, which is removed when no connection uses it any more.
    users: usize,
}

impl AddressAliases {
    /// The address that quinn-proto has for a server whose datagram came from `remote`.
    pub fn known(&self, remote: SocketAddr) -> SocketAddr {
        match self.0.is_empty() {
            true => remote,
            false => self.0.get(&remote).map_or(remote, |alias| alias.known),
        }
    }

    /// True unless `address` is already an alias of another address than `known`.
    pub fn may_stand_for(&self, address: SocketAddr, known: SocketAddr) -> bool {
        let alias = self.0.get(&address);
        alias.is_none_or(|alias| alias.known == known)
    }

    /// Called when a connection uses `address` as an alias of `known`.
    pub fn enter(&mut self, address: SocketAddr, known: SocketAddr) {
        let alias = self.0.entry(address);
        alias.or_insert(Alias { known, users: 0 }).users += 1;
    }

    /// Called when a connection stops using the alias `address`.
    pub fn leave(&mut self, address: SocketAddr) {
        if let Entry::Occupied(mut alias) = self.0.entry(address) {
            alias.get_mut().users -= 1;
            if alias.get().users == 0 {
                alias.remove();
            }
        }
    }

    /// Removes the alias `address`. Returns true if it existed.
    pub fn release(&mut self, address: SocketAddr) -> bool {
        self.0.remove(&address).is_some()
    }
}
