//! The state of a transport that any thread may read, also while another thread uses the engine.
//!
//! Only the engine's thread writes it, so plain atomic loads and stores suffice, without locked instructions. No other
//! copy of this state exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// The state of one transport. Clones share the same state.
#[derive(Clone, Debug)]
pub struct SharedState(Arc<SharedFields>);

#[derive(Debug)]
struct SharedFields {
    queued: AtomicUsize,
    low_mark: AtomicUsize,
    high_mark: AtomicUsize,
    flags: AtomicU8,
}

impl Default for SharedState {
    fn default() -> Self {
        Self(Arc::new(SharedFields {
            queued: AtomicUsize::new(0),
            low_mark: AtomicUsize::new(HIGH_MARK_BYTES / 4),
            high_mark: AtomicUsize::new(HIGH_MARK_BYTES),
            flags: AtomicU8::new(0),
        }))
    }
}

impl SharedState {
    /// The number of bytes that were written and that the kernel has not taken yet.
    pub fn queued(&self) -> usize {
        self.0.queued.load(Relaxed)
    }

    /// True if nothing more is read, and no more data is accepted for sending.
    pub fn is_closing(&self) -> bool {
        self.has(CLOSING)
    }

    /// True if the transport neither reads nor sends any more. [`EngineEvent::Lost`](crate::EngineEvent::Lost) was
    /// delivered, or is the next event.
    pub fn is_quiet(&self) -> bool {
        self.has(QUIET)
    }

    /// True if a send has failed. No more data is accepted, and the transport ends after the data that arrived before
    /// the failure.
    pub fn has_failed(&self) -> bool {
        self.has(FAILED)
    }

    /// True if the reader is paused.
    pub fn is_paused(&self) -> bool {
        self.has(PAUSED)
    }

    /// True if the stream was half-closed: no more data is accepted for sending.
    pub fn is_finished(&self) -> bool {
        self.has(FINISHED)
    }

    /// True while the producer is paused.
    pub fn is_above(&self) -> bool {
        self.has(ABOVE)
    }

    /// The size of the write queue in bytes at which a paused producer may continue.
    pub fn low_mark(&self) -> usize {
        self.0.low_mark.load(Relaxed)
    }

    /// The size of the write queue in bytes above which the producer has to pause.
    pub fn high_mark(&self) -> usize {
        self.0.high_mark.load(Relaxed)
    }

    pub(crate) fn set_marks(&self, low: usize, high: usize) {
        self.0.low_mark.store(low, Relaxed);
        self.0.high_mark.store(high, Relaxed);
    }

    pub(crate) fn add_queued(&self, bytes: usize) {
        self.0.queued.store(self.queued() + bytes, Relaxed);
    }

    pub(crate) fn sub_queued(&self, bytes: usize) {
        debug_assert!(
            bytes <= self.queued(),
            "more bytes were taken than were queued"
        );
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
pub(crate) const ABOVE: u8 = 16;
pub(crate) const FAILED: u8 = 32;

/// asyncio's default high mark in bytes. The default low mark is a quarter of it.
pub const HIGH_MARK_BYTES: usize = 64 * 1024;
