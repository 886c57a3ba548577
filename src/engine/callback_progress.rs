//! The host's progress through the callbacks of a loop iteration.
//!
//! Most callbacks write nothing. So the host counts its callbacks here, which needs no call into the engine, and the
//! engine reads the counts when something is written. After a write the host also calls the engine at the end of the
//! running callback.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The counts of a host's callbacks. A host and its engine share one object, and only one thread uses it at a time.
#[derive(Default)]
pub struct CallbackProgress {
    /// The number of callbacks that this loop iteration still has to run, the running one included. 0 means that no
    /// callback is running.
    left: AtomicUsize,
    /// The number of all callbacks that have ended. It wraps around.
    ended: AtomicUsize,
    /// True if the host must call the engine at the end of the running callback.
    is_watched: AtomicBool,
}

impl CallbackProgress {
    /// The host begins to run `count` callbacks.
    #[inline]
    pub fn begin(&self, count: usize) {
        self.left.store(count, Ordering::Relaxed);
    }

    /// Counts a callback that has ended; `left` others follow in this loop iteration. (A nested loop iteration inside
    /// the callback may have changed the counts.) True if the host must call
    /// [`Engine::end_watched_callback`](crate::Engine::end_watched_callback).
    #[inline]
    #[must_use]
    pub fn end_one(&self, left: usize) -> bool {
        self.begin(left);
        self.count_ended(1);
        self.is_watched.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    /// Counts `count` parts of a callback as callbacks that have ended.
    #[inline]
    pub(crate) fn count_ended(&self, count: usize) {
        let ended = self.ended.load(Ordering::Relaxed);
        self.ended
            .store(ended.wrapping_add(count), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn watch(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }
}
