//! The host's progress through the callbacks of a turn.
//!
//! Most callbacks write nothing. So the host counts its callbacks here, without a call into the engine, which reads the
//! counts when something is written. From then on the host calls the engine at the end of the running callback.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The callbacks of a host. The host and its engine share the counts, on one thread at a time.
#[derive(Default)]
pub struct CallbackProgress {
    /// Callbacks that the turn has still to run, the running one included. Zero: no callback is running.
    left: AtomicUsize,
    /// All callbacks that have ended. The count wraps.
    ended: AtomicUsize,
    /// The engine handles the end of the running callback.
    is_watched: AtomicBool,
}

impl CallbackProgress {
    /// The host begins to run `count` callbacks.
    #[inline]
    pub fn begin(&self, count: usize) {
        self.left.store(count, Ordering::Relaxed);
    }

    /// A callback has ended, and `left` others follow in this turn. Nested turns have counted their own callbacks. True
    /// if the host must call [`Engine::end_watched_callback`](crate::Engine::end_watched_callback).
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

    /// `count` parts of a callback count like callbacks that have ended.
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
