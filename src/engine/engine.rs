//! The loop iteration: an [`Engine`] owns the driver and the tables, and routes completions to their owners.
//!
//! A command changes the state of its transport, listener or other owner, and adds the owner to a list. `flush` makes
//! queued operations from the lists, and `enter` submits them with the system call that also waits. Commands are
//! methods of [`Engine::transports`], [`Engine::listeners`], [`Engine::watchers`], [`Engine::operations`] and
//! [`Engine::quic`].

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use uringcore_io::{
    Backend, Completion, Driver, DriverConfig, Entered, Outcome, SetupError, Token, Waker,
};

use crate::completion_budget::ReceiveBudget;
use crate::completion_token::{Owner, Route};
use crate::event::EngineEvent;
use crate::event_queue::{EventQueue, QueuedEvent};
use crate::generational_slab::{Key, Slab};
use crate::held_writes::HeldWrites;
use crate::listener::{Listener, Listeners};
use crate::one_shot_operations::{OperationTable, Operations};
use crate::quic::QuicSocket;
use crate::quic::socket_table::QuicSockets;
use crate::readiness_watchers::{WatcherTable, Watchers};
use crate::transport::Transports;
use crate::transport::transport_table::TransportTable;

/// Transports, listeners, watchers, operations and QUIC sockets on one driver.
pub struct Engine {
    pub(crate) driver: Driver,
    pub(crate) transports: TransportTable,
    pub(crate) listeners: Slab<Listener>,
    pub(crate) quic: QuicSockets,
    pub(crate) watchers: WatcherTable,
    pub(crate) operations: OperationTable,
    batch: VecDeque<Completion>,
    pub(crate) events: EventQueue,
    pub(crate) iterations: u64,
    receive_budget: ReceiveBudget,
    pub(crate) held: HeldWrites,
    /// The time at which a busy loop last polled its epoll set.
    last_polled: Instant,
}

impl Engine {
    pub fn new(config: &DriverConfig) -> Result<Self, SetupError> {
        let now = Instant::now();
        Ok(Self {
            driver: Driver::new(config)?,
            transports: TransportTable::default(),
            listeners: Slab::default(),
            quic: QuicSockets::default(),
            watchers: WatcherTable::default(),
            operations: OperationTable::default(),
            batch: VecDeque::new(),
            events: EventQueue::default(),
            iterations: 0,
            receive_budget: ReceiveBudget::new(),
            held: HeldWrites::new(now),
            last_polled: now,
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

    /// The number of loop iterations so far.
    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    // Commands -----------------------------------------------------------------------------------

    #[inline]
    pub fn transports(&mut self) -> Transports<'_> {
        Transports {
            transports: &mut self.transports,
            driver: &mut self.driver,
            events: &mut self.events,
            held: &mut self.held,
            receive_budget: &mut self.receive_budget,
        }
    }

    pub fn listeners(&mut self) -> Listeners<'_> {
        Listeners {
            listeners: &mut self.listeners,
            driver: &mut self.driver,
        }
    }

    pub fn watchers(&mut self) -> Watchers<'_> {
        Watchers {
            watchers: &mut self.watchers,
            driver: &mut self.driver,
        }
    }

