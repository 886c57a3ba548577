//! `LoopCore`: the base class of `uringcore.UringEventLoop`.
//!
//! In the method resolution order it comes before `asyncio.SelectorEventLoop`, so its methods replace asyncio's. It
//! has the methods that programs call most and the state that asyncio's base class reads: `_stopping`, `_closed`,
//! `_debug` and `_thread_id` are descriptors here, so that both classes see the same values. All other methods are
//! CPython's own code. The loop iteration is in `iteration`, the handling of the engine's events in `event_dispatch`.

use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_engine::{CallbackProgress, Engine, OpQueues, Timers};
use uringcore_io::{Backend, DriverConfig, Waker};

use crate::capi::contextvars_context::CallbackContext;
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;
use crate::capi::malloc_thresholds;
use crate::event_loop::clock::{self, ClockWatch};
use crate::event_loop::cross_thread_commands::CrossThreadCommand;
use crate::event_loop::engine_key_objects::{EngineObjects, ListenerObjects};
use crate::event_loop::fd_watchers::descriptor_number;
use crate::event_loop::handle::AnyHandle;
use crate::event_loop::iteration;
use crate::event_loop::loop_flags::AtomicFlags;
use crate::event_loop::ready_queue::{Ready, ReadyQueue};
use crate::ops::operation_futures::Waiters;
use crate::sock::cancelled_results::{self, CancelledResults};

#[derive(Default)]
pub struct Flags {
    /// asyncio's `_thread_id`: the result of `threading.get_ident()`, which a program may have replaced. None while no
    /// run is in progress.
    pub thread_id: Option<u64>,
    /// The thread that executes a run or a single loop iteration of this loop. None if there is none.
    pub runner: Option<u64>,
    /// True if this process is a forked child and the loop was made in the parent.
    pub forked: bool,
}

#[pyclass(frozen, subclass, weakref, module = "uringcore._uringcore")]
pub struct LoopCore {
    /// `None` while the loop's thread is in the kernel without the interpreter lock, and after `close`.
    pub engine: GilCell<Option<LoopEngine>>,
    pub callback_progress: Arc<CallbackProgress>,
    pub ready: GilCell<ReadyQueue>,
    pub timers: GilCell<Timers<AnyHandle>>,
    pub objects: GilCell<EngineObjects>,
    pub waiters: GilCell<Waiters>,
    pub op_queues: GilCell<OpQueues>,
    pub cancelled_results: GilCell<CancelledResults>,
    pub flags: GilCell<Flags>,
    pub atomic_flags: AtomicFlags,
    pub task_factory: GilCell<Option<Py<PyAny>>>,
    pub clock: GilCell<ClockWatch>,
    waker: GilCell<Option<Waker>>,
    backend: Backend,
    busy_poll_us: Option<u64>,
    fallback_reason: Option<String>,
}

/// The engine as a value that an object shared between threads can hold.
pub struct LoopEngine(Box<Engine>);

// SAFETY: an engine is not `Send` because of raw memory that only it uses, and of counters that it shares with
// kernel buffers outside of it (`uringcore_io::RecvBuf`). The counters are not atomic, so no thread may touch
// the engine while another one holds such a buffer. No Python object holds one: buffers are on the stack of the
// loop's thread while it dispatches an event. Other threads are kept off meanwhile by the interpreter lock or, in a
// build without one, by `LoopCore::with_engine`. Nothing in an engine relies on thread-local state.
unsafe impl Send for LoopEngine {}

impl Deref for LoopEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl DerefMut for LoopEngine {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.0
    }
}

