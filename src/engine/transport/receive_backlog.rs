//! Data that arrived for a paused reader, in order, until it reads again.
//!
//! One piece is delivered in each turn, so a reader that pauses after each piece leaves the others untouched. The owner
//! of a backlog arms no receive while the backlog has data. So it holds no more than one receive brought before it was
//! cancelled.
//!
//! Bytes are copied out of the driver's buffer once, because other streams need that buffer, and then only moved. After a
//! pause a stream receives one piece at a time for a while, so that the next pause cancels nothing: a multishot receive
//! would bring megabytes after each pause.

use std::collections::VecDeque;

/// Boxed, because an idle transport has room for a pointer only.
pub(crate) struct ReceiveBacklog<T>(Option<Box<Pieces<T>>>);

struct Pieces<T> {
    pieces: VecDeque<T>,
    /// An entry of the event queue represents the next piece.
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

    /// Keeps data that has just arrived.
    pub(crate) fn push(&mut self, piece: T) {
        self.waiting().pieces.push_back(piece);
    }

    /// Keeps the rest of the latest piece, of which the reader took a part.
    pub(crate) fn put_back(&mut self, piece: T) {
        self.waiting().pieces.push_front(piece);
    }

    /// True if a piece is due and not queued yet. The caller queues its entry.
    pub(crate) fn queue_next(&mut self) -> bool {
        let waiting = self.0.as_deref_mut();
        waiting.is_some_and(|w| !w.pieces.is_empty() && !std::mem::replace(&mut w.is_queued, true))
    }

    /// The host takes the entry: returns the next piece, if the reader still reads.
    pub(crate) fn next(&mut self, reading: bool) -> Option<T> {
        self.0.as_mut()?.is_queued = false;
        self.take(reading)
    }

    /// Takes the first piece, ahead of an entry.
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

    /// Drops all pieces. An entry in the queue of events stays and finds nothing.
    pub(crate) fn clear(&mut self) {
        if let Some(waiting) = &mut self.0 {
            waiting.pieces.clear();
        }
    }
}
