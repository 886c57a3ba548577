//! Streams and datagram sockets, and what both have in common: the commands of their life, the flush, the routing of a
//! completion.
//!
//! | file | content |
//! | --- | --- |
//! | `transport_table` | the transports by key, and those with work for the next flush |
//! | `lifecycle` | the phases of a transport, from its opening to its end; paused readers and producers |
//! | `shared_state` | [`SharedState`]: the state of a transport that any thread may read |
//! | `stream` | the bytes of a stream: write queue, receive |
//! | `write_coalescer` | the last small writes of a stream, gathered in one block |
//! | `datagram` | the datagrams of a socket: send queue, receive |
//! | `backlog` | data that arrived for a paused reader |
//!
//! State that few transports have at a time (a backlog, the cause of the end, waiters for an empty queue) is in a box
//! that other transports go without.

use std::os::fd::OwnedFd;

use uringcore_io::{Completion, Driver, Outcome};

use crate::event::Event;
use crate::event_queue::Queue;

pub(crate) mod backlog;
pub(crate) mod datagram;
pub(crate) mod lifecycle;
pub(crate) mod shared_state;
pub(crate) mod stream;
pub(crate) mod transport_table;
pub(crate) mod write_coalescer;

pub use datagram::DatagramSize;
pub use lifecycle::WriteOutcome;
pub use shared_state::{HIGH_MARK_BYTES, SharedState};
pub use stream::NextReceive;

use datagram::DatagramSocket;
use lifecycle::{Lifecycle, SUB_RECV, SUB_SEND};
use stream::Stream;

pub(crate) enum Transport {
    Stream(Stream),
    Datagram(DatagramSocket),
}

// There is one slot for each idle connection.
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

    /// Stops delivery at once; what the kernel hands over meanwhile is kept.
    pub(crate) fn pause_reading(&mut self, driver: &mut Driver) {
        self.life_mut().set_paused(true);
        if let Self::Stream(stream) = self {
            stream.expect_pauses();
        }
        self.life().cancel_receive(driver);
    }

    /// Datagrams of a socket that others receive from as well stay in it until they are asked for.
    pub(crate) fn share_datagrams(&mut self, driver: &mut Driver) {
        if let Self::Datagram(socket) = self {
            socket.share(driver);
        }
    }

    pub(crate) fn set_marks(
        &mut self,
        low: usize,
        high: usize,
        events: &mut Queue,
    ) -> WriteOutcome {
        self.life().shared.set_marks(low, high);
        // As when it accepts one: a pause says that the socket has no room.
        if let Self::Datagram(socket) = self
            && socket.life.is_too_full()
        {
            socket.send_now(events);
        }
        self.life().rise()
    }

    /// True: everything is with the kernel. Else one [`Event::Flushed`] follows.
    pub(crate) fn notify_when_flushed(&mut self) -> bool {
        let is_drained = self.is_drained();
        self.life_mut().want_flushed(!is_drained);
        is_drained
    }

    /// Closes after the queue is sent; reading ends now.
    pub(crate) fn close(&mut self, driver: &mut Driver, events: &mut Queue) {
        if self.life().shared.is_closing() {
            return;
        }
        // What was written in this very turn has not been tried yet. With asyncio, which sends at once,
        // it would be out.
        self.send_now(events);
        self.stop_reading(driver);
        let is_drained = self.is_drained();
        self.life_mut().close(is_drained, events);
    }

    /// Drops the queue: the transport is quiet.
    pub(crate) fn abort(&mut self, driver: &mut Driver, events: &mut Queue) {
        if self.life().shared.is_quiet() {
            return;
        }
        // As in `close`.
        self.send_now(events);
        self.stop_reading(driver);
        match self {
            Self::Stream(stream) => stream.drop_queue(driver),
            Self::Datagram(socket) => socket.drop_queue(driver),
        }
        self.life_mut().become_quiet(events);
    }

    /// Closes a stream whose send has failed: true, and the event that tells of the failure makes it quiet.
    pub(crate) fn abort_failed(&mut self, driver: &mut Driver, events: &mut Queue) -> bool {
        let Self::Stream(stream) = self else {
            return false;
        };
        stream.send_now();
        stream.fail_if_met(driver, events);
        let is_failed = stream.life.is_failed();
        if is_failed {
            self.stop_reading(driver);
            self.life().shared.set(shared_state::CLOSING, true);
        }
        is_failed
    }

    /// Gives the descriptor up. The driver closes it (cancel-all hard-linked to close, so that the
    /// peer gets its FIN) if it comes with the call; else the host closes it after the last event,
    /// or now if this answers true: then nothing is in flight and no event follows.
    pub(crate) fn release(
        &mut self,
        driver: &mut Driver,
        events: &mut Queue,
        fd: Option<OwnedFd>,
    ) -> bool {
        self.abort(driver, events);
        self.life_mut().release(driver, fd)
    }

    // The turn -----------------------------------------------------------------------------------

    /// Puts in flight what the state calls for: the receive, a send, the half-close, the end. `alone`: no
    /// other transport has anything to do in this turn. Queued on a ring, a send's completion would end
    /// the very wait that submits it, for nothing, and the turn be gone through again; sent here, a lone
    /// request costs one turn. (Many sends are worth one wait cut short.)
    pub(crate) fn flush(&mut self, alone: bool, driver: &mut Driver, events: &mut Queue) {
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
        events: &mut Queue,
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
            events.push(Event::Closed { transport });
        }
    }

    /// In a forked child, of a transport that is not flushed.
    pub(crate) fn leave_queue_to_parent(&mut self, driver: &mut Driver, events: &mut Queue) {
        match self {
            Self::Stream(stream) => stream.leave_queue_to_parent(driver, events),
            Self::Datagram(socket) => socket.leave_queue_to_parent(events),
        }
    }

    pub(crate) fn send_now(&mut self, events: &mut Queue) {
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