    pub fn operations(&mut self) -> Operations<'_> {
        Operations {
            operations: &mut self.operations,
            driver: &mut self.driver,
        }
    }

    /// Adds a QUIC socket. `make` gets the token that its operations must carry. The socket may use the token's `sub`
    /// byte itself.
    pub fn open_quic(
        &mut self,
        make: impl FnOnce(&mut Driver, Token) -> io::Result<QuicSocket>,
    ) -> io::Result<Key> {
        let driver = &mut self.driver;
        self.quic
            .open(|key| make(driver, Route::new(Owner::Quic, 0, key).token()))
    }

    /// Returns a QUIC socket, on which the host calls commands. The next flush sends the packets that they cause.
    pub fn quic(&mut self, key: Key) -> Option<&mut QuicSocket> {
        self.quic.get(key)
    }

    /// Ends a single operation now, not in a later loop iteration. Returns its outcome, for which no event comes then.
    /// `None` if the operation was never started, if its event was taken, or if the kernel has not released it.
    pub fn end_operation(&mut self, key: Key, now: Instant) -> io::Result<Option<Outcome>> {
        for _ in 0..END_TRIES {
            let is_done =
                |event: &EngineEvent| matches!(event, EngineEvent::OpDone { op, .. } if *op == key);
            if let Some(EngineEvent::OpDone { outcome, .. }) = self.events.take_first(is_done) {
                self.operations.release(key);
                return Ok(Some(outcome));
            }
            if self.operations().cancel(key) {
                return Ok(None);
            }
            self.driver.enter(Some(Duration::ZERO))?;
            self.process(now);
        }
        Ok(None)
    }

    // The loop iteration -------------------------------------------------------------------------

    /// Makes queued operations from the commands since the last flush. A single datagram of a QUIC socket is sent at
    /// once.
    pub fn flush(&mut self, now: Instant) {
        self.held.end_iteration();
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

    /// True if a loop iteration that must not wait would have nothing to do. Such a loop iteration is counted.
    ///
    /// A ring shows without a system call if completions are ready; an epoll set does not. A host that watches only
    /// the descriptor that wakes it therefore skips loop iterations and polls its epoll set from time to time
    /// (`is_time_to_poll`).
    pub fn skip_iteration(&mut self) -> bool {
        let is_quiet = self.events.len() == 0
            && !self.transports.needs_flush()
            && !self.watchers.needs_flush()
            && self.quic.is_empty()
            && match self.driver.backend() {
                Backend::Uring => !self.driver.needs_enter(),
                Backend::Epoll => self.driver.waits_for_one_at_most() && !self.is_time_to_poll(),
            };
        self.iterations += u64::from(is_quiet);
        is_quiet
    }

    /// True if the epoll set was last polled at least [`LOOK_INTERVAL`] ago. Most calls do not read the clock.
    fn is_time_to_poll(&mut self) -> bool {
        if !self.iterations.is_multiple_of(ITERATIONS_PER_CLOCK_READ) {
            return false;
        }
        let now = Instant::now();
        let is_time = now.saturating_duration_since(self.last_polled) >= LOOK_INTERVAL;
        if is_time {
            self.last_polled = now;
        }
        is_time
    }

    /// True if a loop iteration that must not wait still needs the system call.
    pub fn needs_enter(&self) -> bool {
        self.driver.needs_enter()
    }

    /// The number of entries that [`take_event`](Self::take_event) can take now.
    pub fn events_ready(&self) -> usize {
        self.events.len()
    }

    /// Submits queued operations, and waits for at most `timeout` (`None`: until an operation completes or the host is
    /// woken). The host may release its interpreter lock during this call.
    pub fn enter(&mut self, timeout: Option<Duration>) -> io::Result<Entered> {
        self.driver
            .set_batch_limit(self.receive_budget.next_iteration());
        let entered = self.driver.enter(timeout);
        self.held.delay.note_wake_up(self.driver.last_wait());
        entered
    }

    /// True if there are QUIC sockets. Then `flush` and `process` need the exact time.
    pub fn has_endpoints(&self) -> bool {
        !self.quic.is_empty()
    }

    /// The earliest deadline of the QUIC sockets, as of the last flush.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.quic.next_deadline()
    }

    /// Routes all completions that are ready, and runs the timers that are due. [`next_event`](Self::next_event)
    /// returns the events.
    pub fn process(&mut self, now: Instant) {
        self.iterations += 1;
        let mut batch = std::mem::take(&mut self.batch);
        self.driver.take_completions(&mut batch);
        while let Some(completion) = batch.pop_front() {
            self.route(completion, now);
        }
        self.batch = batch;
        if !self.quic.is_empty() {
            self.quic.handle_timeouts(now, &mut self.events);
        }
    }

    /// Takes the next event.
    pub fn next_event(&mut self) -> Option<EngineEvent> {
        while self.events.len() > 0 {
            let event = self.take_event();
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Takes the next entry of the event queue. `None` if its transport was paused or closed since the entry was
    /// queued. A host whose callbacks and events share one order takes as many entries as
    /// [`events_ready`](Self::events_ready) has returned.
    pub fn take_event(&mut self) -> Option<EngineEvent> {
        let event = match self.events.pop()? {
            QueuedEvent::Event(event) => {
                let (driver, events) = (&mut self.driver, &mut self.events);
                self.transports.still_due(event, driver, events)?
            }
            QueuedEvent::Backlog(key) => self.transports.next_of_backlog(key)?,
            QueuedEvent::Acceptable(key) => {
                let listener = self.listeners.get_mut(key)?;
                listener.accept_one(&mut self.driver)?
            }
            QueuedEvent::Receivable(key) => self.transports.receive_one(key)?,
            QueuedEvent::Nothing => return None,
        };
        match &event {
            EngineEvent::OpDone { op, .. } => self.operations.release(*op),
            EngineEvent::PollReady(ready) => self.watchers.reported(*ready),
            _ => {}
        }
        Some(event)
    }

    /// True if the next event is data of this stream. A host that gathers data delivers that together with the data it
    /// has.
    pub fn next_is_data_of(&self, key: Key) -> bool {
        matches!(
            self.events.front(),
            Some(QueuedEvent::Event(EngineEvent::StreamData { stream, .. })) if *stream == key
        )
    }

    /// True if [`rest`](Self::rest) would send nothing and cancel nothing.
    pub fn rests_at_once(&self) -> bool {
        self.driver.suspends_at_once()
    }

    /// Prepares for a time in which the host runs no loop iterations. The last commands are submitted, and pending
    /// operations are taken back from the kernel, so that the next loop iteration may run on any thread.
    pub fn rest(&mut self, limit: Duration) {
        self.driver.suspend(limit);
    }

    /// Cancels all operations, and waits for at most `limit` until the kernel has completed them. Written bytes are
    /// sent as far as the sockets accept them without waiting.
    pub fn shutdown(&mut self, limit: Duration) {
        self.flush(Instant::now());
        self.events.clear();
        self.driver.shutdown(limit);
    }

    /// Prepares for another process that gets the sockets of this engine too. From now on, in either process, nothing
    /// is accepted or received before the host takes the event.
    pub fn share_sockets(&mut self) {
        for listener in self.listeners.iter_mut() {
            listener.share(&mut self.driver);
        }
        self.transports.share_datagrams(&mut self.driver);
    }

    /// In a forked child: leaves to the parent its kernel state, the accepted connections whose events were not taken,
    /// the QUIC sockets, and the commands since the last flush. There are such commands if another thread has forked.
    pub fn after_fork_in_child(&mut self) {
        self.driver.after_fork_in_child();
        self.events
            .retain(|event| !matches!(event, EngineEvent::Accepted { .. }));
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
                    events.push(EngineEvent::PollReady(ready));
                }
            }
            Owner::Op => {
                if self.operations.handle_completion(key) {
                    events.push(EngineEvent::OpDone {
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

/// An epoll loop reads the clock only once in this many skipped loop iterations.
const ITERATIONS_PER_CLOCK_READ: u64 = 16;
/// While loop iterations are skipped, the epoll set is polled after this time.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// The maximum number of system calls to end an operation. A cancellation takes one; more are needed if the completion
/// queue was full.
const END_TRIES: usize = 3;
