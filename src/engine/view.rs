//! What any thread may ask about a transport while the engine is in use elsewhere.
//!
//! The engine's thread alone writes it, so a load and a store do, without a locked instruction. Whoever
//! wants to know asks here: nobody else keeps a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Clones show the same transport.
#[derive(Clone, Debug, Default)]
pub struct View(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    queued: AtomicUsize,
    flags: AtomicU8,
}

impl View {
    /// Bytes accepted for sending and not yet taken by the kernel.
    pub fn queued(&self) -> usize {
        self.0.queued.load(Relaxed)
    }

    /// Nothing is read any more, and nothing more is accepted for sending.
    pub fn is_closing(&self) -> bool {
        self.has(CLOSING)
    }

    /// Nothing is sent any more either: the end was told, or is about to be.
    pub fn is_quiet(&self) -> bool {
        self.has(QUIET)
    }

    /// The reader has paused.
    pub fn is_paused(&self) -> bool {
        self.has(PAUSED)
    }

    /// The last byte was accepted for sending.
    pub fn is_finished(&self) -> bool {
        self.has(FINISHED)
    }

    pub(crate) fn add_queued(&self, bytes: usize) {
        self.0.queued.store(self.queued() + bytes, Relaxed);
    }

    pub(crate) fn sub_queued(&self, bytes: usize) {
        debug_assert!(bytes <= self.queued(), "more bytes left than were queued");
        let left = self.queued().saturating_sub(bytes);
        self.0.queued.store(left, Relaxed);
    }

    pub(crate) fn set(&self, flag: u8, on: bool) {
        let others = self.0.flags.load(Relaxed) & !flag;
        let flag = if on { flag } else { 0 };
        self.0.flags.store(others | flag, Relaxed);
    }

    fn has(&self, flag: u8) -> bool {
        self.0.flags.load(Relaxed) & flag != 0
    }
}

pub(crate) const CLOSING: u8 = 1;
pub(crate) const QUIET: u8 = 2;
pub(crate) const PAUSED: u8 = 4;
pub(crate) const FINISHED: u8 = 8;
