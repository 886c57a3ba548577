//! Streams and datagram sockets, and what both have in common: commands, the flush, and the routing of completions.
//!
//! | file | content |
//! | --- | --- |
//! | `commands` | [`Transports`]: the commands of a host |
//! | `write_commands` | writes of a host: sent at once or held |
//! | `transport_table` | the transports by key, and those with work for the next flush |
//! | `lifecycle` | the phases of a transport, from its opening to its end; paused readers and producers |
//! | `cross_thread_state` | [`SharedState`]: the state of a transport that any thread may read |
//! | `stream` | the bytes of a stream: sending, receiving |
//! | `write_queue` | the bytes that a stream has to send |
//! | `write_coalescer` | the last small writes of a stream, gathered in one block |
//! | `datagram_socket` | the datagrams of a socket: send queue, receive |
//! | `receive_backlog` | data that arrived while its reader was paused |
//!
//! State that few transports have at a time (a backlog, the cause of the end, requests for `Flushed`) is in a box that
//! the other transports do without.

use std::os::fd::OwnedFd;

use uringcore_io::{Completion, Driver, Outcome};

use crate::event::EngineEvent;
use crate::event_queue::EventQueue;

pub(crate) mod commands;
pub(crate) mod cross_thread_state;
pub(crate) mod datagram_socket;
pub(crate) mod lifecycle;
pub(crate) mod receive_backlog;
pub(crate) mod stream;
pub(crate) mod transport_table;
pub(crate) mod write_coalescer;
pub(crate) mod write_commands;
pub(crate) mod write_queue;

pub use commands::Transports;
pub use cross_thread_state::{HIGH_MARK_BYTES, SharedState};
pub use datagram_socket::DatagramSize;
pub use lifecycle::WriteOutcome;
pub use stream::NextReceive;
pub use write_commands::Piece;

use datagram_socket::DatagramSocket;
use lifecycle::{Lifecycle, SUB_RECV, SUB_SEND};
use stream::Stream;

pub(crate) enum Transport {
    Stream(Stream),
    Datagram(DatagramSocket),
}

// Each idle connection has one `Transport`, so its size matters.
const _: () = assert!(size_of::<Transport>() <= 136);

impl Transport {
    pub(crate) fn life(&self) -> &Lifecycle {
        match self {
            Self::Stream(stream) => &stream.life,
            Self::Datagram(socket) => &socket.life,
        }
    }

    pub(crate) fn life_mut(&mut self) -> &mut Lifecycle {
        match self {
            Self::Stream(stream) => &mut stream.life,
            Self::Datagram(socket) => &mut socket.life,
        }
    }

    // Commands -----------------------------------------------------------------------------------

    /// Stops delivery at once. Data that arrives before the receive is cancelled goes into the backlog.
    pub(crate) fn pause_reading(&mut self, driver: &mut Driver) {
        self.life_mut().set_paused(true);
        if let Self::Stream(stream) = self {
            stream.expect_pauses();
        }
        self.life().cancel_receive(driver);
    }

    /// Marks a datagram socket as shared, so that datagrams stay in it until the host takes the event.
    pub(crate) fn share_datagrams(&mut self, driver: &mut Driver) {
        if let Self::Datagram(socket) = self {
            socket.share(driver);
        }
    }

    pub(crate) fn set_marks(
        &mut self,
        low: usize,
        high: usize,
        events: &mut EventQueue,
    ) -> WriteOutcome {
        self.life().shared.set_marks(low, high);
        // As in `DatagramSocket::send`, the producer has to pause only if the socket has no room.
        if let Self::Datagram(socket) = self
            && socket.life.is_too_full()
        {
            socket.send_now(events);
        }
        self.life().check_high_mark()
    }

    /// True if the kernel has taken all written data. Otherwise one [`EngineEvent::Flushed`] follows.
    pub(crate) fn notify_when_flushed(&mut self) -> bool {
        let is_drained = self.is_drained();
        self.life_mut().want_flushed(!is_drained);
        is_drained
    }

    /// Stops reading now, and ends the transport when its write queue is empty.
    pub(crate) fn close(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        if self.life().shared.is_closing() {
            return;
        }
        // Bytes that were written in this loop iteration may not be sent yet. asyncio, which sends at once, would have
        // sent them before `close`.
        self.send_now(events);
        self.stop_reading(driver);
        let is_drained = self.is_drained();
        self.life_mut().close(is_drained, events);
    }

