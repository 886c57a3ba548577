//! The public interface: one driver, two backends.
//!
//! | file | content |
//! | --- | --- |
//! | `operations` | the methods that start an operation |
//!
//! This file has a driver's construction and end, and its turn, whose results [`Driver::take_completions`] returns.
//! The code that both backends share is in `backend_state`.

mod operations;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::backend_state::BackendState;
use crate::buffer_pool::BufferPool;
use crate::completion::{Completion, Entered, Outcome};
use crate::config::{Backend, DriverConfig, DriverStats};
use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::fork_detection::OwnerProcess;
use crate::setup_error::SetupError;
use crate::spin_policy::SpinPolicy;
use crate::uring::{Inherited, Uring};
use crate::waker::Waker;

/// A queue of operations to the kernel and of completions from it.
///
/// Operations only queue and never fail synchronously: a bad descriptor, a full slab
/// ([`DriverConfig::operations_max`]) or a dead driver results in an ordinary completion with `EBADF`, `ENOBUFS` or
/// `ECANCELED`. An operation that found no slot has [`OpId::NONE`] and is identified by its token.
///
/// A turn is: queue operations, [`enter`](Driver::enter), [`take_completions`](Driver::take_completions). Sockets
/// must be non-blocking; the epoll backend relies on it.
///
/// The thread that enters owns the driver. With io_uring another thread can take over only while no operation is in
/// the kernel, which [`suspend`](Driver::suspend) ensures; its `enter` fails otherwise. The driver is not `Send`,
/// because returned buffers share counters with it ([`RecvBuf`](crate::RecvBuf)): code that moves it to another
/// thread must account for all of them.
///
/// After `fork` the child's copy detects the fork and continues with kernel state of its own; it never touches the
/// parent's. Operations that were suspended or wait for readiness wait in both processes. Operations that may be in
/// progress in the parent's kernel (a send, a file operation) end with `ECANCELED` in the child.
pub struct Driver {
    state: BackendState,
    inner: Inner,
    owner_process: OwnerProcess,
    backend: Backend,
    fallback_reason: Option<String>,
    spin: SpinPolicy,
    /// The end of the last timed wait.
    last_wait: Instant,
}

enum Inner {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
    /// In a forked child, before it enters a ring of its own.
    Inherited(Inherited),
    /// Shut down.
    Dead,
}

impl Driver {
    /// Sets up a backend. `config.backend` of `None` tries io_uring first and falls back to epoll; `Some` has no
    /// fallback.
    pub fn new(config: &DriverConfig) -> Result<Driver, SetupError> {
        if let Some(problem) = config.problem() {
            return Err(SetupError::config(
                config.backend.unwrap_or(Backend::Uring),
                problem,
            ));
        }
        let (backend, (state, inner), fallback_reason) = match config.backend {
            Some(Backend::Uring) => (Backend::Uring, new_uring(config)?, None),
            Some(Backend::Epoll) => (Backend::Epoll, new_epoll(config)?, None),
            None => match new_uring(config) {
                Ok(parts) => (Backend::Uring, parts, None),
                Err(error) => (Backend::Epoll, new_epoll(config)?, Some(error.to_string())),
            },
        };
        let owner_process =
            OwnerProcess::current().map_err(|error| SetupError::of(backend, "madvise", &error))?;
        Ok(Driver {
            state,
            inner,
            owner_process,
            backend,
            fallback_reason,
            spin: SpinPolicy::new(config.busy_poll),
            last_wait: Instant::now(),
        })
    }

    /// The backend in use.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Why the automatic choice fell back to epoll; `None` if it did not, or if there was no choice.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// The end of the last wait.
    pub fn last_wait(&self) -> Instant {
        self.last_wait
    }

    /// A handle that wakes this driver from any thread.
    pub fn waker(&self) -> Waker {
        self.state.waker.clone()
    }

