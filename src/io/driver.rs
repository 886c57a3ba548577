//! The public interface of this crate: `Driver`, which passes operations to io_uring or to epoll.
//!
//! | file | content |
//! | --- | --- |
//! | `operations` | the methods that start an operation |
//!
//! This file has a driver's construction and end, the wait for completions, and their return. The code that both
//! backends share is in `common_backend_state`.

mod operations;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::backend_setup_error::SetupError;
use crate::common_backend_state::BackendState;
use crate::completion::{Completion, Entered, Outcome};
use crate::driver_config::{Backend, DriverConfig, DriverStats};
use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::fork_detection::OwnerProcess;
use crate::receive_buffer_pool::BufferPool;
use crate::spin_policy::SpinPolicy;
use crate::uring::{Inherited, Uring};
use crate::waker::Waker;

/// Queues operations to the kernel, and returns their completions.
///
/// In each loop iteration the host queues operations, calls [`enter`](Driver::enter), which submits them and waits, and
/// takes the completions with [`take_completions`](Driver::take_completions). Sockets must be non-blocking; the epoll
/// backend relies on it.
///
/// Queuing an operation never fails. Instead the operation completes with an error: `EBADF` for a bad descriptor,
/// `ENOBUFS` if [`DriverConfig::operations_max`] operations are in flight, `ECANCELED` if the driver was shut down. An
/// operation that got no slot has the identifier [`OpId::NONE`]; its token identifies it.
///
/// With io_uring a driver belongs to the thread that enters it. Another thread can enter it only while no operation is
/// in the kernel, as after [`suspend`](Driver::suspend); otherwise `enter` fails there. The driver is not `Send`,
/// because returned buffers ([`RecvBuf`](crate::RecvBuf)) share counters with it that are not atomic. Code that moves a
/// driver to another thread must move all of its buffers too.
///
/// In a forked child the driver detects the fork and makes a ring or an epoll set for this process. It never uses the
/// parent's. Operations that were suspended, or that wait for readiness, wait in both processes. Operations that the
/// parent's kernel may be executing (a send, a file operation) end with `ECANCELED` in the child.
pub struct Driver {
    state: BackendState,
    inner: Inner,
    owner_process: OwnerProcess,
    backend: Backend,
    fallback_reason: Option<String>,
    spin: SpinPolicy,
    /// The time at which the last wait that could block ended; before the first one, the time of creation.
    last_wait: Instant,
}

enum Inner {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
    /// A ring of the parent, in a forked child that has not made its own ring yet.
    Inherited(Inherited),
    /// The driver was shut down.
    Dead,
}

impl Driver {
    /// Sets up a backend. If `config.backend` is `None`, epoll is used if io_uring does not work; if it is `Some`, a
    /// failure of that backend is an error.
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

    /// The reason why io_uring could not be used; `None` if it is used, or if the configuration named a backend.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// The time at which the last wait that could block ended.
    pub fn last_wait(&self) -> Instant {
        self.last_wait
    }

    /// A handle that wakes this driver from any thread.
    pub fn waker(&self) -> Waker {
        self.state.waker.clone()
    }

    /// The driver's counters and sizes at this moment.
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

    /// True if at most one operation is in flight, none is queued, and no completion is ready. Always false with
    /// io_uring.
    pub fn waits_for_one_at_most(&self) -> bool {
        let is_queued = match &self.inner {
            Inner::Epoll(epoll) => epoll.has_work(),
            Inner::Uring(_) | Inner::Inherited(_) | Inner::Dead => true,
        };
        self.state.ready.is_empty() && self.state.table.len() <= 1 && !is_queued
    }

    /// False if a host that does not want to block may skip [`enter`](Driver::enter): no operation is queued, and no
    /// completion is ready. The host calls [`take_completions`](Driver::take_completions) in any case, which costs a
    /// few nanoseconds.
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

