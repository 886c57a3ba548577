//! The engine's commands on its transports. What each does is the transport's.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use uringcore_io::{Driver, Errno};

use super::Engine;
use crate::event::{Received, StreamBytes};
use crate::event_queue::Queue;
use crate::table::Key;
use crate::transport::Transport;
use crate::transport::datagram::{DatagramSize, DatagramSocket};
use crate::transport::lifecycle::WriteOutcome;
use crate::transport::shared_state::SharedState;
use crate::transport::stream::{NextReceive, Stream};
use crate::transport::transport_table::Transports;
use crate::transport::write_coalescer::Blocks;

impl Engine {
    /// Puts a connected, non-blocking socket on the engine; nothing is read before `start`. The host
    /// keeps the descriptor open until it has released the transport and heard of its end. `shared` is new,
    /// and shows the transport from now on.
    pub fn open_stream(&mut self, fd: RawFd, shared: SharedState) -> Key {
        self.transports
            .open(fd, shared, |life| Transport::Stream(Stream::new(life)))
    }

    /// The same for a datagram socket.
    pub fn open_datagram(&mut self, fd: RawFd, size: DatagramSize, shared: SharedState) -> Key {
        self.transports.open(fd, shared, |life| {
            Transport::Datagram(DatagramSocket::new(life, size))
        })
    }

    /// Others receive from the socket as well: a datagram is taken out of it one at a time, and only where
    /// the host takes the event.
    pub fn share_datagrams(&mut self, key: Key) {
        self.on(key, |one, driver, _| one.share_datagrams(driver));
    }

    /// Another datagram of a shared socket, without a wait: `None` where there is none, or the reader has paused
    /// or closed since.
    pub fn receive_another(&mut self, key: Key) -> Option<Received> {
        self.on(key, |one, _, events| match one {
            Transport::Datagram(socket) => socket.receive_another(events),
            Transport::Stream(_) => None,
        })?
    }

    /// True when a transport of this engine drives `fd` and is not closing, so that a watcher on it
    /// would steal its bytes.
    pub fn has_transport(&self, fd: RawFd) -> bool {
        let key = self.transports.by_fd.get(&fd);
        let life = key.and_then(|&key| Some(self.transports.table.get(key)?.life()));
        life.is_some_and(|life| !life.shared.is_closing())
    }

    /// Reading begins, unless the reader has paused.
    pub fn start(&mut self, key: Key) {
        self.on(key, |one, _, _| one.life_mut().start());
    }

    pub fn pause_reading(&mut self, key: Key) {
        self.on(key, |one, driver, _| one.pause_reading(driver));
    }

    pub fn resume_reading(&mut self, key: Key) {
        self.on(key, |one, _, _| one.life_mut().set_paused(false));
    }

    /// Half-closes after the queue; fails if the queue is empty and `shutdown` fails.
    pub fn finish_writing(&mut self, key: Key) -> io::Result<()> {
        self.on_stream(key, |stream, _| stream.finish_writing())
            .unwrap_or(Ok(()))
    }

    /// At which sizes of the queue its producer has to pause, and may go on.
    pub fn set_marks(&mut self, key: Key, low: usize, high: usize) -> WriteOutcome {
        self.on(key, |one, _, events| one.set_marks(low, high, events))
            .unwrap_or(WriteOutcome::Lost)
    }

    /// Another producer takes over, which has not heard whether it has to pause: the next command that
    /// finds the queue above its mark says so.
    pub fn change_producer(&mut self, key: Key) {
        self.on(key, |one, _, _| one.life().change_producer());
    }

    /// Asks for [`Event::Flushed`]. True: everything is with the kernel, and none follows.
    pub fn notify_when_flushed(&mut self, key: Key) -> bool {
        self.on(key, |one, _, _| one.notify_when_flushed())
            .unwrap_or(true)
    }

    /// What came of the receive that [`Event::StreamReadable`] asked for. True if the host is to ask
    /// [`receives_again`](Self::receives_again) as soon as it has told of the bytes.
    pub fn received(&mut self, key: Key, result: Result<usize, Errno>, next: NextReceive) -> bool {
        self.receive_budget.note(result.unwrap_or(0));
        self.on(key, |one, _, events| match one {
            Transport::Stream(stream) => stream.received_by_host(result, next, events),
            Transport::Datagram(_) => false,
        })
        .unwrap_or(false)
    }

    /// True if the host is to receive from the stream once more now, after one that filled its room.
    pub fn receives_again(&mut self, key: Key) -> bool {
        self.on(key, |one, _, events| match one {
            Transport::Stream(stream) => stream.receives_again(events),
            Transport::Datagram(_) => false,
        })
        .unwrap_or(false)
    }

    /// When it was told of bytes the stream's reader has scheduled something. That comes before the next ones,
    /// which may be there already.
    pub fn wait_a_turn(&mut self, key: Key) {
        self.on_stream(key, |stream, _| stream.wait_a_turn());
    }

    /// Keeps the rest of received bytes for a reader that paused in the middle of them.
    pub fn put_back(&mut self, key: Key, rest: Bytes) {
        self.on_stream(key, |stream, _| stream.put_back(rest));
    }

    /// Takes what was put back again, or what a nested turn of the host left of it. None: the reader has
    /// paused or waits a turn, or the stream is closed.
    pub fn take_back(&mut self, key: Key) -> Option<StreamBytes> {
        self.transports.stream(key)?.take_back()
    }

    /// Ends reading now and the transport after its queue; [`Event::Lost`] follows.
    pub fn close(&mut self, key: Key) {
        self.on(key, Transport::close);
    }

    /// Drops what is queued; [`Event::Lost`] follows, behind [`Event::Failed`] where a send has failed.
    pub fn abort(&mut self, key: Key) {
        self.on(key, |one, driver, events| {
            if !one.abort_failed(driver, events) {
                one.abort(driver, events);
            }
        });
    }

    /// The last command. With `fd` the engine closes the descriptor, without it the host does: after
    /// [`Event::Closed`], or now when this answers true, for then no event follows.
    pub fn release(&mut self, key: Key, fd: Option<OwnedFd>) -> bool {
        let transports = &mut self.transports;
        let Some(transport) = transports.table.get_mut(key) else {
            return true;
        };
        let raw_fd = transport.life().fd;
        let ended = transport.release(&mut self.driver, &mut self.events, fd);
        // The kernel may have given the number to a new connection before the last completion.
        if transports.by_fd.get(&raw_fd) == Some(&key) {
            transports.by_fd.remove(&raw_fd);
        }
        if ended {
            transports.table.remove(key);
        }
        ended
    }

    /// The way of every command: what it asks for is done by the next flush.
    fn on<T>(
        &mut self,
        key: Key,
        run: impl FnOnce(&mut Transport, &mut Driver, &mut Queue) -> T,
    ) -> Option<T> {
        let transport = self.transports.table.get_mut(key)?;
        let value = run(transport, &mut self.driver, &mut self.events);
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
        let Transports {
            table,
            blocks,
            dirty,
            ..
        } = &mut self.transports;
        let Transport::Stream(stream) = table.get_mut(key)? else {
            return None;
        };
        let value = run(stream, blocks);
        if stream.life.mark_dirty() {
            dirty.push(key);
        }
        Some(value)
    }
}
