//! The place of an endpoint among several worker processes on one UDP port, and the places that have no worker at
//! present. A place is a number from 0. Not here: the connection IDs that contain the place
//! (`endpoint::connection_id_generator`).

use std::fmt;

/// Finds the places on a port that have no live worker. Other workers answer packets for these places.
pub trait EmptyPlaces: fmt::Debug + Send + Sync {
    /// True only if no process has the place `index`. If a process had it, a stateless reset sent for the place would
    /// end connections of that process (RFC 9000 section 21.11).
    fn is_empty(&self, index: u8) -> bool;
}

/// The place of one of several workers on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// The number of the worker's place, from 0.
    pub index: u8,
    /// The number of workers, at least 1.
    pub count: u8,
}

impl Worker {
    /// The place to which a connection ID with this first byte belongs.
    pub(crate) fn place_of(self, first: u8) -> u8 {
        first % self.count
    }

    /// True if the port has other workers.
    pub(crate) fn has_others(self) -> bool {
        self.count > 1
    }

    pub(crate) fn next(self) -> Self {
        let index = match self.index + 1 < self.count {
            true => self.index + 1,
            false => 0,
        };
        Self { index, ..self }
    }

    /// A first byte of connection IDs that belongs to this worker. `random` makes it random.
    pub(crate) fn mark(self, random: u8) -> u8 {
        let choices = (u8::MAX - self.index) / self.count;
        let choice = match choices {
            u8::MAX => random,
            _ => random % (choices + 1),
        };
        choice * self.count + self.index
    }
}
