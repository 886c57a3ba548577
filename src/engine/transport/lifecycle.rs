//! The life of a transport, whether it carries a stream or datagrams: where it stands between its opening
//! and its end, when its reader reads, and when its producer has to wait.
//!
//! | phase | sent | delivered | leaves by |
//! | --- | --- | --- | --- |
//! | `Open` | what is accepted | what arrives, from `start` on and unless paused | `close` and an empty queue, `abort`, a failure |
//! | `Failed` | nothing | what arrived before | the host being told of the failure |
//! | `Quiet` | nothing | nothing | `release` |
//! | `Releasing` | | | the last completion |
//! | `Ended` | | | |
//!
//! `close` ends reading at once and sending after the queue: an open transport that is closing takes
//! nothing more. The end has two steps, because asyncio's protocols find their socket open in
//! `connection_lost`: a quiet transport has its descriptor until the host releases it.
//!
//! What the host is told, by key, for both kinds alike:
//!
//! - `Writable`: the queue fell to its low mark, after a command had said `PauseWriting`, and was not filled
//!   again before this is told.
//! - `Flushed`: the queue is empty, if that was asked for.
//! - `Failed`: receiving or sending a stream failed. Being told makes the transport quiet.
//! - `Lost`: the transport is quiet; it is time for `connection_lost`. Due in the place in which asyncio
//!   would call it: that of `close` if the queue was empty then or is when this place comes, else as
//!   soon as the queue is with the kernel; that of `abort`; behind a failure's own event. So each of
//!   those queues a `Lost`, and the first that finds the transport quiet is told, once.
//! - `Closed`: the last one. No operation is in flight on the descriptor.
//!
//! What the transport shows to other threads is its [`SharedState`], where the flags have their one place. Not
//! here: bytes and datagrams (`stream`, `datagram`), and what is common to the commands (`transport`).

use std::os::fd::{OwnedFd, RawFd};

use uringcore_io::{Driver, OpId, Token};

use crate::event::Event;
use crate::event_queue::Queue;
use crate::table::Key;
use crate::token::{Owner, Route};
use crate::transport::shared_state::{self, SharedState};

