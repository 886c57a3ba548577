//! Data that arrived while its reader was paused. It is delivered in order when the reader resumes.
//!
//! One piece is delivered in each loop iteration, so that a reader that pauses after each piece gets no more. While
//! there is a backlog no receive is armed. So a backlog has at most the data that one receive delivered before it was
//! cancelled.
//!
//! Bytes are copied out of the driver's buffer once, because other streams need the buffer. After a pause, a stream
//! receives one piece at a time for a while, so that the next pause has no receive to cancel. A multishot receive
//! would deliver megabytes after each pause.

use std::collections::VecDeque;

/// The pieces are boxed, because an idle transport has room for a pointer only.
pub(crate) struct ReceiveBacklog<T>(Option<Box<Pieces<T>>>);

struct Pieces<T> {
    pieces: VecDeque<T>,
    /// True if the event queue has an entry for the next piece.
    is_queued: bool,
}

impl<T> Default for ReceiveBacklog<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> ReceiveBacklog<T> {
    fn waiting(&mut self) -> &mut Pieces<T> {
        self.0.get_or_insert_with(|| {
            Box::new(Pieces {
                pieces: VecDeque::new(),
                is_queued: false,
            })
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Adds data that has just arrived.
    pub(crate) fn push(&mut self, piece: T) {
        self.waiting().pieces.push_back(piece);
    }

    /// Puts back the part of the last piece that the reader has not taken.
    pub(crate) fn put_back(&mut self, piece: T) {
        self.waiting().pieces.push_front(piece);
    }

    /// Returns true if the backlog has a piece for which no event is queued. The caller then queues an event.
    pub(crate) fn queue_next(&mut self) -> bool {
        let waiting = self.0.as_deref_mut();
        waiting.is_some_and(|w| !w.pieces.is_empty() && !std::mem::replace(&mut w.is_queued, true))
    }

    /// Returns the next piece when the host takes its entry. `None` if the reader is paused (`reading` is false).
    pub(crate) fn next(&mut self, reading: bool) -> Option<T> {
        self.0.as_mut()?.is_queued = false;
        self.take(reading)
    }

    /// Removes and returns the first piece, without an event. `None` if the reader is paused (`reading` is false).
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

    /// Drops all pieces. An entry in the event queue then finds no piece.
    pub(crate) fn clear(&mut self) {
        if let Some(waiting) = &mut self.0 {
            waiting.pieces.clear();
        }
    }
}
