//! The life of a transport, both for streams and for datagram sockets: its phases from the opening to the end, the
//! paused reader, and the paused producer.
//!
//! | phase | sent | delivered | ends by |
//! | --- | --- | --- | --- |
//! | `Open` | accepted data | arriving data, after `start` and unless paused | `close` and an empty queue, `abort`, a failure |
//! | `Failed` | nothing | data that arrived before | the event of the failure, when the host takes it |
//! | `Quiet` | nothing | nothing | `release` |
//! | `Releasing` | | | the last completion |
//! | `Ended` | | | |
//!
//! `close` ends reading at once, and sending when the queue is empty. An open transport that is closing accepts no
//! more data. The end has two steps, because in asyncio protocols find their socket open in `connection_lost`: a quiet
//! transport keeps its descriptor until the host releases it.
//!
//! Events of streams and datagram sockets:
//!
//! - `Writable`: the queue has fallen to its low mark, after a command has returned `PauseWriting`. The event is
//!   dropped if the queue is above its high mark again when the host takes the event.
//! - `Flushed`: the queue is empty. Only on request.
//! - `Failed`: a receive or a send of a stream has failed. The transport becomes quiet when the host takes the event.
//! - `Lost`: the transport is quiet, and the host calls `connection_lost`. asyncio makes this call in the position of
//!   `close` if the queue is empty then; otherwise when the kernel has taken the queue; in the position of `abort`; or
//!   after the event of a failure. So each of these queues a `Lost`, and the host gets the first one that finds the
//!   transport quiet.
//! - `Closed`: the last event. No operation is in flight on the descriptor.
//!
//! [`SharedState`] shows the state of the transport to other threads. It is the only place of the flags.

use std::os::fd::{OwnedFd, RawFd};

use uringcore_io::{Driver, OpId, Token};

use crate::completion_token::{Owner, Route};
use crate::event::EngineEvent;
use crate::event_queue::EventQueue;
use crate::generational_slab::Key;
use crate::transport::cross_thread_state::{self, SharedState};

/// The result of a write, which shows the producer if it has to pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    Queued,
    /// The write queue has risen above the high mark: the producer has to pause.
    PauseWriting,
    /// The transport is closed or has failed. The data was dropped.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TransportPhase {
    Open,
    Failed,
    Quiet,
    Releasing,
    Ended,
}

pub(crate) struct Lifecycle {
    pub(crate) fd: RawFd,
    pub(crate) key: Key,
    pub(crate) shared: SharedState,
    phase: TransportPhase,
    /// True if the host has started reading.
    is_started: bool,
    is_lost_reported: bool,
    /// The number of queued error events that do not end the transport; only datagram sockets have these. The event of
    /// the transport's end comes after them.
    pub(crate) errors_unreported: u32,
    /// True if an [`EngineEvent::Writable`] is queued.
    is_fall_unreported: bool,
    wants_flushed: bool,
    is_dirty: bool,
    /// True if the transport is listed in `held_writes`.
    pub(crate) is_held: bool,
    is_being_closed: bool,
    pub(crate) recv_op: Option<OpId>,
    pub(crate) send_op: Option<OpId>,
}

pub(crate) const SUB_RECV: u8 = 0;
pub(crate) const SUB_SEND: u8 = 1;
pub(crate) const SUB_CLOSE: u8 = 2;

impl Lifecycle {
    pub(crate) fn new(fd: RawFd, key: Key, shared: SharedState) -> Self {
        Self {
            fd,
            key,
            shared,
            phase: TransportPhase::Open,
            is_started: false,
            is_lost_reported: false,
            errors_unreported: 0,
            is_fall_unreported: false,
            wants_flushed: false,
            is_dirty: false,
            is_held: false,
            is_being_closed: false,
            recv_op: None,
            send_op: None,
        }
    }

    pub(crate) fn token(&self, sub: u8) -> Token {
        Route::new(Owner::Transport, sub, self.key).token()
    }