    /// Counters.
    pub fn stats(&self) -> DriverStats {
        let BackendState {
            table,
            stream,
            datagram,
            stats,
            ..
        } = &self.state;
        let pool_bytes = |pool: &BufferPool| u64::from(pool.len()) * u64::from(pool.buffer_size());
        let buffers_bytes = pool_bytes(stream) + pool_bytes(datagram);
        let queues_bytes = match &self.inner {
            Inner::Uring(uring) => uring.queues_bytes(),
            Inner::Epoll(epoll) => epoll.queues_bytes(),
            Inner::Inherited(_) | Inner::Dead => 0,
        };
        DriverStats {
            buffers_bytes,
            memory_bytes: buffers_bytes + queues_bytes + table.memory_bytes(),
            in_flight: table.len() as u64,
            slots_capacity: table.capacity() as u64,
            buffers_total: u64::from(stream.len() + datagram.len()),
            buffers_out: u64::from(stream.held() + datagram.held()),
            ..*stats
        }
    }

    /// True if nothing is queued or ready, and at most one operation is in flight.
    pub fn waits_for_one_at_most(&self) -> bool {
        let is_queued = match &self.inner {
            Inner::Epoll(epoll) => epoll.has_work(),
            Inner::Uring(_) | Inner::Inherited(_) | Inner::Dead => true,
        };
        self.state.ready.is_empty() && self.state.table.len() <= 1 && !is_queued
    }

    /// False if a turn that would not block may skip [`enter`](Driver::enter): nothing is queued and nothing waits.
    /// [`take_completions`](Driver::take_completions) should be called in any case; it costs a few nanoseconds.
    pub fn needs_enter(&self) -> bool {
        if !self.state.ready.is_empty() {
            return true;
        }
        match &self.inner {
            Inner::Uring(uring) => uring.needs_enter(&self.state),
            Inner::Epoll(_) | Inner::Inherited(_) => self.state.table.len() > 0,
            Inner::Dead => false,
        }
    }

    /// Submits queued operations and waits for a completion, a wake, a signal or the time-out, in one system
    /// call. `Some(ZERO)` does not block, `None` waits without a time-out. Call
    /// [`take_completions`](Driver::take_completions) afterwards, even after an error. A wake is consumed by
    /// returning [`Entered::Woken`], never by a call that does not block.
    ///
    /// Fails if the driver was shut down, or is in use on another thread, and in a forked child if a new ring
    /// cannot be set up.
    pub fn enter(&mut self, timeout: Option<Duration>) -> io::Result<Entered> {
        self.leave_if_forked();
        // Finished completions must not wait for a sleep.
        let timeout = if self.has_completions() {
            Some(Duration::ZERO)
        } else {
            timeout.map(|timeout| timeout.min(TIMEOUT_MAX))
        };
        let entered = if timeout == Some(Duration::ZERO) {
            self.enter_backend(timeout)
        } else {
            self.wait(timeout)
        };
        if matches!(entered, Ok(Entered::Woken)) {
            self.state.stats.wakes += 1;
        }
        entered
    }

