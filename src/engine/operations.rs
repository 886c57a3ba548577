//! Operations that a host waits for one by one: each has a key, one result, and its memory in the
//! driver's slot until the kernel is done with it.
//!
//! Here: which key stands for which operation of the driver. Not here: what an operation does (the
//! driver), and who waits for it (the host). The table is as long as the driver's slab allows: an
//! operation beyond that completes at once with ENOBUFS.

use uringcore_io::{Driver, OpId, Token};

use crate::table::{Key, Table};
use crate::token::{Owner, Route};

/// The state of an operation.
enum State {
    /// It has a key; the driver does not know of it yet.
    Reserved,
    Started(OpId),
    /// Its completion was routed; the key is taken until the host hears of it.
    Completed,
}

#[derive(Default)]
pub(crate) struct Ops {
    table: Table<State>,
}

impl Ops {
    pub(crate) fn reserve(&mut self) -> Key {
        self.table.insert_with(|_| State::Reserved)
    }

    /// False for a key that is not reserved: then nothing was started.
    pub(crate) fn start(
        &mut self,
        key: Key,
        driver: &mut Driver,
        start: impl FnOnce(&mut Driver, Token) -> OpId,
    ) -> bool {
        match self.table.get_mut(key) {
            Some(state @ State::Reserved) => {
                let token = Route::new(Owner::Op, 0, key).token();
                *state = State::Started(start(driver, token));
                true
            }
            _ => false,
        }
    }

    /// Asks the operation to end. True if it never began and is forgotten: no event will tell of it.
    pub(crate) fn cancel(&mut self, key: Key, driver: &mut Driver) -> bool {
        match self.table.get(key) {
            Some(State::Reserved) => {
                self.table.remove(key);
                true
            }
            Some(State::Started(op)) => {
                driver.cancel(*op);
                false
            }
            Some(State::Completed) | None => false,
        }
    }

    /// True if the host is to hear of this completion.
    pub(crate) fn handle_completion(&mut self, key: Key) -> bool {
        match self.table.get_mut(key) {
            Some(state) => {
                *state = State::Completed;
                true
            }
            None => false,
        }
    }

    /// The host heard of the end: the key is free for another one.
    pub(crate) fn release(&mut self, key: Key) {
        self.table.remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}
