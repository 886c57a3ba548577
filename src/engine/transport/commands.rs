//! Commands of a host for its transports. The next flush carries them out.
//!
//! Writes are in `write_commands`.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use uringcore_io::{Driver, Errno};

use super::Transport;
use super::cross_thread_state::SharedState;
use super::datagram_socket::{DatagramSize, DatagramSocket};
use super::lifecycle::WriteOutcome;
use super::stream::{NextReceive, Stream};
use super::transport_table::TransportTable;
use super::write_coalescer::Blocks;
use crate::completion_budget::ReceiveBudget;
use crate::event::{Received, StreamBytes};
use crate::event_queue::EventQueue;
use crate::generational_slab::Key;
use crate::held_writes::HeldWrites;

/// The commands for the streams and datagram sockets of an [`Engine`](crate::Engine). A command for a transport that
/// has ended has no effect.
pub struct Transports<'a> {
    pub(crate) transports: &'a mut TransportTable,
    pub(crate) driver: &'a mut Driver,
    pub(crate) events: &'a mut EventQueue,
    pub(crate) held: &'a mut HeldWrites,
    pub(crate) receive_budget: &'a mut ReceiveBudget,
}

impl Transports<'_> {
    /// Adds a connected, non-blocking socket. Nothing is read before [`start`](Self::start). The host keeps the
    /// descriptor open until it has released the transport and got its last event. `shared` must be a new one; from
    /// now on it shows the state of this transport.
    pub fn open_stream(&mut self, fd: RawFd, shared: SharedState) -> Key {
        self.transports
            .open(fd, shared, |life| Transport::Stream(Stream::new(life)))
    }

    /// Adds a datagram socket, under the rules of [`open_stream`](Self::open_stream).
    pub fn open_datagram(&mut self, fd: RawFd, size: DatagramSize, shared: SharedState) -> Key {
        self.transports.open(fd, shared, |life| {
            Transport::Datagram(DatagramSocket::new(life, size))
        })
    }

    /// Marks a datagram socket as shared: other processes or threads receive from it too. From now on one datagram at
    /// a time is received, and only when the host takes the event.
    pub fn share_datagrams(&mut self, key: Key) {
        self.on(key, |one, driver, _| one.share_datagrams(driver));
    }

    /// Receives another datagram from a shared socket without waiting. `None` if there is none, or if the reader is
    /// paused or closed.
    pub fn receive_another(&mut self, key: Key) -> Option<Received> {
        self.on(key, |one, _, events| match one {
            Transport::Datagram(socket) => socket.receive_another(events),
            Transport::Stream(_) => None,
        })?
    }

    /// True if `fd` belongs to a transport that is not closing. A watcher on `fd` would compete for its bytes.
    pub fn has_descriptor(&self, fd: RawFd) -> bool {
        let key = self.transports.by_fd.get(&fd);
        let life = key.and_then(|&key| Some(self.transports.by_key.get(key)?.life()));
        life.is_some_and(|life| !life.shared.is_closing())
    }

    /// Starts reading, unless the reader is paused.
    pub fn start(&mut self, key: Key) {
        self.on(key, |one, _, _| one.life_mut().start());
    }

    pub fn pause_reading(&mut self, key: Key) {
        self.on(key, |one, driver, _| one.pause_reading(driver));
    }

    pub fn resume_reading(&mut self, key: Key) {
        self.on(key, |one, _, _| one.life_mut().set_paused(false));
    }

    /// Half-closes the stream when its write queue is empty. Fails if the queue is empty now and `shutdown` fails.
    pub fn finish_writing(&mut self, key: Key) -> io::Result<()> {
        self.on_stream(key, |stream, _| stream.finish_writing())
            .unwrap_or(Ok(()))
    }

    /// Sets the marks of the write queue in bytes. Above `high` the producer has to pause; at `low` it may continue.
    pub fn set_marks(&mut self, key: Key, low: usize, high: usize) -> WriteOutcome {
        self.on(key, |one, _, events| one.set_marks(low, high, events))
            .unwrap_or(WriteOutcome::Lost)
    }

    /// Sets a new producer, which is not paused even if the old one was. The next command that finds the queue above
    /// its high mark returns [`WriteOutcome::PauseWriting`].
    pub fn change_producer(&mut self, key: Key) {
        self.on(key, |one, _, _| one.life().change_producer());
    }

    /// Requests an [`EngineEvent::Flushed`](crate::EngineEvent::Flushed). True if the queue is empty already; then no
    /// event follows.
    pub fn notify_when_flushed(&mut self, key: Key) -> bool {
        self.on(key, |one, _, _| one.notify_when_flushed())
            .unwrap_or(true)
    }

    /// Reports the result of the receive that the host made after
    /// [`EngineEvent::StreamReadable`](crate::EngineEvent::StreamReadable). True if the host has to call
    /// [`receives_again`](Self::receives_again) when it has delivered the bytes.
    pub fn received(&mut self, key: Key, result: Result<usize, Errno>, next: NextReceive) -> bool {
        self.receive_budget.note(result.unwrap_or(0));
        self.on(key, |one, _, events| match one {
            Transport::Stream(stream) => stream.received_by_host(result, next, events),
            Transport::Datagram(_) => false,
        })
        .unwrap_or(false)
    }

    /// True if the host has to receive from the stream once more now. This happens after a receive that filled its
    /// buffer.
    pub fn receives_again(&mut self, key: Key) -> bool {
        self.on(key, |one, _, events| match one {
            Transport::Stream(stream) => stream.receives_again(events),
            Transport::Datagram(_) => false,
        })
        .unwrap_or(false)
    }

    /// Stops delivery until the next loop iteration, because the reader has scheduled a callback while it got bytes. So
    /// that callback runs before more bytes are delivered.
    pub fn wait_for_next_iteration(&mut self, key: Key) {
        self.on_stream(key, |stream, _| stream.wait_for_next_iteration());
    }

    /// The reader of this stream has a buffer of its own, or has none any more. For such a buffer the host receives by
    /// itself from a smaller size on ([`EngineEvent::StreamReadable`](crate::EngineEvent::StreamReadable)).
    pub fn set_own_buffer(&mut self, key: Key, has_own_buffer: bool) {
        if let Some(stream) = self.transports.stream(key) {
            stream.set_own_buffer(has_own_buffer);
        }
    }

    /// Keeps `rest`, the part of received bytes that the reader has not taken before it paused.
    pub fn put_back(&mut self, key: Key, rest: Bytes) {
        self.on_stream(key, |stream, _| stream.put_back(rest));
    }

    /// Takes bytes that were put back, or the rest of them after a nested loop iteration of the host. `None` if the
    /// reader is paused or waits for the next loop iteration, or if the stream is closed.
    pub fn take_back(&mut self, key: Key) -> Option<StreamBytes> {
        self.transports.stream(key)?.take_back()
    }

    /// Stops reading now, and ends the transport when its write queue is empty. The event
    /// [`EngineEvent::Lost`](crate::EngineEvent::Lost) follows.
    pub fn close(&mut self, key: Key) {
        self.on(key, Transport::close);
    }

    /// Drops the write queue and ends the transport. The event [`EngineEvent::Lost`](crate::EngineEvent::Lost) follows;
    /// if a send has failed, [`EngineEvent::Failed`](crate::EngineEvent::Failed) comes before it.
    pub fn abort(&mut self, key: Key) {
        self.on(key, |one, driver, events| {
            if !one.abort_failed(driver, events) {
                one.abort(driver, events);
            }
        });
    }

    /// The last command for a transport. If `fd` is given, the engine closes the descriptor. Otherwise the host closes
    /// it: after [`EngineEvent::Closed`](crate::EngineEvent::Closed), or now if this returns true, because then no
    /// event follows.
    pub fn release(&mut self, key: Key, fd: Option<OwnedFd>) -> bool {
        let transports = &mut *self.transports;
        let Some(transport) = transports.by_key.get_mut(key) else {
            return true;
        };
        let raw_fd = transport.life().fd;
        let ended = transport.release(self.driver, self.events, fd);
        // Before the last completion arrives, the kernel may have given the descriptor number to a new connection.
        if transports.by_fd.get(&raw_fd) == Some(&key) {
            transports.by_fd.remove(&raw_fd);
        }
        if ended {
            transports.by_key.remove(key);
        }
        ended
    }

    /// Runs a command and adds its transport to the list for the next flush.
    fn on<T>(
        &mut self,
        key: Key,
        run: impl FnOnce(&mut Transport, &mut Driver, &mut EventQueue) -> T,
    ) -> Option<T> {
        let transport = self.transports.by_key.get_mut(key)?;
        let value = run(transport, self.driver, self.events);
        if transport.life_mut().mark_dirty() {
            self.transports.dirty.push(key);
        }
        Some(value)
    }

    fn on_stream<T>(
        &mut self,
        key: Key,
        run: impl FnOnce(&mut Stream, &mut Blocks) -> T,
    ) -> Option<T> {
        let TransportTable {
            by_key,
            blocks,
            dirty,
            ..
        } = &mut *self.transports;
        let Transport::Stream(stream) = by_key.get_mut(key)? else {
            return None;
        };
        let value = run(stream, blocks);
        if stream.life.mark_dirty() {
            dirty.push(key);
        }
        Some(value)
    }
}
