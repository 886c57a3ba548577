//! A tap on a connection's packets where they are still, or again, in the clear.
//!
//! The QUIC state machine keeps packet numbers and acknowledgements to itself. Its packet keys are
//! ours though, and they see every payload before it is sealed and after it is opened. Nothing here
//! knows what is in a payload.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// The packet number spaces (RFC 9000 section 12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Initial,
    Handshake,
    Data,
}

/// Whoever listens to a tap.
pub(crate) trait PacketObserver: Send + Sync {
    /// A packet is about to be sealed. The payload may be rewritten; its length is final.
    fn sealing(&self, space: Space, number: u64, payload: &mut [u8]);
    /// A packet was opened and is authentic. It may be a duplicate.
    fn opened(&self, space: Space, payload: &[u8]);
}

/// One connection's tap. While nobody listens it costs one relaxed load a packet.
#[derive(Default)]
pub(crate) struct Tap {
    open: AtomicBool,
    observer: OnceLock<Arc<dyn PacketObserver>>,
}

impl Tap {
    /// Names the observer, once. It hears nothing before [`set_open`](Self::set_open).
    pub fn attach(&self, observer: Arc<dyn PacketObserver>) {
        let _ = self.observer.set(observer);
    }

    pub fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    pub(super) fn observer(&self) -> Option<&dyn PacketObserver> {
        match self.open.load(Ordering::Relaxed) {
            true => self.observer.get().map(|observer| &**observer),
            false => None,
        }
    }
}
