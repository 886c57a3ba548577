//! Addresses of servers that stand for others: the state machine knows one address of a client's peer
//! for ever, and packets that come from a preferred one have to be given to it as if they came from
//! that.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
};

/// The addresses of one endpoint's connections, while they use them or ask them.
#[derive(Default)]
pub(crate) struct Aliases(HashMap<SocketAddr, Alias>);

struct Alias {
    known: SocketAddr,
    /// How many connections use it. It goes with the last of them.
    users: usize,
}

impl Aliases {
    /// The address that the state machine knows for one that a datagram came from.
    pub fn known(&self, remote: SocketAddr) -> SocketAddr {
        match self.0.is_empty() {
            true => remote,
            false => self.0.get(&remote).map_or(remote, |alias| alias.known),
        }
    }

    /// True if `address` stands for no other than `known` already.
    pub fn may_stand_for(&self, address: SocketAddr, known: SocketAddr) -> bool {
        let alias = self.0.get(&address);
        alias.is_none_or(|alias| alias.known == known)
    }

    /// One more connection uses `address`, for `known`.
    pub fn enter(&mut self, address: SocketAddr, known: SocketAddr) {
        let alias = self.0.entry(address);
        alias.or_insert(Alias { known, users: 0 }).users += 1;
    }

    /// One does not any more.
    pub fn leave(&mut self, address: SocketAddr) {
        if let Entry::Occupied(mut alias) = self.0.entry(address) {
            alias.get_mut().users -= 1;
            if alias.get().users == 0 {
                alias.remove();
            }
        }
    }

    /// `address` stands for itself again. Returns whether it stood for another.
    pub fn release(&mut self, address: SocketAddr) -> bool {
        self.0.remove(&address).is_some()
    }
}
