//! What arrived for a reader that had paused, in order, until it reads again.
//!
//! It goes out one piece a turn: a reader that pauses after each piece is given one, and what waits behind
//! it is not touched. Whoever owns a backlog arms no receive while there is something in it, so that it
//! holds no more than a receive had brought before it was stopped.

use std::collections::VecDeque;

pub(crate) struct Backlog<T> {
    /// Boxed for the sake of idle transports, which have room for a pointer.
    pieces: Option<Box<VecDeque<T>>>,
    /// A note in the queue of events says that a piece is due.
    noted: bool,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            pieces: None,
            noted: false,
        }
    }
}

impl<T> Backlog<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Keeps what arrived last.
    pub(crate) fn push(&mut self, piece: T) {
        self.pieces.get_or_insert_default().push_back(piece);
    }

    /// Keeps what the reader did not take of the latest piece.
    pub(crate) fn put_back(&mut self, piece: T) {
        self.pieces.get_or_insert_default().push_front(piece);
    }

    /// True: a piece is due, and the caller queues the note that says so.
    pub(crate) fn note(&mut self) -> bool {
        !self.is_empty() && !std::mem::replace(&mut self.noted, true)
    }

    /// The note's turn has come: the piece, if the reader still reads.
    pub(crate) fn next(&mut self, reading: bool) -> Option<T> {
        self.noted = false;
        self.take(reading)
    }

    /// The first piece, ahead of any note.
    pub(crate) fn take(&mut self, reading: bool) -> Option<T> {
        if reading {
            self.pieces.as_mut()?.pop_front()
        } else {
            None
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flat_map(|pieces| pieces.iter())
    }

    /// A note that is queued stays: it finds nothing.
    pub(crate) fn clear(&mut self) {
        self.pieces = None;
    }
}
