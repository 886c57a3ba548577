//! The place of an endpoint among several workers on a port, and the places without a worker.
//!
//! Not here: the connection IDs that contain the place (`endpoint::connection_id_generator`).

use std::fmt;

/// The places on a port without a live worker. Other workers answer packets for these.
pub trait EmptyPlaces: fmt::Debug + Send + Sync {
    /// True only if no process has the place: a stateless reset would end the connections of a process that has it
    /// (RFC 9000 section 21.11).
    fn is_empty(&self, index: u8) -> bool;
}

/// One of several workers on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// Counts from 0.
    pub index: u8,
    /// The number of workers, at least 1.
    pub count: u8,
}

impl Worker {
    /// The place that a connection ID with this first byte belongs to.
    pub(crate) fn place_of(self, first: u8) -> u8 {
        first % self.count
    }

    /// True if there are other workers.
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

    /// A first byte that belongs to this worker, as random as `random`.
    pub(crate) fn mark(self, random: u8) -> u8 {
        let choices = (u8::MAX - self.index) / self.count;
        let choice = match choices {
            u8::MAX => random,
            _ => random % (choices + 1),
        };
        choice * self.count + self.index
    }
}
