//! The transports of an engine by key, the list of those with work for the next flush, and the check whether a queued
//! event is still due when the host takes it.

use std::os::fd::RawFd;

use rustc_hash::FxHashMap;
use uringcore_io::{Completion, Driver};

use crate::event::EngineEvent;
use crate::event_queue::EventQueue;
use crate::generational_slab::{Key, Slab};
use crate::readiness_watchers::Direction;
use crate::transport::Transport;
use crate::transport::cross_thread_state::SharedState;
use crate::transport::datagram_socket::DatagramSocket;
use crate::transport::lifecycle::Lifecycle;
use crate::transport::stream::{ReadEnd, Stream};
use crate::transport::write_coalescer::Blocks;

#[derive(Default)]
pub(crate) struct TransportTable {
    pub(crate) by_key: Slab<Transport>,
    /// The transport of each descriptor.
    pub(crate) by_fd: FxHashMap<RawFd, Key>,
    pub(crate) dirty: Vec<Key>,
    pub(crate) blocks: Blocks,
    pub(crate) counts: Counts,
}

/// Counters since the engine was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Sends of streams by system calls that bypassed the driver.
    pub(crate) direct_sends: u64,
    /// The bytes of streams that arrived while their readers were paused.
    pub(crate) bytes_held: u64,
    /// The number of datagrams that arrived while their readers were paused.
    pub(crate) datagrams_held: u64,
}

impl TransportTable {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Transport> {
        self.by_key.iter().map(|(_, one)| one)
    }

    pub(crate) fn needs_flush(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(crate) fn flush(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        // The list is emptied and keeps its memory for the next loop iteration.
        let alone = self.dirty.len() == 1;
        for key in self.dirty.drain(..) {
            let Some(transport) = self.by_key.get_mut(key) else {
                continue;
            };
            transport.flush(alone, driver, events);
            if let Transport::Stream(stream) = transport {
                self.counts.direct_sends += stream.queue.take_direct_sends();
                stream.queue.give_block_back(&mut self.blocks);
            }
        }
    }

    pub(crate) fn handle_completion(
        &mut self,
        key: Key,
        sub: u8,
        completion: Completion,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        if let Some(transport) = self.by_key.get_mut(key) {
            transport.handle_completion(sub, completion, driver, events);
            if let Transport::Stream(stream) = transport {
                stream.queue.give_block_back(&mut self.blocks);
            }
        }
    }

    /// Returns `event`, or `None` if its transport was paused or closed since the event was queued.
    pub(crate) fn still_due(
        &mut self,
        event: EngineEvent,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) -> Option<EngineEvent> {
        match event {
            EngineEvent::StreamData { stream: key, data } => {
                let stream = self.stream(key)?;
                let size = data.len() as u64;
                let Some(data) = stream.deliver(data) else {
                    self.counts.bytes_held += size;
                    return None;
                };
                if stream.awaits_flush() && stream.life.mark_dirty() {
                    self.dirty.push(key);
                }
                Some(EngineEvent::StreamData { stream: key, data })
            }
            EngineEvent::StreamReadable { stream, .. } => {
                let is_due = self.stream(stream)?.deliver_readable();
                // The flush has to arm the receive again, even if the event is not due any more or the host fails to
                // receive.
                self.mark_dirty(stream);
                is_due.then_some(event)
            }
            EngineEvent::StreamEof { stream } => {
                let is_due = self.stream(stream)?.deliver_end(ReadEnd::Eof);
                is_due.then_some(event)
            }
            EngineEvent::Failed {
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
                    self.by_key.get_mut(transport)?.abort(driver, events);
                }
                is_due.then_some(event)
            }
            EngineEvent::DatagramReceived { socket, datagram } => {
                let Some(datagram) = self.socket(socket)?.deliver(datagram) else {
                    self.counts.datagrams_held += 1;
                    return None;
                };
                Some(EngineEvent::DatagramReceived { socket, datagram })
            }
            EngineEvent::DatagramError { socket, .. } => {
                self.socket(socket)?.life.errors_unreported -= 1;
                Some(event)
            }
            EngineEvent::Writable { transport } => {
                let is_due = self.by_key.get_mut(transport)?.life_mut().take_writable();
                is_due.then_some(event)
            }
            EngineEvent::Lost { transport } => {
                let is_due = self.by_key.get_mut(transport)?.life_mut().take_lost();
                is_due.then_some(event)
            }
            // The index becomes free only now, when the host takes the last event. A host that finds its objects by
            // index would otherwise get events of the next transport before this one.
            EngineEvent::Closed { transport } => {
                self.by_key.remove(transport);
                Some(event)
            }
            _ => Some(event),
        }
    }

    /// Takes one piece of a transport's backlog. The next loop iteration delivers the next piece or receives again.
    pub(crate) fn next_of_backlog(&mut self, key: Key) -> Option<EngineEvent> {
        self.mark_dirty(key);
        Some(match self.by_key.get_mut(key)? {
            Transport::Stream(stream) => EngineEvent::StreamData {
                stream: key,
                data: stream.deliver_backlog()?,
            },
            Transport::Datagram(socket) => EngineEvent::DatagramReceived {
                socket: key,
                datagram: socket.deliver_backlog()?,
            },
        })
    }

    /// Receives a datagram, or the error, when the host takes the entry for a readable shared socket.
    pub(crate) fn receive_one(&mut self, key: Key) -> Option<EngineEvent> {
        self.mark_dirty(key);
        self.socket(key)?.receive_one()
    }

    pub(crate) fn share_datagrams(&mut self, driver: &mut Driver) {
        for transport in self.by_key.iter_mut() {
            transport.share_datagrams(driver);
        }
    }

    /// In a forked child: drops the commands since the last flush, because the parent carries them out.
    pub(crate) fn leave_queues_to_parent(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        for &key in &self.dirty {
            if let Some(transport) = self.by_key.get_mut(key) {
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
            .by_key
            .insert_with(|key| make(Lifecycle::new(fd, key, shared)));
        self.by_fd.insert(fd, key);
        key
    }

    pub(crate) fn stream(&mut self, key: Key) -> Option<&mut Stream> {
        match self.by_key.get_mut(key)? {
            Transport::Stream(stream) => Some(stream),
            Transport::Datagram(_) => None,
        }
    }

    fn socket(&mut self, key: Key) -> Option<&mut DatagramSocket> {
        match self.by_key.get_mut(key)? {
            Transport::Datagram(socket) => Some(socket),
            Transport::Stream(_) => None,
        }
    }

    fn mark_dirty(&mut self, key: Key) {
        if let Some(transport) = self.by_key.get_mut(key)
            && transport.life_mut().mark_dirty()
        {
            self.dirty.push(key);
        }
    }
}