    /// Marks the transport as having work for the next flush. Returns true if it was not marked before; then the caller
    /// adds it to the list of such transports.
    pub(crate) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.is_dirty, true)
    }

    pub(crate) fn unmark_dirty(&mut self) {
        self.is_dirty = false;
        self.is_held = false;
    }

    // Reading ------------------------------------------------------------------------------------

    pub(crate) fn start(&mut self) {
        self.is_started = true;
    }

    /// Ends reading without an event, because nothing more can arrive.
    pub(crate) fn stop(&mut self) {
        self.is_started = false;
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.shared.set(cross_thread_state::PAUSED, paused);
    }

    /// True if the reader wants data: reading was started and is not paused.
    pub(crate) fn wants_input(&self) -> bool {
        self.is_started && !self.shared.is_paused()
    }

    /// True if the engine may receive.
    pub(crate) fn is_reading(&self) -> bool {
        self.is_open() && self.wants_input()
    }

    /// True if data that has arrived will still be delivered to the reader, at once or when the reader resumes.
    pub(crate) fn is_delivering(&self) -> bool {
        self.phase <= TransportPhase::Failed && !self.shared.is_closing()
    }

    pub(crate) fn cancel_receive(&self, driver: &mut Driver) {
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    // Writing ------------------------------------------------------------------------------------

    /// True if the transport still sends data that it has accepted.
    pub(crate) fn is_sending(&self) -> bool {
        self.phase == TransportPhase::Open
    }

    /// True if the queue is above its high mark and the producer is not paused.
    pub(crate) fn is_too_full(&self) -> bool {
        !self.shared.is_above() && self.shared.queued() > self.shared.high_mark()
    }

    /// Marks the producer as paused if the queue has risen above its high mark.
    pub(crate) fn check_high_mark(&self) -> WriteOutcome {
        if self.is_too_full() {
            self.shared.set(cross_thread_state::ABOVE, true);
            return WriteOutcome::PauseWriting;
        }
        WriteOutcome::Queued
    }

    /// Queues [`EngineEvent::Writable`] if the producer is paused and the queue has fallen to its low mark.
    pub(crate) fn check_low_mark(&mut self, events: &mut EventQueue) {
        let has_fallen = self.shared.is_above() && self.shared.queued() <= self.shared.low_mark();
        if has_fallen && !std::mem::replace(&mut self.is_fall_unreported, true) {
            events.push(EngineEvent::Writable {
                transport: self.key,
            });
        }
    }

    /// Called when the host takes [`EngineEvent::Writable`]. Returns true if the producer may continue. If the queue
    /// has risen above its high mark again, returns false, and the producer stays paused.
    pub(crate) fn take_writable(&mut self) -> bool {
        self.is_fall_unreported = false;
        let goes_on = self.shared.is_above() && self.shared.queued() <= self.shared.high_mark();
        if goes_on {
            self.shared.set(cross_thread_state::ABOVE, false);
        }
        goes_on
    }

    /// Sets a new producer, which is not paused.
    pub(crate) fn change_producer(&self) {
        self.shared.set(cross_thread_state::ABOVE, false);
    }

    /// Records that the queue has no bytes.
    pub(crate) fn empty_queue(&self) {
        self.shared.sub_queued(self.shared.queued());
    }

    /// Records that the queue was dropped. The kernel may still send bytes of the send in flight.
    pub(crate) fn drop_queue(&self, driver: &mut Driver) {
        self.empty_queue();
        if let Some(op) = self.send_op {
            driver.cancel(op);
        }
    }

    /// Requests one [`EngineEvent::Flushed`], or cancels the request.
    pub(crate) fn want_flushed(&mut self, wants: bool) {
        self.wants_flushed = wants;
    }

    /// Called when the queue is empty and no send is in flight. Queues [`EngineEvent::Flushed`] if it was requested,
    /// and ends a closing transport.
    pub(crate) fn drained(&mut self, events: &mut EventQueue) {
        if std::mem::take(&mut self.wants_flushed) {
            events.push(EngineEvent::Flushed {
                transport: self.key,
            });
        }
        if self.phase == TransportPhase::Open && self.shared.is_closing() {
            self.stop_all(events);
        }
    }

    // Closing -------------------------------------------------------------------------------------

    /// True if the transport is in the phase `Open` and not closing.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == TransportPhase::Open && !self.shared.is_closing()
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.phase == TransportPhase::Failed
    }

    /// Closes the transport: no more data is accepted. `is_drained` is true if there is nothing to send either.
    pub(crate) fn close(&mut self, is_drained: bool, events: &mut EventQueue) {
        self.shared.set(cross_thread_state::CLOSING, true);
        if is_drained && self.phase == TransportPhase::Open {
            self.stop_all(events);
        } else {
            self.queue_lost(events);
        }
    }

    pub(crate) fn fail(&mut self) {
        self.phase = TransportPhase::Failed;
        self.shared.set(cross_thread_state::FAILED, true);
    }

    pub(crate) fn stop_all(&mut self, events: &mut EventQueue) {
        self.phase = TransportPhase::Quiet;
        self.shared.set(
            cross_thread_state::CLOSING | cross_thread_state::QUIET,
            true,
        );
        self.queue_lost(events);
    }

    fn queue_lost(&self, events: &mut EventQueue) {
        events.push(EngineEvent::Lost {
            transport: self.key,
        });
    }

    /// Called when the host takes [`EngineEvent::Lost`]. True for the first such event that finds the transport quiet.
    pub(crate) fn take_lost(&mut self) -> bool {
        let is_due = self.phase == TransportPhase::Quiet && self.errors_unreported == 0;
        is_due && !std::mem::replace(&mut self.is_lost_reported, true)
    }

    /// Releases the descriptor of a quiet transport. True if no operation is in flight and no event follows.
    pub(crate) fn release(&mut self, driver: &mut Driver, fd: Option<OwnedFd>) -> bool {
        if self.phase == TransportPhase::Quiet {
            self.phase = TransportPhase::Releasing;
            if let Some(fd) = fd {
                self.is_being_closed = true;
                driver.close(fd, self.token(SUB_CLOSE));
            }
            self.end_if_idle();
        }
        self.phase == TransportPhase::Ended
    }

    pub(crate) fn closed(&mut self) {
        self.is_being_closed = false;
    }

    /// Ends a released transport when its last operation has completed. True if this call has ended it.
    pub(crate) fn end_if_idle(&mut self) -> bool {
        let is_idle = self.recv_op.is_none() && self.send_op.is_none() && !self.is_being_closed;
        let ends = is_idle && self.phase == TransportPhase::Releasing;
        if ends {
            self.phase = TransportPhase::Ended;
        }
        ends
    }
}