    fn enter_backend(&mut self, timeout: Option<Duration>) -> io::Result<Entered> {
        if let Inner::Inherited(inherited) = &mut self.inner {
            self.inner = Inner::Uring(Box::new(inherited.set_up(&mut self.state)?));
        }
        match &mut self.inner {
            Inner::Uring(uring) => uring.enter(&mut self.state, timeout),
            Inner::Epoll(epoll) => epoll.enter(&mut self.state, timeout),
            Inner::Inherited(_) | Inner::Dead => Err(io::Error::other("the driver was shut down")),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Entered> {
        let spin_time = self.spin.spin_time();
        if !spin_time.is_zero() {
            return self.spin_then_sleep(timeout, spin_time);
        }
        if !self.spin.is_learning() {
            let entered = self.enter_backend(timeout);
            self.last_wait = Instant::now();
            return entered;
        }
        let start = Instant::now();
        let entered = self.enter_backend(timeout);
        self.last_wait = Instant::now();
        self.spin.record_sleep(self.last_wait - start);
        entered
    }

    /// Polls for completions for a while, then waits for them. With io_uring a poll reads two words of shared
    /// memory; with epoll each is a system call, so there are pauses between them.
    fn spin_then_sleep(
        &mut self,
        timeout: Option<Duration>,
        spin_time: Duration,
    ) -> io::Result<Entered> {
        let start = Instant::now();
        let worked = start - self.last_wait;
        let spin_time = timeout.map_or(spin_time, |limit| limit.min(spin_time));
        let mut next_call = Duration::ZERO;
        loop {
            let passed = start.elapsed();
            if passed >= next_call {
                let entered = self.enter_backend(Some(Duration::ZERO))?;
                if entered == Entered::Interrupted || self.has_completions() {
                    self.state.stats.busy_polls += 1;
                    self.last_wait = Instant::now();
                    self.spin.record_spin(Some(self.last_wait - start), worked);
                    return Ok(entered);
                }
                if matches!(self.inner, Inner::Epoll(_)) {
                    next_call = start.elapsed() + SPIN_INTERVAL;
                }
            }
            // A wake is reported, and consumed, by the call that would have slept.
            let woken = self.state.waker.is_notified();
            if woken || passed >= spin_time {
                // If the time-out came first, the time is no measure of the work.
                let found = woken || timeout == Some(spin_time);
                self.spin.record_spin(found.then_some(passed), worked);
                break;
            }
            std::hint::spin_loop();
        }
        let rest = timeout.map(|limit| limit.saturating_sub(start.elapsed()));
        let entered = self.enter_backend(rest);
        self.last_wait = Instant::now();
        match (entered?, rest) {
            (Entered::Ready, Some(Duration::ZERO)) if !self.has_completions() => {
                Ok(Entered::TimedOut)
            }
            (entered, _) => Ok(entered),
        }
    }

    fn has_completions(&self) -> bool {
        !self.state.ready.is_empty()
            || matches!(&self.inner, Inner::Uring(uring) if uring.has_completions())
    }

    /// Submits queued operations without waiting: for a host that has much more to queue, so that the first
    /// operations need not wait for the last. The next [`enter`](Driver::enter) does it anyway.
    pub fn submit(&mut self) {
        self.leave_if_forked();
        match &mut self.inner {
            Inner::Uring(uring) => uring.submit_now(&mut self.state.stats.syscalls),
            Inner::Epoll(epoll) => epoll.start_queued(&mut self.state),
            Inner::Inherited(_) | Inner::Dead => {}
        }
    }

    /// Submits queued operations and takes all operations back from the kernel, to be armed again by the next
    /// [`enter`](Driver::enter), which may then come from any thread. No operation is lost or carried out twice; a
    /// send may complete short, as after a cancel. Returns after `limit` if a file operation that has begun does
    /// not end: then only this thread can continue.
    ///
    /// Call it whenever entering stops for an unknown time. It costs a system call if anything but
    /// [`poll`](Driver::poll)s is in flight, nothing otherwise.
    pub fn suspend(&mut self, limit: Duration) {
        self.leave_if_forked();
        match &mut self.inner {
            Inner::Uring(uring) => uring.suspend(&mut self.state, limit),
            // An epoll set is not bound to a thread.
            Inner::Epoll(epoll) => epoll.start_queued(&mut self.state),
            Inner::Inherited(_) | Inner::Dead => {}
        }
    }

    /// True if [`suspend`](Driver::suspend) would make no system call.
    pub fn suspends_at_once(&self) -> bool {
        match &self.inner {
            Inner::Uring(uring) => uring.suspends_at_once(&self.state),
            Inner::Epoll(epoll) => !epoll.has_queued(),
            Inner::Inherited(_) | Inner::Dead => true,
        }
    }

    /// True if cancelling and closing take effect without [`enter`](Driver::enter).
    pub fn is_suspended(&self) -> bool {
        match &self.inner {
            Inner::Uring(uring) => uring.is_suspended(),
            Inner::Epoll(_) => false,
            Inner::Inherited(_) | Inner::Dead => true,
        }
    }

    /// Moves the ready completions to `out`. Makes no system call, except to release resources of discarded
    /// operations. Multishots that ended without being cancelled (no buffers, overflow) are armed again in the same
    /// slot and not reported.
    pub fn take_completions(&mut self, out: &mut VecDeque<Completion>) {
        self.leave_if_forked();
        out.append(&mut self.state.ready);
        if let Inner::Uring(uring) = &mut self.inner {
            let most = self.state.batch;
            uring.take_at_most(&mut self.state, most, out);
        }
    }

    /// From now on [`take_completions`](Driver::take_completions) returns about this many completions (at least
    /// one), oldest first; the others wait for the next [`enter`](Driver::enter) and `take_completions`. The
    /// default is `usize::MAX`: all.
    pub fn set_batch_limit(&mut self, completions: usize) {
        self.state.batch = completions.max(1);
    }

    /// Drops the parent's kernel state without touching it. Called in a forked child; every other method detects a
    /// fork as well. Connections that were accepted before the fork and not reported yet belong to the parent.
    pub fn after_fork_in_child(&mut self) {
        if self.owner_process.is_current() {
            return;
        }
        // The page exists, because there is a driver.
        self.owner_process = OwnerProcess::current().unwrap_or(self.owner_process);
        let state = &mut self.state;
        state.ready.retain_mut(|completion| {
            let is_connection = matches!(completion.outcome, Outcome::Accepted(Ok(_)));
            if is_connection && !completion.more() {
                // The operation ends in this process as well, but the connection belongs to the parent.
                completion.outcome = Outcome::Accepted(Err(Errno::CANCELED));
                return true;
            }
            !is_connection
        });
        let inner = std::mem::replace(&mut self.inner, Inner::Dead);
        // If the child is out of descriptors its driver is dead.
        if state.waker.leave_to_parent().is_ok() {
            self.inner = match inner {
                Inner::Uring(uring) => Inner::Inherited(uring.leave_to_parent(state)),
                Inner::Epoll(mut epoll) => match epoll.leave_to_parent(state) {
                    Ok(()) => Inner::Epoll(epoll),
                    Err(_) => Inner::Dead,
                },
                inherited => inherited,
            };
        }
        if matches!(self.inner, Inner::Dead) {
            self.cancel_everything();
        }
    }

    /// Starts queued operations, cancels all, waits up to `limit` until the kernel has released them, and drops the
    /// completions. Memory that the kernel still holds after `limit` is leaked, which is the only safe option. The
    /// driver is dead afterwards. Also runs on drop, with a limit of one second.
    ///
    /// Unless the driver is [suspended](Driver::suspend), call this on the thread that entered it: another thread
    /// cannot cancel anything, and operations in flight are leaked at once.
    pub fn shutdown(&mut self, limit: Duration) {
        self.leave_if_forked();
        match std::mem::replace(&mut self.inner, Inner::Dead) {
            Inner::Uring(uring) => uring.shutdown(&mut self.state, limit),
            Inner::Epoll(mut epoll) => epoll.start_queued(&mut self.state),
            Inner::Inherited(_) | Inner::Dead => {}
        }
        self.cancel_everything();
        self.state.ready.clear();
    }

    #[inline]
    fn leave_if_forked(&mut self) {
        if !self.owner_process.is_current() {
            self.after_fork_in_child();
        }
    }

    /// After the backend is gone: every remaining operation ends with ECANCELED.
    fn cancel_everything(&mut self) {
        for index in self.state.table.indexes() {
            // A close in the list may have been finished by the operation it waited for.
            if self.state.table.is_live(index) {
                self.state.finish_later(index, -libc::ECANCELED);
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shutdown(Duration::from_secs(1));
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("backend", &self.backend)
            .field("stats", &self.stats())
            .finish()
    }
}

fn new_uring(config: &DriverConfig) -> Result<(BackendState, Inner), SetupError> {
    let waker = Waker::new().map_err(|error| SetupError::uring("eventfd", &error))?;
    let (uring, stream, datagram) = Uring::new(config, &waker)?;
    Ok((
        BackendState::new(config, waker, stream, datagram),
        Inner::Uring(Box::new(uring)),
    ))
}

fn new_epoll(config: &DriverConfig) -> Result<(BackendState, Inner), SetupError> {
    let waker = Waker::new().map_err(|error| SetupError::epoll("eventfd", &error))?;
    let (epoll, stream, datagram) = Epoll::new(config, &waker)?;
    Ok((
        BackendState::new(config, waker, stream, datagram),
        Inner::Epoll(Box::new(epoll)),
    ))
}

/// The pause between two polls that cost a system call each.
const SPIN_INTERVAL: Duration = Duration::from_micros(2);
/// Longer time-outs overflow the kernel's arithmetic; the caller enters again.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
