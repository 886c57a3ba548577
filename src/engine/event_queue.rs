//! What the host is to hear, in the order in which it happened.

use std::collections::VecDeque;

use crate::event::Event;
use crate::table::Key;

pub(crate) enum Queued {
    Event(Event),
    /// A transport that reads has a piece of its backlog due.
    Backlog(Key),
    /// A shared listener was readable: a connection is accepted where this is taken.
    Acceptable(Key),
    /// A shared datagram socket was readable: a datagram is received where this is taken.
    Receivable(Key),
    /// What was here is told already, or nobody's: hosts give each entry its place, and count.
    Nothing,
}

#[derive(Default)]
pub(crate) struct Queue(VecDeque<Queued>);

impl Queue {
    pub(crate) fn push(&mut self, event: Event) {
        self.0.push_back(Queued::Event(event));
    }

    pub(crate) fn push_backlog(&mut self, key: Key) {
        self.0.push_back(Queued::Backlog(key));
    }

    pub(crate) fn push_acceptable(&mut self, key: Key) {
        self.0.push_back(Queued::Acceptable(key));
    }

    pub(crate) fn push_receivable(&mut self, key: Key) {
        self.0.push_back(Queued::Receivable(key));
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        self.0.pop_front()
    }

    /// The first event of which `is_it` holds, taken out of its turn.
    pub(crate) fn take_first(&mut self, is_it: impl Fn(&Event) -> bool) -> Option<Event> {
        let is_it = |queued: &Queued| matches!(queued, Queued::Event(event) if is_it(event));
        let queued = self.0.iter_mut().find(|queued| is_it(queued))?;
        match std::mem::replace(queued, Queued::Nothing) {
            Queued::Event(event) => Some(event),
            _ => None,
        }
    }

    /// Drops the events of which `keep` does not hold.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Event) -> bool) {
        for queued in &mut self.0 {
            if let Queued::Event(event) = queued
                && !keep(event)
            {
                *queued = Queued::Nothing;
            }
        }
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
