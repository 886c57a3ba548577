//! The transports and QUIC connections whose written bytes are held, to leave together with the bytes of others.
//!
//! `write_delay` decides how long bytes are held. The bytes themselves are in the queues of their owners.

use std::time::Instant;

use rustc_hash::FxHashSet;
use uringcore_quic::ConnectionKey;

use crate::slab::Key;
use crate::write_delay::WriteDelay;

/// An owner of held bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    Transport(Key),
    /// The key of the QUIC endpoint, and of the connection in it.
    Connection(Key, ConnectionKey),
}

pub(crate) struct HeldWrites {
    pub(crate) delay: WriteDelay,
    /// Each holder once.
    holders: Vec<Holder>,
    /// The connections among the holders. A transport has a flag instead.
    connections: FxHashSet<(Key, ConnectionKey)>,
}

impl HeldWrites {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            delay: WriteDelay::new(now),
            holders: Vec::new(),
            connections: FxHashSet::default(),
        }
    }

    /// Lists a transport, unless its flag shows that it is listed.
    pub(crate) fn hold_transport(&mut self, key: Key, is_held: &mut bool) {
        if !std::mem::replace(is_held, true) {
            self.holders.push(Holder::Transport(key));
        }
    }

    /// Lists a connection. If it is listed already, this is one more piece of its bytes.
    pub(crate) fn hold_connection(&mut self, endpoint: Key, connection: ConnectionKey) {
        let holder = Holder::Connection(endpoint, connection);
        // Most pieces follow each other, and need no search.
        if self.holders.last() != Some(&holder) && self.connections.insert((endpoint, connection)) {
            self.holders.push(holder);
        } else {
            self.delay.add_piece();
        }
    }

    /// Ends the hold. The caller sends the bytes of the holders and returns the list by [`reuse`](Self::reuse).
    pub(crate) fn release(&mut self, now: Instant) -> Vec<Holder> {
        self.delay.release(now);
        self.connections.clear();
        std::mem::take(&mut self.holders)
    }

    /// Keeps the memory of an emptied list.
    pub(crate) fn reuse(&mut self, mut holders: Vec<Holder>) {
        holders.clear();
        self.holders = holders;
    }

    /// The turn ends. The flush that follows sends all bytes.
    pub(crate) fn end_turn(&mut self) {
        if self.delay.is_holding() {
            let holders = self.release(Instant::now());
            self.reuse(holders);
        }
        self.delay.end_turn();
    }

    #[cfg(test)]
    pub(crate) fn holders(&self) -> &[Holder] {
        &self.holders
    }
}
