//! The transports and QUIC connections whose written bytes are held, to be sent together with other bytes.
//!
//! `write_delay` decides how long bytes are held. The bytes themselves are in the queues of the transports and
//! connections.

use std::time::Instant;

use rustc_hash::FxHashSet;
use uringcore_quic::ConnectionKey;

use crate::generational_slab::Key;
use crate::write_delay::WriteDelay;

/// A transport or a QUIC connection whose written bytes are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    Transport(Key),
    /// The key of the QUIC socket, and the key of the connection on it.
    Connection(Key, ConnectionKey),
}

pub(crate) struct HeldWrites {
    pub(crate) delay: WriteDelay,
    /// The transports and connections with held bytes, each of them once.
    holders: Vec<Holder>,
    /// The connections among the holders. (A transport has a flag instead of an entry here.)
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

    /// Adds a transport to the list, unless `is_held`, a flag of the transport, shows that it is in the list already.
    pub(crate) fn hold_transport(&mut self, key: Key, is_held: &mut bool) {
        if !std::mem::replace(is_held, true) {
            self.holders.push(Holder::Transport(key));
        }
    }

    /// Adds a connection to the list. A connection that is in the list already has written another piece.
    pub(crate) fn hold_connection(&mut self, endpoint: Key, connection: ConnectionKey) {
        let holder = Holder::Connection(endpoint, connection);
        // Usually the connection that was added last writes again, so the set is rarely searched.
        if self.holders.last() != Some(&holder) && self.connections.insert((endpoint, connection)) {
            self.holders.push(holder);
        } else {
            self.delay.add_piece();
        }
    }

    /// Ends the hold. The caller sends the bytes of the returned holders, and gives the list back with
    /// [`reuse`](Self::reuse).
    pub(crate) fn release(&mut self, now: Instant) -> Vec<Holder> {
        self.delay.release(now);
        self.connections.clear();
        std::mem::take(&mut self.holders)
    }

    /// Takes back an emptied list, whose memory the next hold uses.
    pub(crate) fn reuse(&mut self, mut holders: Vec<Holder>) {
        holders.clear();
        self.holders = holders;
    }

    /// Ends the hold at the end of the loop iteration. The engine's flush sends all bytes afterwards.
    pub(crate) fn end_iteration(&mut self) {
        if self.delay.is_holding() {
            let holders = self.release(Instant::now());
            self.reuse(holders);
        }
        self.delay.end_iteration();
    }

    #[cfg(test)]
    pub(crate) fn holders(&self) -> &[Holder] {
        &self.holders
    }
}