    /// Drops the write queue and ends the transport.
    pub(crate) fn abort(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        if self.life().shared.is_quiet() {
            return;
        }
        // Reading stops, and written bytes are sent as far as the socket accepts them at once, as in `close`.
        self.send_now(events);
        self.stop_reading(driver);
        match self {
            Self::Stream(stream) => stream.drop_queue(driver),
            Self::Datagram(socket) => socket.drop_queue(driver),
        }
        self.life_mut().stop_all(events);
    }

    /// If a send of this stream has failed, closes the stream and returns true. The stream ends when the host takes the
    /// event of the failure.
    pub(crate) fn abort_failed(&mut self, driver: &mut Driver, events: &mut EventQueue) -> bool {
        let Self::Stream(stream) = self else {
            return false;
        };
        stream.send_now();
        stream.report_send_error(driver, events);
        let is_failed = stream.life.is_failed();
        if is_failed {
            self.stop_reading(driver);
            self.life().shared.set(cross_thread_state::CLOSING, true);
        }
        is_failed
    }

    /// Releases the descriptor. If `fd` is given, the driver closes it (with a linked cancellation of all operations,
    /// so that the peer gets a FIN). Otherwise the host closes it: after the last event, or now if this returns true,
    /// because then no operation is in flight and no event follows.
    pub(crate) fn release(
        &mut self,
        driver: &mut Driver,
        events: &mut EventQueue,
        fd: Option<OwnedFd>,
    ) -> bool {
        self.abort(driver, events);
        self.life_mut().release(driver, fd)
    }

    // The loop iteration -------------------------------------------------------------------------

    /// Starts the receive, the send, the half-close or the end that the state requires. `alone` means that no other
    /// transport has work in this loop iteration. The bytes are then sent by a system call here: a queued send would
    /// complete during the wait for the answer and end that wait, so a single request would cost two loop iterations.
    /// With many transports, the shared submission is worth the second iteration.
    pub(crate) fn flush(&mut self, alone: bool, driver: &mut Driver, events: &mut EventQueue) {
        self.life_mut().unmark_dirty();
        match self {
            Self::Stream(stream) => {
                if alone {
                    stream.send_now();
                }
                stream.flush_input(driver, events);
                stream.flush_queue(driver, events);
            }
            Self::Datagram(socket) => {
                socket.flush_input(driver, events);
                socket.flush_queue(driver, events);
            }
        }
    }

    pub(crate) fn handle_completion(
        &mut self,
        sub: u8,
        completion: Completion,
        driver: &mut Driver,
        events: &mut EventQueue,
    ) {
        let more = completion.more();
        let life = self.life_mut();
        match sub {
            SUB_RECV => {
                if !more {
                    life.recv_op = None;
                }
                match self {
                    Self::Stream(one) => one.received(completion.outcome, more, driver, events),
                    Self::Datagram(one) => one.received(completion.outcome, driver, events),
                }
            }
            SUB_SEND => {
                life.send_op = None;
                if let Outcome::Done(result) = completion.outcome
                    && life.is_sending()
                {
                    match self {
                        Self::Stream(stream) => stream.sent(result, driver, events),
                        Self::Datagram(socket) => socket.sent(result, driver, events),
                    }
                }
            }
            _ => life.closed(),
        }
        let life = self.life_mut();
        if life.end_if_idle() {
            let transport = life.key;
            events.push(EngineEvent::Closed { transport });
        }
    }

    /// In a forked child: drops commands that were not flushed, because the parent carries them out.
    pub(crate) fn leave_queue_to_parent(&mut self, driver: &mut Driver, events: &mut EventQueue) {
        match self {
            Self::Stream(stream) => stream.leave_queue_to_parent(driver, events),
            Self::Datagram(socket) => socket.leave_queue_to_parent(events),
        }
    }

    pub(crate) fn send_now(&mut self, events: &mut EventQueue) {
        match self {
            Self::Stream(stream) => stream.send_now(),
            Self::Datagram(socket) => socket.send_now(events),
        }
    }

    fn is_drained(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.is_drained(),
            Self::Datagram(socket) => socket.is_drained(),
        }
    }

    fn stop_reading(&mut self, driver: &mut Driver) {
        match self {
            Self::Stream(stream) => stream.drop_input(),
            Self::Datagram(socket) => socket.drop_input(),
        }
        self.life().cancel_receive(driver);
    }
}
