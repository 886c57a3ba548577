//! The bytes that the host of a connection stores for the connection: messages, content, and datagrams that the
//! application has not taken yet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Budget, Holding, move_by};

/// The number of bytes that the host keeps for one connection. Any thread may change it.
#[derive(Debug, Default)]
pub struct Queued {
    bytes: AtomicUsize,
    budget: OnceLock<Arc<Budget>>,
}

impl Queued {
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// True if the process holds more bytes for all its clients than its budget allows.
    #[inline]
    pub fn is_budget_exceeded(&self) -> bool {
        self.budget.get().is_some_and(|budget| budget.is_exceeded())
    }

    /// Connects the queued bytes with the budget of `holding`. Only the first call has an effect.
    pub fn charged_to(&self, holding: &Holding) {
        // A connection may move to another account, but all accounts belong to one budget.
        self.budget.get_or_init(|| holding.account.budget.clone());
    }
}

/// The bytes of one queue, a part of the sum in [`Queued`]. Dropping the charge releases them.
#[derive(Debug, Default)]
pub struct Charge {
    queued: Arc<Queued>,
    bytes: usize,
}

impl Charge {
    pub fn new(queued: Arc<Queued>) -> Self {
        Self { queued, bytes: 0 }
    }

    /// Makes another charge that adds to the same connection, for another queue.
    pub fn beside(&self) -> Self {
        Self::new(self.queued.clone())
    }

    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            move_by(&self.queued.bytes, self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_and_are_released_on_drop() {
        let queued = Arc::new(Queued::default());
        let mut charges = [(); 2].map(|()| Charge::new(queued.clone()));
        charges[0].set(10);
        charges[1].set(5);
        charges[0].set(7);
        assert_eq!(queued.bytes(), 12);
        drop(charges);
        assert_eq!(queued.bytes(), 0);
    }
}
