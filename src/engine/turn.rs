//! The turn: one [`Engine`] owns a driver and the tables, and routes completions to their owners.
//!
//! The host's loop is `flush`, `enter`, `process`, then `next_event` until it is empty. Commands
//! between turns only change state and list their owner as dirty; `flush` turns that into queued
//! operations, and `enter` submits them with the same system call that waits. The commands are in the
//! files below:
//!
//! | file | commands on |
//! | --- | --- |
//! | `transports` | streams and datagram sockets |
//! | `writes` | writes of the host: sent at once, or delayed to leave together |
//! | `listeners` | listening sockets |
//! | `watchers` | readiness watchers |
//! | `ops` | single operations that a host waits for |
//! | `quic` | QUIC endpoints |

use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use uringcore_io::{Backend, Completion, Driver, DriverConfig, Entered, SetupError, Waker};
use uringcore_quic::ConnectionKey;

use crate::event::Event;
use crate::event_queue::{Queue, Queued};
use crate::listener::Listener;
use crate::operations::Ops;
use crate::quic::sockets::QuicSockets;
use crate::receive_budget::ReceiveBudget;
use crate::table::{Key, Table};
use crate::token::{Owner, Route};
use crate::transport::transport_table::Transports;
use crate::watchers::Watchers;
use crate::write_delay::WriteDelay;
use writes::Held;

pub use writes::Piece;

mod listeners;
mod ops;
mod quic;
mod transports;
mod watchers;
mod writes;

pub struct Engine {
    pub(crate) driver: Driver,
    pub(crate) transports: Transports,
    pub(crate) listeners: Table<Listener>,
    pub(crate) quic: QuicSockets,
    pub(crate) watchers: Watchers,
    pub(crate) ops: Ops,
    batch: VecDeque<Completion>,
    pub(crate) events: Queue,
    pub(crate) turns: u64,
    receive_budget: ReceiveBudget,
    delay: WriteDelay,
    /// The transports and connections whose bytes wait for others, each once.
    held: Vec<Held>,
    /// The connections among them; a transport has a flag.
    held_connections: HashSet<(Key, ConnectionKey)>,
    /// When a busy loop last asked epoll.
    looked: Instant,
}

impl Engine {
    pub fn new(config: &DriverConfig) -> Result<Self, SetupError> {
        Ok(Self {
            driver: Driver::new(config)?,
            transports: Transports::default(),
            listeners: Table::default(),
            quic: QuicSockets::default(),
            watchers: Watchers::default(),
            ops: Ops::default(),
            batch: VecDeque::new(),
            events: Queue::default(),
            turns: 0,
            receive_budget: ReceiveBudget::new(),
            delay: WriteDelay::new(Instant::now()),
            held: Vec::new(),
            held_connections: HashSet::new(),
            looked: Instant::now(),
        })
    }

    pub fn backend(&self) -> Backend {
        self.driver.backend()
    }

    pub fn fallback_reason(&self) -> Option<&str> {
        self.driver.fallback_reason()
    }

    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    pub fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// How many turns there have been.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    // The turn -----------------------------------------------------------------------------------

    /// Turns what was commanded since the last flush into queued operations. A datagram of a QUIC endpoint that is
    /// alone leaves at once.
    pub fn flush(&mut self, now: Instant) {
        self.end_writes();
        if self.transports.needs_flush() {
            self.transports.flush(&mut self.driver, &mut self.events);
        }
        if self.watchers.needs_flush() {
            self.watchers.flush(&mut self.driver);
        }
        if self.quic.needs_flush() {
            self.quic.flush(&mut self.driver, now, &mut self.events);
        }
    }

    /// True if a turn that must not wait would do nothing at all; it is counted as one.
    ///
    /// With epoll the kernel cannot be asked for nothing. A host that watches but one descriptor, which
    /// is its way of being woken, asks it now and then (`is_time_to_look`).
    pub fn skip_turn(&mut self) -> bool {
        let is_quiet = self.events.len() == 0
            && !self.transports.needs_flush()
            && !self.watchers.needs_flush()
            && self.quic.is_empty()
            && match self.driver.backend() {
                Backend::Uring => !self.driver.needs_enter(),
                Backend::Epoll => self.driver.waits_for_one_at_most() && !self.is_time_to_look(),
            };
        self.turns += u64::from(is_quiet);
        is_quiet
    }

    /// True if epoll has not been asked for a while: the clock is read once in so many turns.
    fn is_time_to_look(&mut self) -> bool {
        if !self.turns.is_multiple_of(TURNS_WITHOUT_THE_CLOCK) {
            return false;
        }
        let now = Instant::now();
        let is_time = now.saturating_duration_since(self.looked) >= TIME_WITHOUT_A_LOOK;
        if is_time {
            self.looked = now;
        }
        is_time
    }

    /// True when a turn that must not wait still needs the system call.
    pub fn needs_enter(&self) -> bool {
        self.driver.needs_enter()
    }

    /// How many entries there are for [`take_event`](Self::take_event).
    pub fn events_ready(&self) -> usize {
        self.events.len()
    }

    /// Submits what is queued and waits for at most `timeout` (`None`: until something happens), or
    /// less when an endpoint's timer is due. The host may release its interpreter lock around this.
    pub fn enter(&mut self, timeout: Option<Duration>) -> io::Result<Entered> {
        self.driver.bring_at_most(self.receive_budget.next_turn());
        self.driver.enter(timeout)
    }

