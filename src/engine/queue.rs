//! What the host is to hear, in the order in which it happened.

use std::collections::VecDeque;

use crate::event::Event;
use crate::table::Key;

pub(crate) enum Queued {
    Event(Event),
    /// A stream that reads has a piece of its backlog due.
    HeldStream(Key),
    /// The same of a datagram socket.
    HeldDatagram(Key),
}

#[derive(Default)]
pub(crate) struct Queue(VecDeque<Queued>);

impl Queue {
    pub(crate) fn push(&mut self, event: Event) {
        self.0.push_back(Queued::Event(event));
    }

    pub(crate) fn push_held_stream(&mut self, key: Key) {
        self.0.push_back(Queued::HeldStream(key));
    }

    pub(crate) fn push_held_datagram(&mut self, key: Key) {
        self.0.push_back(Queued::HeldDatagram(key));
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        self.0.pop_front()
    }

    /// The first event of which `is_it` holds, taken out of its turn.
    pub(crate) fn take_first(&mut self, is_it: impl Fn(&Event) -> bool) -> Option<Event> {
        let is_it = |queued: &Queued| matches!(queued, Queued::Event(event) if is_it(event));
        let at = self.0.iter().position(is_it)?;
        match self.0.remove(at)? {
            Queued::Event(event) => Some(event),
            _ => None,
        }
    }

    /// Drops the events of which `keep`, which may change them, does not hold.
    pub(crate) fn retain_mut(&mut self, keep: impl Fn(&mut Event) -> bool) {
        self.0.retain_mut(|queued| match queued {
            Queued::Event(event) => keep(event),
            Queued::HeldStream(_) | Queued::HeldDatagram(_) => true,
        });
    }

    pub(crate) fn front(&self) -> Option<&Queued> {
        self.0.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
