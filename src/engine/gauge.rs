//! The size of a send queue, which one thread changes and any may read.
//!
//! A host's other threads ask for it while the engine is inside the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes. Clones show the same number.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    // Only the engine's thread writes, so a load and a store do, without a locked instruction.

    pub(crate) fn add(&self, bytes: usize) {
        self.0.store(self.get() + bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: usize) {
        debug_assert!(bytes <= self.get(), "more bytes left than were queued");
        self.0
            .store(self.get().saturating_sub(bytes), Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
