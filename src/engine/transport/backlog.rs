//! What arrived for a reader that had paused, in order, until it reads again.
//!
//! It goes out one piece a turn: a reader that pauses after each piece is given one, and what waits behind
//! it is not touched. Whoever owns a backlog arms no receive while there is something in it, so that it
//! holds no more than a receive had brought before it was stopped.
//!
//! The bytes are copied out of the kernel's buffer once, because other streams wait for that buffer, and then only
//! moved. After a pause a stream receives one piece at a time for a while, so that the next pause cancels nothing;
//! a multishot receive would bring megabytes after each pause.

use std::collections::VecDeque;

/// Boxed for the sake of idle transports, which have room for a pointer.
pub(crate) struct Backlog<T>(Option<Box<Waiting<T>>>);

struct Waiting<T> {
    pieces: VecDeque<T>,
    /// A note in the queue of events says that a piece is due.
    noted: bool,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Backlog<T> {
    fn waiting(&mut self) -> &mut Waiting<T> {
        self.0.get_or_insert_with(|| {
            Box::new(Waiting {
                pieces: VecDeque::new(),
                noted: false,
            })
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Keeps what arrived last.
    pub(crate) fn push(&mut self, piece: T) {
        self.waiting().pieces.push_back(piece);
    }

    /// Keeps what the reader did not take of the latest piece.
    pub(crate) fn put_back(&mut self, piece: T) {
        self.waiting().pieces.push_front(piece);
    }

    /// True: a piece is due, and the caller queues the note that says so.
    pub(crate) fn note(&mut self) -> bool {
        let waiting = self.0.as_deref_mut();
        waiting.is_some_and(|w| !w.pieces.is_empty() && !std::mem::replace(&mut w.noted, true))
    }

    /// The note's turn has come: the piece, if the reader still reads.
    pub(crate) fn next(&mut self, reading: bool) -> Option<T> {
        self.0.as_mut()?.noted = false;
        self.take(reading)
    }

    /// The first piece, ahead of any note.
    pub(crate) fn take(&mut self, reading: bool) -> Option<T> {
        if reading {
            self.0.as_mut()?.pieces.pop_front()
        } else {
            None
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|waiting| &waiting.pieces)
    }

    /// A note that is queued stays: it finds nothing.
    pub(crate) fn clear(&mut self) {
        if let Some(waiting) = &mut self.0 {
            waiting.pieces.clear();
        }
    }
}
