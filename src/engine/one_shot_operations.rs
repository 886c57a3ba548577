//! Single operations for whose result a host waits. Each has a key and one result.
//!
//! The table maps keys to operations of the driver. The driver owns the memory of an operation until the kernel has
//! completed it. The table has no bound of its own: an operation beyond the driver's bound completes at once with
//! ENOBUFS.

use uringcore_io::{Driver, OpId, Token};

use crate::completion_token::{Owner, Route};
use crate::generational_slab::{Key, Slab};

enum OperationState {
    /// The key is in use, and the operation was not started.
    Reserved,
    Started(OpId),
    /// The operation has completed. The key stays in use until the host takes the event.
    Completed,
}

#[derive(Default)]
pub(crate) struct OperationTable {
    table: Slab<OperationState>,
}

impl OperationTable {
    /// Handles the completion of an operation. Returns true if the host gets an event for it.
    pub(crate) fn handle_completion(&mut self, key: Key) -> bool {
        match self.table.get_mut(key) {
            Some(state) => {
                *state = OperationState::Completed;
                true
            }
            None => false,
        }
    }

    /// Frees a key after the host has taken the event.
    pub(crate) fn release(&mut self, key: Key) {
        self.table.remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

/// The commands for the single operations of an [`Engine`](crate::Engine).
pub struct Operations<'a> {
    pub(crate) operations: &'a mut OperationTable,
    pub(crate) driver: &'a mut Driver,
}

impl Operations<'_> {
    /// Reserves a key for an operation that [`start`](Self::start) starts later.
    pub fn reserve(&mut self) -> Key {
        let table = &mut self.operations.table;
        table.insert_with(|_| OperationState::Reserved)
    }

    /// Starts an operation with the reserved key `key`. `start` gets the token and queues the operation on the driver.
    /// The result is reported as [`EngineEvent::OpDone`](crate::EngineEvent::OpDone). Returns false, and does nothing,
    /// if the key was cancelled before.
    pub fn start(&mut self, key: Key, start: impl FnOnce(&mut Driver, Token) -> OpId) -> bool {
        match self.operations.table.get_mut(key) {
            Some(state @ OperationState::Reserved) => {
                let token = Route::new(Owner::Op, 0, key).token();
                *state = OperationState::Started(start(self.driver, token));
                true
            }
            _ => false,
        }
    }

    /// Cancels an operation. The operation's event still comes, with ECANCELED or with a result that came first.
    /// Returns true if the operation was never started: then no event comes, and the key is free.
    pub fn cancel(&mut self, key: Key) -> bool {
        match self.operations.table.get(key) {
            Some(OperationState::Reserved) => {
                self.operations.release(key);
                true
            }
            Some(OperationState::Started(op)) => {
                self.driver.cancel(*op);
                false
            }
            Some(OperationState::Completed) | None => false,
        }
    }
}