impl LoopCore {
    /// Calls `run` with the engine. Fails if the loop is closed, or if another thread runs it.
    pub fn with_engine<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Engine) -> R,
    ) -> PyResult<R> {
        // Without an interpreter lock, the loop's thread may hold buffers of the ring between two calls. So a call from
        // another thread is refused, as it is while the loop waits in the kernel.
        #[cfg(Py_GIL_DISABLED)]
        if self.runs_elsewhere(py) {
            return Err(error::engine_away());
        }
        let result = self
            .engine
            .with(py, |engine| engine.as_deref_mut().map(run));
        result.ok_or_else(|| {
            if self.is_closed() {
                exception_conversion::loop_closed()
            } else if self.flags.with(py, |flags| flags.forked) {
                exception_conversion::loop_of_parent()
            } else {
                exception_conversion::engine_away()
            }
        })
    }

    /// True if a transport owns this descriptor and does not allow watchers on it.
    pub fn is_driven(&self, py: Python<'_>, fd: RawFd) -> PyResult<bool> {
        let watchable = self
            .objects
            .with(py, |objects| objects.watchable_fds.contains(&fd));
        Ok(!watchable && self.with_engine(py, |engine| engine.transports().has_descriptor(fd))?)
    }

    /// Fails if a transport owns the descriptor `fd`. The error message shows the descriptor as `shown`.
    pub fn check_no_transport(
        &self,
        py: Python<'_>,
        fd: RawFd,
        shown: impl Display,
    ) -> PyResult<()> {
        if !self.is_driven(py, fd)? {
            return Ok(());
        }
        let transport = self
            .objects
            .with(py, |objects| objects.transport_over(py, fd));
        let name = match transport {
            Some(transport) => format!(" {}", transport.repr()?),
            None => String::new(),
        };
        Err(PyRuntimeError::new_err(format!(
            "File descriptor {shown} is used by transport{name}"
        )))
    }

    pub fn push_ready(&self, py: Python<'_>, item: Ready) {
        self.ready.with(py, |ready| ready.push_back(item));
    }

    pub fn is_debug(&self) -> bool {
        self.atomic_flags.has(AtomicFlags::DEBUG)
    }

    pub fn is_closed(&self) -> bool {
        self.atomic_flags.has(AtomicFlags::CLOSED)
    }

    pub fn check_closed(&self) -> PyResult<()> {
        match self.is_closed() {
            true => Err(exception_conversion::loop_closed()),
            false => Ok(()),
        }
    }

    pub fn wake(&self, py: Python<'_>) {
        self.waker.with(py, |waker| {
            if let Some(waker) = waker {
                waker.wake();
            }
        });
    }

    /// Wakes the loop if it sleeps. The system call runs without the interpreter lock, because the woken loop needs
    /// that lock first and would otherwise sleep again for it.
    pub fn wake_unlocked(&self, py: Python<'_>) {
        let sleeping = self.waker.with(py, |waker| {
            waker.as_ref().filter(|one| one.notify()).cloned()
        });
        if let Some(waker) = sleeping {
            py.detach(|| waker.write_eventfd());
        }
    }
}