/// What a producer has to do after a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    Queued,
    /// The queue rose above the high mark: tell the producer to pause.
    PauseWriting,
    /// The transport is closed or failed; what was to be sent went nowhere.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
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
    phase: Phase,
    /// The host may hear of what arrives.
    is_started: bool,
    is_lost_reported: bool,
    /// Errors that are no end (those of datagrams) whose events wait in the queue: the end comes after.
    pub(crate) errors_unreported: u32,
    /// A [`Event::Writable`] waits in the queue.
    is_fall_unreported: bool,
    wants_flushed: bool,
    is_dirty: bool,
    /// Listed among those whose bytes wait for others, and for nothing else.
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
            phase: Phase::Open,
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

    /// True the first time since the last flush: the transport is then listed for it.
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

    /// Nothing will ever arrive.
    pub(crate) fn stop(&mut self) {
        self.is_started = false;
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.shared.set(shared_state::PAUSED, paused);
    }

    /// The reader takes what there is.
    pub(crate) fn wants_input(&self) -> bool {
        self.is_started && !self.shared.is_paused()
    }

    /// What arrives now is asked for.
    pub(crate) fn is_reading(&self) -> bool {
        self.is_open() && self.wants_input()
    }

    /// What arrived still goes to the reader, now or when it resumes.
    pub(crate) fn is_delivering(&self) -> bool {
        self.phase <= Phase::Failed && !self.shared.is_closing()
    }

    pub(crate) fn cancel_receive(&self, driver: &mut Driver) {
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }

    // Writing ------------------------------------------------------------------------------------

    /// What was accepted is sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.phase == Phase::Open
    }

    /// The queue is above its mark and the producer does not know.
    pub(crate) fn is_too_full(&self) -> bool {
        !self.shared.is_above() && self.shared.queued() > self.shared.high_mark()
    }

    /// Tells the producer to pause if that is so.
    pub(crate) fn rise(&self) -> WriteOutcome {
        if self.is_too_full() {
            self.shared.set(shared_state::ABOVE, true);
            return WriteOutcome::PauseWriting;
        }
        WriteOutcome::Queued
    }

    /// The counterpart, told in an event because the producer is not the caller.
    pub(crate) fn fall(&mut self, events: &mut Queue) {
        let has_fallen = self.shared.is_above() && self.shared.queued() <= self.shared.low_mark();
        if has_fallen && !std::mem::replace(&mut self.is_fall_unreported, true) {
            events.push(Event::Writable {
                transport: self.key,
            });
        }
    }

    /// The turn of that event has come: whether the producer may go on. Not where it has filled the queue
    /// again since, for which it was not told to pause once more.
    pub(crate) fn tell_fall(&mut self) -> bool {
        self.is_fall_unreported = false;
        let goes_on = self.shared.is_above() && self.shared.queued() <= self.shared.high_mark();
        if goes_on {
            self.shared.set(shared_state::ABOVE, false);
        }
        goes_on
    }

    /// Another producer, which was told nothing.
    pub(crate) fn change_producer(&self) {
        self.shared.set(shared_state::ABOVE, false);
    }

    /// The queue is gone, whatever the kernel still takes of it.
    pub(crate) fn drop_queue(&self, driver: &mut Driver) {
        self.shared.sub_queued(self.shared.queued());
        if let Some(op) = self.send_op {
            driver.cancel(op);
        }
    }

    /// Asks for one [`Event::Flushed`].
    pub(crate) fn want_flushed(&mut self, wants: bool) {
        self.wants_flushed = wants;
    }

    /// The queue is empty and nothing is in flight: whoever waits for it hears of it.
    pub(crate) fn drained(&mut self, events: &mut Queue) {
        if std::mem::take(&mut self.wants_flushed) {
            events.push(Event::Flushed {
                transport: self.key,
            });
        }
        if self.phase == Phase::Open && self.shared.is_closing() {
            self.become_quiet(events);
        }
    }

    // The end ------------------------------------------------------------------------------------

    /// Open, and not closing.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open && !self.shared.is_closing()
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// Nothing more is accepted; `is_drained`: there is nothing to send either.
    pub(crate) fn close(&mut self, is_drained: bool, events: &mut Queue) {
        self.shared.set(shared_state::CLOSING, true);
        if is_drained && self.phase == Phase::Open {
            self.become_quiet(events);
        } else {
            self.queue_lost(events);
        }
    }

    pub(crate) fn fail(&mut self) {
        self.phase = Phase::Failed;
        self.shared.set(shared_state::FAILED, true);
    }

    pub(crate) fn become_quiet(&mut self, events: &mut Queue) {
        self.phase = Phase::Quiet;
        self.shared
            .set(shared_state::CLOSING | shared_state::QUIET, true);
        self.queue_lost(events);
    }

    fn queue_lost(&self, events: &mut Queue) {
        events.push(Event::Lost {
            transport: self.key,
        });
    }

    /// True if the event whose turn has come is the one to be told.
    pub(crate) fn tell_lost(&mut self) -> bool {
        let is_due = self.phase == Phase::Quiet && self.errors_unreported == 0;
        is_due && !std::mem::replace(&mut self.is_lost_reported, true)
    }

    /// Gives the descriptor of a quiet transport up. True: nothing is in flight, and no event follows.
    pub(crate) fn release(&mut self, driver: &mut Driver, fd: Option<OwnedFd>) -> bool {
        if self.phase == Phase::Quiet {
            self.phase = Phase::Releasing;
            if let Some(fd) = fd {
                self.is_being_closed = true;
                driver.close(fd, self.token(SUB_CLOSE));
            }
            self.end_if_idle();
        }
        self.phase == Phase::Ended
    }

    pub(crate) fn closed(&mut self) {
        self.is_being_closed = false;
    }

    /// True when this is the end of a released transport.
    pub(crate) fn end_if_idle(&mut self) -> bool {
        let is_idle = self.recv_op.is_none() && self.send_op.is_none() && !self.is_being_closed;
        let ends = is_idle && self.phase == Phase::Releasing;
        if ends {
            self.phase = Phase::Ended;
        }
        ends
    }
}