    /// True when somebody here goes by the clock: the times that `flush` and `process` are told matter.
    pub fn has_endpoints(&self) -> bool {
        !self.quic.is_empty()
    }

    /// The earliest timer of an endpoint, as of the last flush.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.quic.next_deadline()
    }

    /// Routes all ready completions and due timers. What the host is to hear is in `next_event`.
    pub fn process(&mut self, now: Instant) {
        self.turns += 1;
        let mut batch = std::mem::take(&mut self.batch);
        self.driver.take_completions(&mut batch);
        for completion in batch.drain(..) {
            self.route(completion, now);
        }
        self.batch = batch;
        if !self.quic.is_empty() {
            self.quic.handle_timeouts(now, &mut self.events);
        }
    }

    /// The next thing that the host is to hear of.
    pub fn next_event(&mut self) -> Option<Event> {
        while self.events.len() > 0 {
            let event = self.take_event();
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// The next entry of what the host is to hear. `None` where it has come to nothing: its transport was
    /// paused or closed since. A host with callbacks of its own among which each event has its place takes
    /// as many entries as there were.
    pub fn take_event(&mut self) -> Option<Event> {
        let event = match self.events.pop()? {
            Queued::Event(event) => {
                let (driver, events) = (&mut self.driver, &mut self.events);
                self.transports.still_due(event, driver, events)?
            }
            Queued::Backlog(key) => self.transports.next_of_backlog(key)?,
            Queued::Acceptable(key) => {
                let listener = self.listeners.get_mut(key)?;
                listener.accept_one(&mut self.driver)?
            }
            Queued::Receivable(key) => self.transports.receive_one(key)?,
            Queued::Nothing => return None,
        };
        match &event {
            Event::OpDone { op, .. } => self.ops.release(*op),
            Event::PollReady(ready) => self.watchers.reported(*ready),
            _ => {}
        }
        Some(event)
    }

    /// True if the next event is data of this stream: a host that gathers waits for it.
    pub fn next_is_data_of(&self, key: Key) -> bool {
        matches!(
            self.events.front(),
            Some(Queued::Event(Event::StreamData { stream, .. })) if *stream == key
        )
    }

    /// True if [`rest`](Self::rest) is no more than a note: nothing has to be sent or taken back.
    pub fn rests_at_once(&self) -> bool {
        self.driver.suspends_at_once()
    }

    /// The host stops running turns for an unknown time: what it commanded last is sent, and all that
    /// waits is taken back from the kernel, so that the next turn may run on any thread.
    pub fn rest(&mut self, limit: Duration) {
        self.driver.suspend(limit);
    }

    /// Cancels everything and waits up to `limit` for the kernel to let go. What was accepted for
    /// sending is sent, as far as the sockets take it without waiting.
    pub fn shutdown(&mut self, limit: Duration) {
        self.flush(Instant::now());
        self.events.clear();
        self.driver.shutdown(limit);
    }

    /// Another process is about to have the engine's sockets: nothing is taken out of them ahead from now on,
    /// in either process.
    pub fn share_sockets(&mut self) {
        for listener in self.listeners.iter_mut() {
            listener.share(&mut self.driver);
        }
        self.transports.share_datagrams(&mut self.driver);
    }

    /// In a forked child: leaves the parent's kernel state alone, and what it has begun to it: connections
    /// that were accepted and not told yet, QUIC endpoints, and what was commanded since the last flush
    /// where the host did not rest before, because another thread forked.
    pub fn after_fork_in_child(&mut self) {
        self.driver.after_fork_in_child();
        self.events
            .retain(|event| !matches!(event, Event::Accepted { .. }));
        let (driver, events) = (&mut self.driver, &mut self.events);
        self.transports.leave_queues_to_parent(driver, events);
        self.quic.leave_to_parent();
    }

    fn route(&mut self, completion: Completion, now: Instant) {
        let Some(Route { owner, sub, key }) = Route::parse(completion.token) else {
            debug_assert!(false, "a completion with a token that no route made");
            return;
        };
        let (driver, events) = (&mut self.driver, &mut self.events);
        match owner {
            Owner::Transport => {
                self.transports
                    .handle_completion(key, sub, completion, driver, events);
            }
            Owner::Listener => {
                if let Some(listener) = self.listeners.get_mut(key) {
                    listener.handle_completion(completion, driver, events);
                    if listener.has_ended() {
                        self.listeners.remove(key);
                    }
                }
            }
            Owner::Poll => {
                let fired = self
                    .watchers
                    .handle_completion(sub, key, &completion.outcome);
                if let Some(ready) = fired {
                    events.push(Event::PollReady(ready));
                }
            }
            Owner::Op => {
                if self.ops.handle_completion(key) {
                    events.push(Event::OpDone {
                        op: key,
                        outcome: completion.outcome,
                    });
                }
            }
            Owner::Quic => {
                self.quic.handle_completion(key, sub, completion, now);
            }
        }
    }
}

const TURNS_WITHOUT_THE_CLOCK: u64 = 16;
const TIME_WITHOUT_A_LOOK: Duration = Duration::from_micros(50);
