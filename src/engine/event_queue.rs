//! The events that the host has not taken yet, in the order in which they happened.

use std::collections::VecDeque;

use uringcore_io::RecvBuf;

use crate::event::{EngineEvent, StreamBytes};
use crate::generational_slab::Key;

pub(crate) enum QueuedEvent {
    Event(EngineEvent),
    /// A piece of a transport's backlog is due, and the reader is not paused.
    Backlog(Key),
    /// A shared listener is readable. A connection is accepted only when the host takes this entry.
    Acceptable(Key),
    /// A shared datagram socket is readable. A datagram is received only when the host takes this entry.
    Receivable(Key),
    /// The event was dropped, or taken before earlier ones. The entry stays, because hosts count the entries and give
    /// each a position among their callbacks.
    Nothing,
}

#[derive(Default)]
pub(crate) struct EventQueue(VecDeque<QueuedEvent>);

impl EventQueue {
    pub(crate) fn push(&mut self, event: EngineEvent) {
        self.0.push_back(QueuedEvent::Event(event));
    }

    /// Queues received bytes of a stream. If the last queued event has the bytes before them, and only the end of a
    /// buffer has separated both, the bytes are joined to that event: some programs treat each piece as one message.
    pub(crate) fn push_stream_data(&mut self, stream: Key, mut received: RecvBuf) {
        if let Some(QueuedEvent::Event(EngineEvent::StreamData { stream: last, data })) =
            self.0.back_mut()
            && *last == stream
        {
            match data.join(received) {
                Ok(()) => return,
                Err(separate) => received = separate,
            }
        }
        let data = StreamBytes::Buffer(received);
        self.push(EngineEvent::StreamData { stream, data });
    }

    pub(crate) fn push_backlog(&mut self, key: Key) {
        self.0.push_back(QueuedEvent::Backlog(key));
    }

    pub(crate) fn push_acceptable(&mut self, key: Key) {
        self.0.push_back(QueuedEvent::Acceptable(key));
    }

    pub(crate) fn push_receivable(&mut self, key: Key) {
        self.0.push_back(QueuedEvent::Receivable(key));
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedEvent> {
        self.0.pop_front()
    }

    /// Removes and returns the first event for which `matches` returns true, even if other events are before it.
    pub(crate) fn take_first(
        &mut self,
        matches: impl Fn(&EngineEvent) -> bool,
    ) -> Option<EngineEvent> {
        let is_match =
            |entry: &QueuedEvent| matches!(entry, QueuedEvent::Event(event) if matches(event));
        let entry = self.0.iter_mut().find(|entry| is_match(entry))?;
        match std::mem::replace(entry, QueuedEvent::Nothing) {
            QueuedEvent::Event(event) => Some(event),
            _ => None,
        }
    }

    /// Drops the events for which `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&EngineEvent) -> bool) {
        for entry in &mut self.0 {
            if let QueuedEvent::Event(event) = entry
                && !keep(event)
            {
                *entry = QueuedEvent::Nothing;
            }
        }
    }

    pub(crate) fn front(&self) -> Option<&QueuedEvent> {
        self.0.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