#[pymethods]
impl LoopCore {
    #[new]
    #[pyo3(signature = (backend = None, busy_poll_us = None))]
    fn new(backend: Option<&str>, busy_poll_us: Option<i64>) -> PyResult<Self> {
        let backend = match backend {
            None | Some("auto") => None,
            Some("uring") => Some(Backend::Uring),
            Some("epoll") => Some(Backend::Epoll),
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "backend must be 'uring', 'epoll' or None, not {other:?}"
                )));
            }
        };
        let in_range = |us: i64| {
            let number = u64::try_from(us).ok();
            number.filter(|&us| us <= BUSY_POLL_US_MAX).ok_or_else(|| {
                PyValueError::new_err(format!(
                    "busy_poll_us must be between 0 and {BUSY_POLL_US_MAX}, not {us}"
                ))
            })
        };
        let busy_poll_us = busy_poll_us.map(in_range).transpose()?;
        let config = DriverConfig {
            backend,
            busy_poll: busy_poll_us.map(Duration::from_micros),
            ..DriverConfig::default()
        };
        malloc_thresholds::show_large_block();
        let engine =
            Engine::new(&config).map_err(|error| exception_conversion::setup_error(&error))?;
        Ok(Self {
            backend: engine.backend(),
            busy_poll_us,
            fallback_reason: engine.fallback_reason().map(str::to_owned),
            waker: GilCell::new(Some(engine.waker())),
            callback_progress: engine.callback_progress(),
            engine: GilCell::new(Some(LoopEngine(Box::new(engine)))),
            ready: GilCell::new(ReadyQueue::default()),
            timers: GilCell::new(Timers::default()),
            objects: GilCell::new(EngineObjects::default()),
            waiters: GilCell::new(Waiters::default()),
            op_queues: GilCell::new(OpQueues::default()),
            cancelled_results: GilCell::new(CancelledResults::default()),
            flags: GilCell::new(Flags::default()),
            atomic_flags: AtomicFlags::default(),
            task_factory: GilCell::new(None),
            clock: GilCell::new(ClockWatch::default()),
        })
    }

    /// The backend of this loop: ``"uring"`` or ``"epoll"``.
    #[getter]
    fn backend(&self) -> &'static str {
        self.backend.as_str()
    }

    /// The time in microseconds for which the loop polls for work before it blocks. 0: it blocks at once. None: it
    /// polls only briefly, and only while recent waits were short.
    #[getter]
    fn busy_poll_us(&self) -> Option<u64> {
        self.busy_poll_us
    }

    /// The reason for which epoll was chosen automatically, or None.
    #[getter]
    fn _fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    // State that asyncio's base class reads and writes -------------------------------------------

    #[getter(_stopping)]
    fn stopping_attribute(&self) -> bool {
        self.atomic_flags.has(AtomicFlags::STOPPING)
    }

    #[setter(_stopping)]
    fn set_stopping_attribute(&self, value: bool) {
        self.atomic_flags.set(AtomicFlags::STOPPING, value);
    }

    #[getter(_closed)]
    fn closed_attribute(&self) -> bool {
        self.is_closed()
    }

    #[setter(_closed)]
    fn set_closed_attribute(&self, value: bool) {
        self.atomic_flags.set(AtomicFlags::CLOSED, value);
    }

    #[getter(_task_factory)]
    fn task_factory_attribute(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.task_factory.with(py, |factory| {
            factory.as_ref().map(|factory| factory.clone_ref(py))
        })
    }

    #[setter(_task_factory)]
    fn set_task_factory_attribute(&self, py: Python<'_>, value: Option<Py<PyAny>>) {
        let old = self
            .task_factory
            .with(py, |factory| std::mem::replace(factory, value));
        drop(old);
    }

    /// True if the loop was closed.
    #[pyo3(name = "is_closed")]
    fn is_closed_method(&self) -> bool {
        self.is_closed()
    }

    fn _check_closed(&self) -> PyResult<()> {
        self.check_closed()
    }

    /// True while the loop runs.
    fn is_running(&self, py: Python<'_>) -> bool {
        self.flags.with(py, |flags| flags.thread_id.is_some())
    }

    #[getter(_debug)]
    fn debug_attribute(&self) -> bool {
        self.is_debug()
    }

    #[setter(_debug)]
    fn set_debug_attribute(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.atomic_flags
            .set(AtomicFlags::DEBUG, value.is_truthy()?);
        Ok(())
    }

    #[getter(_thread_id)]
    fn thread_id_attribute(&self, py: Python<'_>) -> Option<u64> {
        self.flags.with(py, |flags| flags.thread_id)
    }

    /// Sets the identifier of the thread that runs the loop; None at the end of the run. asyncio's `run_forever`, or a
    /// program's own version of it, assigns this attribute.
    #[setter(_thread_id)]
    fn set_thread_id_attribute(&self, py: Python<'_>, value: Option<u64>) {
        let running = self.flags.with(py, |flags| flags.thread_id.is_some());
        match (running, value) {
            (false, Some(_)) => self
                .op_queues
                .with(py, |op_queues| op_queues.check_now(Instant::now())),
            (true, None) => iteration::rest(self, py),
            _ => {}
        }
        self.flags.with(py, |flags| {
            flags.thread_id = value;
            flags.runner = value.map(|_| current_thread_id());
        });
    }

    // Scheduling ---------------------------------------------------------------------------------

    /// The time of the loop's clock in seconds (``time.monotonic()``).
    fn time(&self) -> f64 {
        clock::monotonic()
    }

    fn __setattr__(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        clock::set_attribute(slf, name, Some(value))
    }

    fn __delattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        clock::set_attribute(slf, name, None)
    }

    /// Removes a cancelled handle from the timers. asyncio's TimerHandle, which debug mode uses, calls this.
    fn _timer_handle_cancelled(&self, py: Python<'_>, handle: &Bound<'_, PyAny>) -> PyResult<()> {
        // A handle that is no longer in the list of timers need not be removed.
        if handle.getattr(intern!(py, "_scheduled"))?.is_truthy()? {
            let is_it = |one: &AnyHandle| one.as_any().is(handle);
            let left = self.timers.with(py, |timers| {
                timers.find(is_it).and_then(|key| timers.remove(key))
            });
            if let Some(left) = left {
                left.has_left_timers(py);
            }
        }
        Ok(())
    }

    /// Stops the loop at the end of the current loop iteration.
    fn stop(&self) {
        self.atomic_flags.set(AtomicFlags::STOPPING, true);
    }

    /// Runs loop iterations until the loop is stopped. ``run_forever`` calls this between its set-up and clean-up.
    fn _run_until_stopped(slf: &Bound<'_, Self>) -> PyResult<()> {
        iteration::run_until_stopped(slf)
    }

    /// Runs one loop iteration, as asyncio does: waits until a callback is ready, and runs all that are ready.
    fn _run_once(slf: &Bound<'_, Self>) -> PyResult<()> {
        iteration::run_once(slf)
    }

    /// Runs the first half of a loop iteration: waits until a callback is ready, for at most ``timeout`` seconds.
    #[pyo3(signature = (timeout = None))]
    fn _wait_until_ready(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<()> {
        iteration::wait_until_ready(slf, timeout)
    }

    /// Adds a handle of asyncio's signal handling to the ready callbacks.
    fn _add_callback(&self, py: Python<'_>, handle: Py<PyAny>) {
        let handle = AnyHandle::Foreign(handle);
        if !handle.is_cancelled(py) {
            self.push_ready(py, Ready::Handle(handle));
        }
    }

    fn _write_to_self(&self, py: Python<'_>) {
        self.wake(py);
    }

    /// Adapts time limits to an emulator, in which code takes `factor` times as long (`benchmarks.programs.counted`).
    #[pyo3(signature = (factor))]
    fn _slow_down(&self, py: Python<'_>, factor: u32) -> PyResult<()> {
        self.with_engine(py, |engine| engine.slow_down(factor))
    }

    // Watchers -----------------------------------------------------------------------------------

    #[pyo3(signature = (fd, callback, *args, context = None))]
    fn _add_reader(
        slf: &Bound<'_, Self>,
        fd: &Bound<'_, PyAny>,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        slf.get().check_closed()?;
        Self::watch(slf, fd, false, callback, args, context)
    }

    #[pyo3(signature = (fd, callback, *args, context = None))]
    fn _add_writer(
        slf: &Bound<'_, Self>,
        fd: &Bound<'_, PyAny>,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        slf.get().check_closed()?;
        Self::watch(slf, fd, true, callback, args, context)
    }

    fn _remove_reader(&self, fd: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.unwatch(fd, false)
    }

    fn _remove_writer(&self, fd: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.unwatch(fd, true)
    }

    fn _ensure_fd_no_transport(&self, py: Python<'_>, fd: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(number) = descriptor_number(fd)?.extract::<RawFd>() else {
            return Ok(()); // The number is too large for a file descriptor, so nothing uses it.
        };
        // While the engine is in the kernel, the descriptor's owner cannot be looked up. Only another thread can call
        // then, and asyncio does not allow that.
        match self.is_driven(py, number) {
            Ok(true) => self.check_no_transport(py, number, fd.repr()?),
            _ => Ok(()),
        }
    }

    /// Allows or forbids watchers on a transport's descriptor. `sendfile()` needs them while it writes to the
    /// descriptor.
    fn _set_watchable(&self, py: Python<'_>, fd: RawFd, watchable: bool) {
        self.objects.with(py, |objects| {
            if watchable {
                objects.watchable_fds.insert(fd);
            } else {
                objects.watchable_fds.remove(&fd);
            }
        });
    }

    // Transports ---------------------------------------------------------------------------------

    /// Accepts connections on a listening socket, which the caller keeps open until `_unlisten`. With `is_shared`,
    /// other processes or threads may accept on the same socket.
    #[pyo3(signature = (fd, is_shared, protocol_factory, tls, server, context = None))]
    fn _listen(
        slf: &Bound<'_, Self>,
        fd: RawFd,
        is_shared: bool,
        protocol_factory: Py<PyAny>,
        tls: Option<Py<PyAny>>,
        server: Py<PyAny>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let context = CallbackContext::new(py, context)?;
        let this = slf.get();
        // A second call for the same descriptor replaces the first registration, as `add_reader` does.
        this._unlisten(py, fd)?;
        let key = this.with_engine(py, |engine| match is_shared {
            true => engine.listeners().open_shared(fd),
            false => engine.listeners().open(fd),
        })?;
        let host = ListenerObjects {
            key,
            protocol_factory,
            tls,
            server,
            context,
        };
        this.objects
            .with(py, |objects| objects.listeners.insert(fd, host));
        Ok(())
    }

    /// Stops accepting on the descriptor. The address becomes free when the caller closes the socket.
    fn _unlisten(&self, py: Python<'_>, fd: RawFd) -> PyResult<()> {
        let Some(host) = self
            .objects
            .with(py, |objects| objects.listeners.remove(&fd))
        else {
            return Ok(());
        };
        if self.runs_elsewhere(py) {
            self.queue_command(py, CrossThreadCommand::StopListener(host.key));
            return Ok(());
        }
        if self.has_no_engine(py) {
            return Ok(());
        }
        self.with_engine(py, |engine| engine.listeners().stop(host.key))?
            .map_err(|error| exception_conversion::io_error(&error))
    }

    /// Accepts again after a failure, such as the lack of free descriptors.
    fn _relisten(&self, py: Python<'_>, fd: RawFd) -> PyResult<()> {
        if let Some(key) = self.objects.with(py, |objects| {
            objects.listeners.get(&fd).map(|host| host.key)
        }) {
            self.with_engine(py, |engine| engine.listeners().resume(key))?;
        }
        Ok(())
    }

    // Closing -------------------------------------------------------------------------------------

    /// Releases all resources: cancels all operations and waits for the kernel to complete them, for at most one
    /// second.
    fn _core_close(&self, py: Python<'_>) -> PyResult<()> {
        let ready = self.ready.take(py);
        let timers = self.timers.take(py);
        let objects = self.objects.take(py);
        let waiters = self.waiters.take(py);
        drop(self.op_queues.take(py));
        cancelled_results::close(self, py)?;
        let engine = self.engine.with(py, Option::take);
        let waker = self.waker.with(py, Option::take);
        if let Some(engine) = engine {
            iteration::shut_down(py, engine);
        }
        // No operation is in flight any more, so sockets that were kept open for operations are closed now.
        for (_, transport) in objects.transports.iter().flatten() {
            transport.get().loop_closed(py)?;
        }
        drop((ready, timers, objects, waiters, waker));
        Ok(())
    }

    /// Prepares the loop for a fork by this thread: submits commands and takes all operations back from the kernel, so
    /// that parent and child have equal states. From then on parent and child share the sockets.
    fn _before_fork(&self, py: Python<'_>) {
        if self.runs_elsewhere(py) {
            self.queue_command(py, CrossThreadCommand::ShareSockets);
            return;
        }
        self.engine.with(py, |engine| {
            if let Some(engine) = engine {
                engine.share_sockets();
            }
        });
        iteration::rest(self, py);
    }

    /// Adapts the loop in a forked child. The child leaves the parent's ring untouched and makes its own when the loop
    /// runs.
    ///
    /// If another thread was in the kernel with the engine at the fork, that thread does not exist in the child. The
    /// loop cannot be used then, but it can be closed.
    fn _after_fork_in_child(&self, py: Python<'_>) {
        self.engine.with(py, |engine| {
            if let Some(engine) = engine {
                engine.after_fork_in_child();
            }
        });
        self.flags.with(py, |flags| {
            flags.forked = true;
            if flags.runner != Some(current_thread_id()) {
                (flags.thread_id, flags.runner) = (None, None);
            }
        });
    }

    fn _core_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        crate::event_loop::stats::of_loop(py, self)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.ready
            .traverse(|ready| ready.traverse(&visit))
            .unwrap_or(Ok(()))?;
        self.timers
            .traverse(|timers| timers.iter().try_for_each(|handle| handle.traverse(&visit)))
            .unwrap_or(Ok(()))?;
        self.objects
            .traverse(|objects| objects.traverse(&visit))
            .unwrap_or(Ok(()))?;
        self.waiters
            .traverse(|waiters| waiters.traverse(&visit))
            .unwrap_or(Ok(()))?;
        self.task_factory
            .traverse(|factory| visit.call(factory))
            .unwrap_or(Ok(()))?;
        self.cancelled_results
            .traverse(|cancelled_results| cancelled_results.traverse(&visit))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop((
            self.ready.take(py),
            self.timers.take(py),
            self.objects.take(py),
            self.waiters.take(py),
            self.op_queues.take(py),
            self.cancelled_results.take(py),
            self.task_factory.take(py),
        ));
    }
}

/// The result of `threading.get_ident()` on this thread.
pub fn current_thread_id() -> u64 {
    // SAFETY: this C function needs no state of the interpreter.
    unsafe { pyo3::ffi::PyThread_get_thread_ident() as u64 }
}

/// One second. A loop that spins for so long hardly ever blocks, so larger values are not needed.
const BUSY_POLL_US_MAX: u64 = 1_000_000;
