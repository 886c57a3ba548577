//! A global value that each process creates for itself: a forked child makes a new one.
//!
//! The child never uses the parent's value. The parent's threads do not run in the child, so a lock that one of them
//! held would stay locked, and a count that one of them raised would never fall. Not here: a loop's driver after a
//! fork (`driver`).

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::fork_detection::OwnerProcess;

/// A value that each process creates when it first uses the value.
#[derive(Debug)]
pub struct PerProcess<T: Default + Send + Sync> {
    latest: AtomicPtr<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` if the page that detects forks cannot be mapped. Then a forked child uses its parent's value.
    owner_process: Option<OwnerProcess>,
    value: T,
}

impl<T> Slot<T> {
    fn is_current(&self) -> bool {
        self.owner_process
            .as_ref()
            .is_none_or(OwnerProcess::is_current)
    }
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub const fn new() -> Self {
        Self {
            latest: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub fn get(&self) -> &T {
        let known = self.latest.load(Ordering::Acquire);
        // SAFETY: null, or a slot of `Box::into_raw`, which this object's drop is the first to free.
        if let Some(slot) = unsafe { known.as_ref() }
            && slot.is_current()
        {
            return &slot.value;
        }
        let made = Box::into_raw(Box::new(Slot {
            owner_process: OwnerProcess::current().ok(),
            value: T::default(),
        }));
        // The value of the parent is never freed, because code in this process may still have a reference to it.
        let won = self
            .latest
            .compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire);
        let slot = match won {
            Ok(_) => made,
            Err(winner) => {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                winner
            }
        };
        // SAFETY: this thread has made the slot, or another thread of this process was faster. Slots are freed only
        // when this object is dropped.
        unsafe { &(*slot).value }
    }
}

impl<T: Default + Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default + Send + Sync> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let slot = *self.latest.get_mut();
        // SAFETY: null, or a slot of `Box::into_raw` without remaining references, because each borrows this
        // object.
        unsafe {
            if slot.as_ref().is_some_and(Slot::is_current) {
                drop(Box::from_raw(slot));
            }
        }
    }
}
