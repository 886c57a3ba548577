//! The events that wait until the application polls them, and two events that are emitted after others: `BatchHandled`
//! after all events of a batch, and `ConnectionWritable` when full send queues have room again.
//!
//! A batch is the datagrams of one loop iteration, or one expired timer. aioquic calls a
//! protocol's `transmit` after each batch, and programs override that method; the bindings call it at `BatchHandled`.
//!
//! Not here: the conversion of quinn-proto's events (`event_conversion`).

use std::collections::VecDeque;

use crate::Event;

/// The events of one connection. quinn-proto's receive windows bound the stream data in them.
pub(super) struct EventQueue {
    queue: VecDeque<Pending>,
    batches: Batches,
    /// True if the send queues were full, so that `ConnectionWritable` must follow.
    is_full: bool,
}

/// An event, or a reference to data that becomes an event when the application polls.
#[derive(Debug, PartialEq)]
pub(super) enum Pending {
    Ready(Event),
    /// A stream with unread data. The data is read as late as possible, so that one event has as much as possible.
    Readable(u64),
    /// Received DATAGRAM frames wait to be read. `early` is true if the first of them arrived before the handshake was
    /// complete.
    Datagrams {
        early: bool,
    },
    /// The end of a batch, which is delivered after all other entries.
    Batch,
}

/// The state of the `BatchHandled` event. It is disabled until [`EventQueue::report_batches`] enables it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batches {
    /// The event is disabled, and no batch has been handled yet.
    Disabled,
    /// The event is disabled, and a batch has been handled. When the event is enabled, one is emitted at once.
    DisabledAfterBatch,
    /// The event is enabled. None is in the queue.
    Enabled,
    /// The event is enabled, and one is in the queue. Further batches until it is polled need no other one.
    Queued,
}

impl EventQueue {
    pub fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            batches: Batches::Disabled,
            is_full: false,
        }
    }

    /// The queue of a server's new connection, whose first datagram is being handled.
    pub fn accepted() -> Self {
        Self {
            queue: VecDeque::from([Pending::Ready(Event::Accepted)]),
            batches: Batches::DisabledAfterBatch,
            ..Self::new()
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub fn push(&mut self, event: Event) {
        self.queue.push_back(Pending::Ready(event));
    }

    pub fn extend(&mut self, events: impl IntoIterator<Item = Event>) {
        self.queue.extend(events.into_iter().map(Pending::Ready));
    }

    /// Adds a stream whose data is delivered in a `StreamData` event.
    pub fn push_readable(&mut self, stream_id: u64) {
        self.queue.push_back(Pending::Readable(stream_id));
    }

    /// Adds received DATAGRAM frames.
    pub fn push_datagrams(&mut self, early: bool) {
        self.queue.push_back(Pending::Datagrams { early });
    }

    /// Adds, at the front, the rest of the DATAGRAM frames that [`pop`](Self::pop) has just returned.
    pub fn push_more_datagrams(&mut self, early: bool) {
        self.queue.push_front(Pending::Datagrams { early });
    }

    /// Removes and returns the next entry. The entry for the end of a batch is returned after all others, and not at
    /// all if the connection is closed.
    pub fn pop(&mut self, is_closed: bool) -> Option<Pending> {
        loop {
            let next = self.queue.pop_front()?;
            if !matches!(next, Pending::Batch) {
                return Some(next);
            }
            if is_closed {
                continue;
            }
            if self.queue.is_empty() {
                self.batches = Batches::Enabled;
                return Some(next);
            }
            self.queue.push_back(next);
        }
    }

    /// Drops references to data that the application has not read, after it has closed the connection.
    pub fn drop_unread(&mut self) {
        self.queue
            .retain(|event| matches!(event, Pending::Ready(_)));
    }

    /// Called when a datagram or a timer is being handled.
    pub fn note_batch(&mut self, is_closed: bool) {
        match self.batches {
            Batches::Disabled => self.batches = Batches::DisabledAfterBatch,
            Batches::Enabled if !is_closed => {
                self.batches = Batches::Queued;
                self.queue.push_back(Pending::Batch);
            }
            Batches::DisabledAfterBatch | Batches::Enabled | Batches::Queued => {}
        }
    }

    /// Enables `BatchHandled`. If a batch was handled before, the event follows at once.
    pub fn report_batches(&mut self, is_closed: bool) {
        let is_missed = self.batches == Batches::DisabledAfterBatch;
        if is_missed || self.batches == Batches::Disabled {
            self.batches = Batches::Enabled;
        }
        if is_missed {
            self.note_batch(is_closed);
        }
    }

    /// True if the send queues were full, so that `ConnectionWritable` follows.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    #[inline]
    pub fn note_full(&mut self, is_full: bool) {
        self.is_full |= is_full;
    }

    /// The send queues have room. Returns true if `ConnectionWritable` must be emitted.
    #[inline]
    pub fn note_room(&mut self) -> bool {
        std::mem::take(&mut self.is_full)
    }

    /// Frees the queue's unused capacity.
    pub fn rest(&mut self) {
        self.queue.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINISHED: Event = Event::StreamFinished { stream_id: 0 };

    fn drain(events: &mut EventQueue, is_closed: bool) -> Vec<Pending> {
        std::iter::from_fn(|| events.pop(is_closed)).collect()
    }

    #[test]
    fn batch_handled_is_emitted_once_after_all_other_events() {
        let mut events = EventQueue::new();
        events.report_batches(false);
        assert!(events.is_empty(), "no batch was handled");
        events.note_batch(false);
        events.note_batch(false);
        events.push_readable(4);
        events.push(FINISHED);
        assert_eq!(events.pop(false), Some(Pending::Readable(4)));
        events.push_datagrams(true);
        let rest = [
            Pending::Ready(FINISHED),
            Pending::Datagrams { early: true },
            Pending::Batch,
        ];
        assert_eq!(drain(&mut events, false), rest);
        events.note_batch(false);
        assert_eq!(drain(&mut events, false), [Pending::Batch]);
    }

    #[test]
    fn a_batch_before_batches_were_enabled_is_reported() {
        let mut accepted = EventQueue::accepted();
        accepted.report_batches(false);
        let all = [Pending::Ready(Event::Accepted), Pending::Batch];
        assert_eq!(drain(&mut accepted, false), all);
        accepted.note_batch(false);
        assert_eq!(drain(&mut accepted, true), []);
        let mut silent = EventQueue::new();
        silent.note_batch(false);
        assert!(
            silent.is_empty(),
            "the application has not enabled the event"
        );
        silent.report_batches(true);
        assert!(silent.is_empty(), "the connection is closed");
    }

    #[test]
    fn unread_data_is_dropped_and_ready_events_stay() {
        let mut events = EventQueue::new();
        events.push_datagrams(false);
        events.push(FINISHED);
        events.push_readable(0);
        assert_eq!(events.pop(false), Some(Pending::Datagrams { early: false }));
        events.push_more_datagrams(false);
        events.drop_unread();
        assert_eq!(drain(&mut events, false), [Pending::Ready(FINISHED)]);
    }

    #[test]
    fn connection_writable_is_reported_once_after_the_queues_were_full() {
        let mut events = EventQueue::new();
        events.note_full(false);
        assert!(!events.is_full() && !events.note_room());
        events.note_full(true);
        events.note_full(false);
        assert!(events.is_full() && events.note_room());
        assert!(!events.is_full() && !events.note_room());
    }
}
