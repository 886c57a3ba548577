//! The engine's transports by key: which of them have work at the next flush, and whether what was queued
//! of them is still to be told. Not here: the commands on them (`turn`).

use std::collections::HashMap;
use std::os::fd::RawFd;

use uringcore_io::{Completion, Driver};

use crate::event::Event;
use crate::event_queue::Queue;
use crate::table::{Key, Table};
use crate::transport::Transport;
use crate::transport::datagram::DatagramSocket;
use crate::transport::lifecycle::Lifecycle;
use crate::transport::shared_state::SharedState;
use crate::transport::stream::{ReadEnd, Stream};
use crate::transport::write_coalescer::Blocks;
use crate::watchers::Direction;

#[derive(Default)]
pub(crate) struct Transports {
    pub(crate) table: Table<Transport>,
    /// Descriptors that a transport drives.
    pub(crate) by_fd: HashMap<RawFd, Key>,
    pub(crate) dirty: Vec<Key>,
    pub(crate) blocks: Blocks,
    pub(crate) counts: Counts,
}

/// What is counted since the engine was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// System calls of streams that did not go through the driver.
    pub(crate) direct_sends: u64,
    /// Bytes that arrived for readers that had paused.
    pub(crate) bytes_held: u64,
    /// The same in datagrams.
    pub(crate) datagrams_held: u64,
}

impl Transports {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Transport> {
        self.table.iter().map(|(_, one)| one)
    }

    pub(crate) fn needs_flush(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(crate) fn flush(&mut self, driver: &mut Driver, events: &mut Queue) {
        // The list keeps its memory: it is needed again in the next turn.
        let alone = self.dirty.len() == 1;
        for key in self.dirty.drain(..) {
            let Some(transport) = self.table.get_mut(key) else {
                continue;
            };
            transport.flush(alone, driver, events);
            if let Transport::Stream(stream) = transport {
                self.counts.direct_sends += stream.take_direct_sends();
                stream.give_block_back(&mut self.blocks);
            }
        }
    }

    pub(crate) fn handle_completion(
        &mut self,
        key: Key,
        sub: u8,
        completion: Completion,
        driver: &mut Driver,
        events: &mut Queue,
    ) {
        if let Some(transport) = self.table.get_mut(key) {
            transport.handle_completion(sub, completion, driver, events);
            if let Transport::Stream(stream) = transport {
                stream.give_block_back(&mut self.blocks);
            }
        }
    }

    /// `event`, unless its transport was paused or closed since it was queued.
    pub(crate) fn still_due(
        &mut self,
        event: Event,
        driver: &mut Driver,
        events: &mut Queue,
    ) -> Option<Event> {
        match event {
            Event::StreamData { stream: key, data } => {
                let stream = self.stream(key)?;
                let size = data.len() as u64;
                let Some(data) = stream.deliver(data) else {
                    self.counts.bytes_held += size;
                    return None;
                };
                if stream.awaits_flush() && stream.life.mark_dirty() {
                    self.dirty.push(key);
                }
                Some(Event::StreamData { stream: key, data })
            }
            Event::StreamReadable { stream, .. } => {
                let is_due = self.stream(stream)?.deliver_readable();
                // Also where nothing comes of it, or the host fails to receive.
                self.mark_dirty(stream);
                is_due.then_some(event)
            }
            Event::StreamEof { stream } => {
                let is_due = self.stream(stream)?.deliver_end(ReadEnd::Eof);
                is_due.then_some(event)
            }
            Event::Failed {
                transport,
                side,
                error,
            } => {
                let stream = self.stream(transport)?;
                let is_due = match side {
                    Direction::Read => stream.deliver_end(ReadEnd::Error(error)),
                    Direction::Write => stream.life.is_failed(),
                };
                if is_due {
                    self.table.get_mut(transport)?.abort(driver, events);
                }
                is_due.then_some(event)
            }
            Event::DatagramReceived { socket, datagram } => {
                let Some(datagram) = self.socket(socket)?.deliver(datagram) else {
                    self.counts.datagrams_held += 1;
                    return None;
                };
                Some(Event::DatagramReceived { socket, datagram })
            }
            Event::DatagramError { socket, .. } => {
                self.socket(socket)?.life.errors_unreported -= 1;
                Some(event)
            }
            Event::Writable { transport } => {
                let is_due = self.table.get_mut(transport)?.life_mut().tell_fall();
                is_due.then_some(event)
            }
            Event::Lost { transport } => {
                let is_due = self.table.get_mut(transport)?.life_mut().tell_lost();
                is_due.then_some(event)
            }
            // Its index is free for another one no sooner: a host that finds its own things by index may
            // meet the successor in an event before this one.
            Event::Closed { transport } => {
                self.table.remove(transport);
                Some(event)
            }
            _ => Some(event),
        }
    }

    /// A piece of what waited for a reader that had paused. The next turn has the next one, or a receive.
    pub(crate) fn next_of_backlog(&mut self, key: Key) -> Option<Event> {
        self.mark_dirty(key);
        Some(match self.table.get_mut(key)? {
            Transport::Stream(stream) => Event::StreamData {
                stream: key,
                data: stream.deliver_backlog()?,
            },
            Transport::Datagram(socket) => Event::DatagramReceived {
                socket: key,
                datagram: socket.deliver_backlog()?,
            },
        })
    }

    /// The host takes what comes of a shared socket's readiness: a datagram, or why there is none.
    pub(crate) fn receive_one(&mut self, key: Key) -> Option<Event> {
        self.mark_dirty(key);
        self.socket(key)?.receive_one()
    }

    pub(crate) fn share_datagrams(&mut self, driver: &mut Driver) {
        for transport in self.table.iter_mut() {
            transport.share_datagrams(driver);
        }
    }

    /// In a forked child: the parent sends what was commanded since the last flush.
    pub(crate) fn leave_queues_to_parent(&mut self, driver: &mut Driver, events: &mut Queue) {
        for &key in &self.dirty {
            if let Some(transport) = self.table.get_mut(key) {
                transport.leave_queue_to_parent(driver, events);
            }
        }
    }

    pub(crate) fn open(
        &mut self,
        fd: RawFd,
        shared: SharedState,
        make: impl FnOnce(Lifecycle) -> Transport,
    ) -> Key {
        let key = self
            .table
            .insert_with(|key| make(Lifecycle::new(fd, key, shared)));
        self.by_fd.insert(fd, key);
        key
    }

    pub(crate) fn stream(&mut self, key: Key) -> Option<&mut Stream> {
        match self.table.get_mut(key)? {
            Transport::Stream(stream) => Some(stream),
            Transport::Datagram(_) => None,
        }
    }

    fn socket(&mut self, key: Key) -> Option<&mut DatagramSocket> {
        match self.table.get_mut(key)? {
            Transport::Datagram(socket) => Some(socket),
            Transport::Stream(_) => None,
        }
    }

    fn mark_dirty(&mut self, key: Key) {
        if let Some(transport) = self.table.get_mut(key)
            && transport.life_mut().mark_dirty()
        {
            self.dirty.push(key);
        }
    }
}
