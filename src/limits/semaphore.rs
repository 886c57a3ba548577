//! A semaphore that limits how often one client uses an expensive resource at a time. The host defines the resource
//! and the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The semaphore of one client, with `max` permits.
pub struct Semaphore {
    taken: AtomicUsize,
    max: usize,
    /// True if a request for a permit was refused since the last [`take_wanted`](Semaphore::take_wanted).
    is_wanted: AtomicBool,
}

/// A permit of a [`Semaphore`], which is returned when this object is dropped.
pub struct Permit(Arc<Semaphore>);

impl Semaphore {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            max,
            is_wanted: AtomicBool::new(false),
        })
    }

    pub fn take(self: &Arc<Self>) -> Option<Permit> {
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.max {
            return Some(Permit(self.clone()));
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        self.is_wanted.store(true, Ordering::Relaxed);
        None
    }

    /// True if a request was refused before and a permit is free now. Each refusal is reported once.
    pub fn take_wanted(&self) -> bool {
        let has_room = self.taken.load(Ordering::Relaxed) < self.max;
        has_room && self.is_wanted.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