    /// Submits queued operations and waits for a completion, a wake, a signal or the time-out, with one system
    /// call. A `timeout` of zero does not block, and `None` waits without a limit. The host calls
    /// [`take_completions`](Driver::take_completions) afterwards, even after an error. A wake is pending until a call
    /// that may block returns [`Entered::Woken`].
    ///
    /// Fails if the driver was shut down, if operations of another thread are in flight, or if a forked child cannot
    /// set up its own ring.
    pub fn enter(&mut self, timeout: Option<Duration>) -> io::Result<Entered> {
        self.leave_if_forked();
        // Completions that are ready must not wait for the end of a sleep.
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

    /// Polls for completions for `spin_time`, and sleeps if there are none. With io_uring a poll reads two words of
    /// shared memory. With epoll a poll is a system call, so the polls are [`SPIN_INTERVAL`] apart.
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
            // A wake that is pending ends the spinning. `enter_backend` then does not sleep, and reports the wake.
            let woken = self.state.waker.is_notified();
            if woken || passed >= spin_time {
                // The caller's time-out was shorter than the spin, so the elapsed time does not show when work would
                // have come. The policy counts such a spin as successful.
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

    /// Submits queued operations at once, instead of with the next [`enter`](Driver::enter). A host with many
    /// operations to queue calls this, so that the kernel works on the first ones while the host queues the others.
    pub fn submit(&mut self) {
        self.leave_if_forked();
        match &mut self.inner {
            Inner::Uring(uring) => uring.submit_now(&mut self.state.stats.syscalls),
            Inner::Epoll(epoll) => epoll.start_queued(&mut self.state),
            Inner::Inherited(_) | Inner::Dead => {}
        }
    }

    /// Takes all operations back from the kernel, after submitting queued ones. The next [`enter`](Driver::enter),
    /// which may come from any thread, arms them again. No operation is lost or executed twice; a send may complete
    /// short, as after a cancel. If a file operation has begun and does not end, this returns after `limit`, and only
    /// this thread can enter the driver until that operation ends.
    ///
    /// A host calls this when it stops entering for an unknown time. It costs one system call if operations other
    /// than [`poll`](Driver::poll)s are in flight, and none otherwise.
    pub fn suspend(&mut self, limit: Duration) {
        self.leave_if_forked();
        match &mut self.inner {
            Inner::Uring(uring) => uring.suspend(&mut self.state, limit),
            // Operations in an epoll set are bound to no thread, so none has to be stopped. Those still queued are
            // started.
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

    /// True after [`suspend`](Driver::suspend), until the next [`enter`](Driver::enter). Then the kernel has no
    /// operation, so cancels and closes take effect at once. True also for a driver that has ended, and in a forked
    /// child before its first `enter`: neither has a ring.
    pub fn is_suspended(&self) -> bool {
        match &self.inner {
            Inner::Uring(uring) => uring.is_suspended(),
            Inner::Epoll(_) => false,
            Inner::Inherited(_) | Inner::Dead => true,
        }
    }

    /// Appends the ready completions to `out`. The only system calls are those that release resources of discarded
    /// operations. If the kernel ended a multishot operation for lack of buffers or by an overflow, its end is not
    /// reported, and the operation is armed again in the same slot.
    pub fn take_completions(&mut self, out: &mut VecDeque<Completion>) {
        self.leave_if_forked();
        if !self.state.ready.is_empty() {
            out.append(&mut self.state.ready);
        }
        if let Inner::Uring(uring) = &mut self.inner {
            let most = self.state.batch;
            uring.take_at_most(&mut self.state, most, out);
        }
    }

    /// Limits the completions that each [`take_completions`](Driver::take_completions) returns from now on, to about
    /// this number and at least one. It returns the oldest ones; the others wait for the next
    /// [`enter`](Driver::enter). There is no limit by default.
    pub fn set_batch_limit(&mut self, completions: usize) {
        self.state.batch = completions.max(1);
    }

    /// Replaces the parent's ring or epoll set, in a forked child, without using it. Every other method detects a fork
    /// and calls this too. Connections that were accepted before the fork and not reported yet belong to the parent, so
    /// their completions are dropped here.
    pub fn after_fork_in_child(&mut self) {
        if self.owner_process.is_current() {
            return;
        }
        // This cannot fail: the driver's creation has mapped the page that detects forks.
        self.owner_process = OwnerProcess::current().unwrap_or(self.owner_process);
        let state = &mut self.state;
        state.ready.retain_mut(|completion| {
            let is_connection = matches!(completion.outcome, Outcome::Accepted(Ok(_)));
            if is_connection && !completion.more() {
                // The parent keeps the connection. The operation ends in both processes, so the child reports the end
                // without a connection.
                completion.outcome = Outcome::Accepted(Err(Errno::CANCELED));
                return true;
            }
            !is_connection
        });
        let inner = std::mem::replace(&mut self.inner, Inner::Dead);
        // If no descriptor is free for the child's own eventfd or epoll set, the child's driver counts as shut down.
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

    /// Ends the driver: submits queued operations, cancels all, and waits up to `limit` until the kernel has ended
    /// them. Their completions are dropped. Memory that the kernel may still use after `limit` is leaked, because
    /// freeing it would be unsafe. Dropping the driver does this too, with a limit of one second.
    ///
    /// Unless the driver is [suspended](Driver::suspend), the caller is the thread that entered it. Another thread
    /// cannot cancel operations, so their memory is leaked at once.
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

    /// Ends every remaining operation with ECANCELED, after the end of the backend.
    fn cancel_everything(&mut self) {
        for index in self.state.table.indexes() {
            // When this operation ends, a close that waited for it may end, too. That close is later in this list.
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

/// The pause between two polls with epoll, each of which costs a system call.
const SPIN_INTERVAL: Duration = Duration::from_micros(2);
/// The longest time-out passed to the kernel, whose arithmetic overflows with much longer ones. If it passes, the
/// caller enters again.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
