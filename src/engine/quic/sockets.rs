//! The engine's QUIC endpoints: which of them have work this turn, and whose clock is due next.
//!
//! A client program may have thousands, each with one connection, so nothing that happens every turn
//! goes through all of them: a turn costs what its own endpoints cost. Not here: what an endpoint
//! does (`quic_socket`).

use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

use uringcore_io::{Completion, Driver};
use uringcore_quic::EndpointStats;

use crate::event::Event;
use crate::event_queue::Queue;
use crate::quic::socket::QuicSocket;
use crate::table::{Key, Table};

#[derive(Default)]
pub(crate) struct QuicSockets {
    /// Boxed, because the table keeps its slots after a peak and an endpoint is large.
    table: Table<Box<Entry>>,
    /// Endpoints that something happened to since they were flushed, each once.
    dirty: Vec<Key>,
    /// One entry for each endpoint that waits for a time, as [`Entry::deadline`] says.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Of the endpoints that are gone.
    past: EndpointStats,
}

struct Entry {
    endpoint: QuicSocket,
    is_dirty: bool,
    deadline: Option<Instant>,
}

impl QuicSockets {
    pub fn open(&mut self, make: impl FnOnce(Key) -> io::Result<QuicSocket>) -> io::Result<Key> {
        let key = self.table.try_insert_with(|key| {
            make(key).map(|endpoint| {
                Box::new(Entry {
                    endpoint,
                    is_dirty: false,
                    deadline: None,
                })
            })
        })?;
        self.mark_dirty(key);
        Ok(key)
    }

    /// The endpoint for commands; it will be flushed.
    pub fn get(&mut self, key: Key) -> Option<&mut QuicSocket> {
        self.mark_dirty(key);
        Some(&mut self.table.get_mut(key)?.endpoint)
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Connections of all endpoints together.
    pub fn connections(&self) -> usize {
        let each = self.table.iter();
        each.map(|(_, entry)| entry.endpoint.connections()).sum()
    }

    /// What all endpoints have counted, those that are gone included.
    pub fn totals(&self) -> EndpointStats {
        let mut sum = self.past;
        for (_, entry) in self.table.iter() {
            sum += entry.endpoint.protocol_stats();
        }
        sum
    }

    pub fn needs_flush(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// When a flushed endpoint's timer is due next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub fn handle_completion(&mut self, key: Key, sub: u8, completion: Completion, now: Instant) {
        if let Some(endpoint) = self.get(key) {
            endpoint.handle_completion(sub, completion, now);
        }
    }

    pub fn flush(&mut self, driver: &mut Driver, now: Instant, events: &mut Queue) {
        // The list keeps its memory: it is needed again in the next turn.
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut asks_others = false;
        for key in dirty.drain(..) {
            let Some(entry) = self.table.get_mut(key) else {
                continue;
            };
            entry.is_dirty = false;
            entry.endpoint.flush(driver, now);
            asks_others |= entry.endpoint.protocol().take_asks_others();
            if entry.endpoint.take_events_ready() {
                events.push(Event::QuicReady { endpoint: key });
            }
            self.enter_deadline(key);
            let entry = self.table.get(key);
            if entry.is_some_and(|entry| entry.endpoint.has_ended()) {
                self.forget_deadline(key);
                if let Some(mut entry) = self.table.remove(key) {
                    self.past += entry.endpoint.protocol().stats();
                }
                events.push(Event::QuicClosed { endpoint: key });
            }
        }
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        if asks_others {
            self.mark_all_dirty();
        }
    }

    /// Fires what is due, and tells the host of events that this turn's completions and timers made.
    pub fn handle_timeouts(&mut self, now: Instant, events: &mut Queue) {
        while let Some((_, raw)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            let key = Key::from_u64(raw);
            // Entered again by the flush that follows.
            self.forget_deadline(key);
            if let Some(endpoint) = self.get(key) {
                endpoint.handle_timeout(now);
            }
        }
        for key in &self.dirty {
            let entry = self.table.get_mut(*key);
            if entry.is_some_and(|entry| entry.endpoint.take_events_ready()) {
                events.push(Event::QuicReady { endpoint: *key });
            }
        }
    }

    /// In a forked child: all of them end with the next flush.
    pub fn leave_to_parent(&mut self) {
        let keys: Vec<Key> = self.table.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(endpoint) = self.get(key) {
                endpoint.leave_to_parent();
            }
        }
    }

    /// The process holds too much, and one of the others has it.
    fn mark_all_dirty(&mut self) {
        let keys: Vec<Key> = self.table.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.mark_dirty(key));
    }

    fn mark_dirty(&mut self, key: Key) {
        if let Some(entry) = self.table.get_mut(key)
            && !std::mem::replace(&mut entry.is_dirty, true)
        {
            self.dirty.push(key);
        }
    }

    fn enter_deadline(&mut self, key: Key) {
        let Some(entry) = self.table.get_mut(key) else {
            return;
        };
        let deadline = entry.endpoint.next_deadline();
        let entered = std::mem::replace(&mut entry.deadline, deadline);
        if entered == deadline {
            return;
        }
        if let Some(at) = entered {
            self.deadlines.remove(&(at, key.as_u64()));
        }
        self.deadlines.extend(deadline.map(|at| (at, key.as_u64())));
    }

    fn forget_deadline(&mut self, key: Key) {
        let entry = self.table.get_mut(key);
        if let Some(at) = entry.and_then(|entry| entry.deadline.take()) {
            self.deadlines.remove(&(at, key.as_u64()));
        }
    }
}
