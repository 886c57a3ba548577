//! The table of an engine's QUIC sockets, with those that have work for the next flush, and the next deadline.
//!
//! A client program may have thousands of sockets with one connection each. So no step of a loop iteration visits all
//! of them: a loop iteration visits only the sockets with work and those whose deadline has come.

use std::io;
use std::time::Instant;

use uringcore_io::{Completion, Driver};
use uringcore_quic::{ConnectionKey, Deadlines, EndpointStats};

use crate::event::EngineEvent;
use crate::event_queue::EventQueue;
use crate::generational_slab::{Key, Slab};
use crate::quic::socket::QuicSocket;

#[derive(Default)]
pub(crate) struct QuicSockets {
    /// Entries are boxed, because the slab keeps its slots after a peak and a socket is large.
    table: Slab<Box<SocketEntry>>,
    /// The sockets with commands or completions since their last flush, each once.
    dirty: Vec<Key>,
    /// The deadline of each socket that has a [`SocketEntry::deadline`].
    deadlines: Deadlines<u64>,
    /// The sum of the counters of sockets that have ended.
    past: EndpointStats,
}

struct SocketEntry {
    socket: QuicSocket,
    is_dirty: bool,
    deadline: Option<Instant>,
}

impl QuicSockets {
    pub fn open(&mut self, make: impl FnOnce(Key) -> io::Result<QuicSocket>) -> io::Result<Key> {
        let key = self.table.try_insert_with(|key| {
            make(key).map(|socket| {
                Box::new(SocketEntry {
                    socket,
                    is_dirty: false,
                    deadline: None,
                })
            })
        })?;
        self.mark_dirty(key);
        Ok(key)
    }

    /// A socket, for commands. It is included in the next flush.
    pub fn get(&mut self, key: Key) -> Option<&mut QuicSocket> {
        let entry = self.table.get_mut(key)?;
        if !std::mem::replace(&mut entry.is_dirty, true) {
            self.dirty.push(key);
        }
        Some(&mut entry.socket)
    }

    /// True if the host has given commands to a connection, and it is not certain that all their data were sent since.
    /// The commands have put the socket on the list for the next flush.
    pub fn is_commanded(&mut self, key: Key, connection: ConnectionKey) -> bool {
        let entry = self.table.get_mut(key);
        entry.is_some_and(|entry| entry.socket.protocol().is_commanded(connection))
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The number of connections on all sockets.
    pub fn connections(&self) -> usize {
        let each = self.table.iter();
        each.map(|(_, entry)| entry.socket.connections()).sum()
    }

    /// The sum of the counters of all sockets, including those that have ended.
    pub fn totals(&self) -> EndpointStats {
        let mut sum = self.past;
        for (_, entry) in self.table.iter() {
            sum += entry.socket.protocol_stats();
        }
        sum
    }

    pub fn needs_flush(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The earliest deadline of all sockets, as of their last flush.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    pub fn handle_completion(&mut self, key: Key, sub: u8, completion: Completion, now: Instant) {
        if let Some(socket) = self.get(key) {
            socket.handle_completion(sub, completion, now);
        }
    }

    pub fn flush(&mut self, driver: &mut Driver, now: Instant, events: &mut EventQueue) {
        // The list is emptied and keeps its memory for the next loop iteration.
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut asks_others = false;
        for key in dirty.drain(..) {
            let Some(entry) = self.table.get_mut(key) else {
                continue;
            };
            entry.is_dirty = false;
            entry.socket.flush(driver, now);
            asks_others |= entry.socket.protocol().take_asks_others();
            if entry.socket.take_events_ready() {
                events.push(EngineEvent::QuicReady { socket: key });
            }
            let deadline = entry.socket.next_deadline();
            self.deadlines
                .set(key.as_u64(), &mut entry.deadline, deadline);
            if entry.socket.has_ended() {
                self.deadlines.remove(key.as_u64(), &mut entry.deadline);
                if let Some(mut entry) = self.table.remove(key) {
                    self.past += entry.socket.protocol().stats();
                }
                events.push(EngineEvent::QuicClosed { socket: key });
            }
        }
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        if asks_others {
            self.mark_all_dirty();
        }
    }

    /// Runs the timers that are due. Queues an event for each socket whose connections have events because of
    /// completions or timers in this loop iteration.
    pub fn handle_timeouts(&mut self, now: Instant, events: &mut EventQueue) {
        while let Some(key) = self.deadlines.pop_due(now).map(Key::from_u64) {
            self.mark_dirty(key);
            if let Some(entry) = self.table.get_mut(key) {
                // The flush that follows stores the next deadline of the socket.
                entry.deadline = None;
                entry.socket.handle_timeout(now);
            }
        }
        for key in &self.dirty {
            let entry = self.table.get_mut(*key);
            if entry.is_some_and(|entry| entry.socket.take_events_ready()) {
                events.push(EngineEvent::QuicReady { socket: *key });
            }
        }
    }

    /// In a forked child: the next flush ends all sockets.
    pub fn leave_to_parent(&mut self) {
        let keys: Vec<Key> = self.table.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(socket) = self.get(key) {
                socket.leave_to_parent();
            }
        }
    }

    /// Marks all sockets as having work, because the process holds more data than its budget allows. In the next flush,
    /// each socket sheds the data that its own connections hold.
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
}
