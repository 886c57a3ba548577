//! The events that wait for the host, and those that will follow: the end of a batch of datagrams, and room in the
//! send queues.
//!
//! Not here: how events are made (`events`).

use std::collections::VecDeque;

use crate::Event;

/// The events of one connection. The state machine's receive windows bound the data in them.
pub(super) struct EventQueue {
    queue: VecDeque<Pending>,
    batches: Batches,
    /// The send queues were full, and `ConnectionWritable` follows.
    is_full: bool,
}

/// An event, or a reference that is resolved when the host polls.
#[derive(Debug, PartialEq)]
pub(super) enum Pending {
    Ready(Event),
    /// Read as late as possible, so that one event carries as much data as possible.
    Readable(u64),
    /// `early` if the first of them arrived before the handshake was complete.
    Datagrams {
        early: bool,
    },
    /// Delivered after all others.
    Batch,
}

/// The state of `BatchHandled` events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batches {
    Unreported,
    /// Not reported, and there was a batch.
    Missed,
    Reported,
    /// The event is queued.
    Pending,
}

impl EventQueue {
    pub fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            batches: Batches::Unreported,
            is_full: false,
        }
    }

    /// The queue of a connection that a client has begun, whose first datagram is being handled.
    pub fn accepted() -> Self {
        Self {
            queue: VecDeque::from([Pending::Ready(Event::Accepted)]),
            batches: Batches::Missed,
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

    /// A stream has data that the host gets by an event.
    pub fn push_readable(&mut self, stream_id: u64) {
        self.queue.push_back(Pending::Readable(stream_id));
    }

    /// Datagrams have arrived.
    pub fn push_datagrams(&mut self, early: bool) {
        self.queue.push_back(Pending::Datagrams { early });
    }

    /// More of the datagrams that [`pop`](Self::pop) has just returned wait.
    pub fn push_more_datagrams(&mut self, early: bool) {
        self.queue.push_front(Pending::Datagrams { early });
    }

    /// The next entry. The end of a batch follows all others, and nothing follows the end of the connection.
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
                self.batches = Batches::Reported;
                return Some(next);
            }
            self.queue.push_back(next);
        }
    }

    /// Drops references to data, which the host will not read.
    pub fn drop_unread(&mut self) {
        self.queue
            .retain(|event| matches!(event, Pending::Ready(_)));
    }

    /// A datagram or a timer is being handled.
    pub fn note_batch(&mut self, is_closed: bool) {
        match self.batches {
            Batches::Unreported => self.batches = Batches::Missed,
            Batches::Reported if !is_closed => {
                self.batches = Batches::Pending;
                self.queue.push_back(Pending::Batch);
            }
            Batches::Missed | Batches::Reported | Batches::Pending => {}
        }
    }

    /// Reports batches from now on, including one that has been handled already.
    pub fn report_batches(&mut self, is_closed: bool) {
        let is_missed = self.batches == Batches::Missed;
        if is_missed || self.batches == Batches::Unreported {
            self.batches = Batches::Reported;
        }
        if is_missed {
            self.note_batch(is_closed);
        }
    }

    /// True if the send queues were full and `ConnectionWritable` follows.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    #[inline]
    pub fn note_full(&mut self, is_full: bool) {
        self.is_full |= is_full;
    }

    /// The send queues have room again. Returns true if `ConnectionWritable` was to follow.
    #[inline]
    pub fn note_room(&mut self) -> bool {
        std::mem::take(&mut self.is_full)
    }

    /// Frees the unused capacity.
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
    fn the_end_of_a_batch_follows_everything_that_is_queued_meanwhile_and_comes_once() {
        let mut events = EventQueue::new();
        events.report_batches(false);
        assert!(events.is_empty(), "there was no batch");
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
    fn a_batch_before_the_host_asked_is_reported_and_none_after_the_end() {
        let mut accepted = EventQueue::accepted();
        accepted.report_batches(false);
        let all = [Pending::Ready(Event::Accepted), Pending::Batch];
        assert_eq!(drain(&mut accepted, false), all);
        accepted.note_batch(false);
        assert_eq!(drain(&mut accepted, true), []);
        let mut silent = EventQueue::new();
        silent.note_batch(false);
        assert!(silent.is_empty(), "the host has not asked");
        silent.report_batches(true);
        assert!(silent.is_empty(), "the connection is closed");
    }

    #[test]
    fn unread_data_is_dropped_and_events_that_are_ready_stay() {
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
    fn room_is_reported_once_for_queues_that_were_full() {
        let mut events = EventQueue::new();
        events.note_full(false);
        assert!(!events.is_full() && !events.note_room());
        events.note_full(true);
        events.note_full(false);
        assert!(events.is_full() && events.note_room());
        assert!(!events.is_full() && !events.note_room());
    }
}
