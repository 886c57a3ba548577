//! Which of several workers on a port an endpoint is.
//!
//! Not here: the connection IDs that say so (`endpoint::connection_ids`).

/// One of several workers on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// From 0.
    pub index: u8,
    /// From 1.
    pub count: u8,
}

impl Worker {
    /// Whether there are others.
    pub(in crate::quic) fn has_neighbours(self) -> bool {
        self.count > 1
    }

    pub(in crate::quic) fn next(self) -> Self {
        let index = match self.index + 1 < self.count {
            true => self.index + 1,
            false => 0,
        };
        Self { index, ..self }
    }

    /// A byte that is this worker's, as random as `random`.
    pub(in crate::quic) fn mark(self, random: u8) -> u8 {
        let choices = (u8::MAX - self.index) / self.count;
        let choice = match choices {
            u8::MAX => random,
            _ => random % (choices + 1),
        };
        choice * self.count + self.index
    }
}
