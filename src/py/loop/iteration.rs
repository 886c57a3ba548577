//! The loop's iteration: waits for events and runs callbacks, in asyncio's exact order.
//!
//! A loop iteration submits commands, enters the kernel at most once, and then runs the callbacks that are ready: first
//! those that were scheduled before, then those of I/O, then due timers. Callbacks that are scheduled meanwhile wait
//! for the next loop iteration, so a callback that reschedules itself does not starve others. There is one exception:
//! tasks that events of QUIC streams have woken run in the same loop iteration, together with the callbacks before
//! them.
//!
//! **Nested loop iterations.** A program may run loop iterations inside a callback (nest_asyncio). The engine is in its
//! cell while callbacks run. If the context of an event's callback is already entered in an outer loop iteration, the
//! callback runs in a copy of that context. asyncio refuses to run a handle in that case, but received bytes must not
//! be lost.
//!
//! **The interpreter lock** is released only where the loop waits for the kernel: in an `enter` that blocks, when the
//! loop stops, and when it closes. Meanwhile the engine is not in its cell, and another thread that calls a transport
//! gets a `RuntimeError` that names `call_soon_threadsafe`.
//!
//! **Short iterations.** A loop iteration that has only callbacks to run (no flag in `loop_flags`, no due timer, no
//! work for the kernel) runs them at once. With epoll, a loop that only watches its own wake-up reads the clock in one
//! of sixteen such loop iterations, and looks at the epoll set after 50 µs. Signals are checked in one of sixteen short
//! loop iterations; Python code in a callback checks them by itself. Callbacks, flags, operation queues, timers and the
//! engine are checked one by one. A common bit mask would not be simpler: each of them would have to maintain its bit,
//! and a timer becomes due by the clock alone.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{ffi, intern};
use uringcore_engine::{Engine, OpQueues, PollTimeout};
use uringcore_io::Entered;

use crate::capi::exception_conversion;
use crate::capi::thread_exit_guard::UnwindGuard;
use crate::event_loop::clock;
use crate::event_loop::event_dispatch;
use crate::event_loop::handle::{AnyHandle, is_alone};
use crate::event_loop::loop_core::{LoopCore, LoopEngine, current_thread_id};
use crate::event_loop::loop_flags::AtomicFlags;
use crate::event_loop::ready_queue::Ready;
use crate::sock::operation_queues;
use crate::transport::base_transport::BaseTransport;

/// Runs loop iterations until the loop is stopped.
pub fn run_until_stopped(slf: &Bound<'_, LoopCore>) -> PyResult<()> {
    let _guard = UnwindGuard::enter();
    let mut run = Run::new();
    loop {
        match busy_iteration(slf, &mut run)? {
            Some(ready_now) => run_ready(slf, ready_now)?,
            None => run_iteration(slf, &mut run)?,
        }
        if slf.get().atomic_flags.has(AtomicFlags::STOPPING) {
            return Ok(());
        }
    }
}

/// Runs a single loop iteration for a program. The loop iteration skips `_prepare_to_sleep`, so there is nothing to
/// undo afterwards.
pub fn run_once(slf: &Bound<'_, LoopCore>) -> PyResult<()> {
    let _guard = UnwindGuard::enter();
    let _alone = ExclusiveIteration::new(slf.get(), slf.py());
    run_iteration(slf, &mut Run::of_one_iteration(None))
}

/// Runs the first half of a loop iteration: waits until callbacks are ready, for at most `seconds`. The program runs
/// the callbacks.
pub fn wait_until_ready(slf: &Bound<'_, LoopCore>, seconds: Option<f64>) -> PyResult<()> {
    let _guard = UnwindGuard::enter();
    let limit = seconds.map(PollTimeout::seconds);
    wait(slf, &mut Run::of_one_iteration(limit))
}

/// Prepares the engine for a loop that has stopped, for an unknown time: sends the writes of the last loop iteration
/// and takes operations back from the kernel, because another thread may run or close the loop next.
pub fn rest(this: &LoopCore, py: Python<'_>) {
    if let Some(mut engine) = this.engine.with(py, Option::take) {
        engine.flush(Instant::now());
        if engine.rests_at_once() {
            engine.rest(REST_LIMIT);
        } else {
            let mut lent = WithoutLock(&mut engine);
            py.detach(move || lent.rest());
        }
        this.engine.with(py, |slot| *slot = Some(engine));
    }
}

/// Waits until the kernel has completed all operations of a loop that closes, for at most [`SHUTDOWN_LIMIT`]. A hung
/// device may delay a completion.
pub fn shut_down(py: Python<'_>, mut engine: LoopEngine) {
    let mut lent = WithoutLock(&mut engine);
    py.detach(move || lent.shut_down());
}

/// The state of one `run_forever`, or of one loop iteration that a program runs.
struct Run {
    started: Instant,
    /// `_prepare_to_sleep` was called, so the loop may block.
    may_sleep: bool,
    /// The longest time that a wait may take. `None` for no limit.
    limit: Option<Duration>,
    /// The number of short loop iterations so far: loop iterations that had only callbacks to run.
    busy_iterations: u32,
}

impl Run {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            may_sleep: false,
            limit: None,
            busy_iterations: 0,
        }
    }

    fn of_one_iteration(limit: Option<Duration>) -> Self {
        Self {
            may_sleep: true,
            limit,
            ..Self::new()
        }
    }
}

/// Keeps other threads out of the loop while a program runs ready callbacks by itself, even if it does so outside of
/// a run (`_thread_id` is not set).
pub struct ExclusiveIteration<'a, 'py> {
    this: &'a LoopCore,
    py: Python<'py>,
    /// True for the outermost run: no thread was running the loop before.
    is_first: bool,
}

impl<'a, 'py> ExclusiveIteration<'a, 'py> {
    pub fn new(this: &'a LoopCore, py: Python<'py>) -> Self {
        let is_first = this.flags.with(py, |flags| {
            let is_first = flags.runner.is_none();
            flags.runner.get_or_insert_with(current_thread_id);
            is_first
        });
        Self { this, py, is_first }
    }
}

impl Drop for ExclusiveIteration<'_, '_> {
    fn drop(&mut self) {
        if self.is_first {
            self.this.flags.with(self.py, |flags| {
                // The callback has started a run of the loop that still continues, so that run's thread stays recorded.
                if flags.thread_id.is_none() {
                    flags.runner = None;
                }
            });
        }
    }
}

/// Returns the number of callbacks of a short iteration, which has only callbacks to run. `None` if the iteration may
/// have other work. Signals are checked in one of [`ITERATIONS_WITHOUT_SIGNALS`] loop iterations, because Python code
/// in callbacks checks them by itself.
fn busy_iteration(slf: &Bound<'_, LoopCore>, run: &mut Run) -> PyResult<Option<usize>> {
    let (py, this) = (slf.py(), slf.get());
    let ready_now = this.ready.with(py, |ready| ready.len());
    let is_plain = ready_now > 0
        && this.atomic_flags.is_empty()
        && this.op_queues.with(py, OpQueues::skip_iteration)
        && nothing_is_due(slf)?
        && this.engine.with(py, |engine| {
            engine
                .as_mut()
                .is_some_and(|engine| engine.skip_iteration())
        });
    if !is_plain {
        return Ok(None);
    }
    if run
        .busy_iterations
        .is_multiple_of(ITERATIONS_WITHOUT_SIGNALS)
    {
        check_signals(py)?;
    }
    run.busy_iterations = run.busy_iterations.wrapping_add(1);
    Ok(Some(ready_now))
}

/// True if no timer can be due. False if the program has its own clock, which only a whole loop iteration reads.
fn nothing_is_due(slf: &Bound<'_, LoopCore>) -> PyResult<bool> {
    if clock::is_replaced(slf)? {
        return Ok(false);
    }
    let next = slf.get().timers.with(slf.py(), |timers| timers.next_due());
    Ok(next.is_none_or(|due| due > clock::monotonic() + clock::RESOLUTION))
}

fn run_iteration(slf: &Bound<'_, LoopCore>, run: &mut Run) -> PyResult<()> {
    wait(slf, run)?;
    let (py, this) = (slf.py(), slf.get());
    let ready_now = this.ready.with(py, |ready| ready.len());
    run_ready(slf, ready_now)?;
    let more = this
        .ready
        .with(py, |ready| match ready.iteration_continues {
            true => ready.len(),
            false => 0,
        });
    if more > 0 && !this.atomic_flags.has(AtomicFlags::STOPPING) {
        run_ready(slf, more)?;
    }
    // The loop iteration continues once only: callbacks that were scheduled by the tasks above wait for the next loop
    // iteration.
    this.ready
        .with(py, |ready| ready.iteration_continues = false);
    Ok(())
}

/// The part of a loop iteration before its callbacks: submits commands, waits in the kernel, collects events and due
/// timers.
fn wait(slf: &Bound<'_, LoopCore>, run: &mut Run) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    if this.runs_elsewhere(py) {
        return Err(exception_conversion::engine_away());
    }
    if this.ready.with(py, |ready| ready.is_empty()) {
        // A signal that came in a short loop iteration must be handled before the loop sleeps, even if the program has
        // replaced the descriptor that would wake the loop. The check comes before the start of operations, because a
        // signal handler, or a garbage collection that CPython begins here, may start some.
        check_signals(py)?;
    }
    operation_queues::start_operations(slf)?;
    let idle_from = idle_from(slf)?;
    let Some(mut engine) = this.engine.with(py, Option::take) else {
        if this.flags.with(py, |flags| flags.forked) {
            return Err(exception_conversion::loop_of_parent());
        }
        return Err(PyRuntimeError::new_err(
            "this event loop is already inside its own iteration",
        ));
    };
    this.run_queued_commands(py, &mut engine);
    let time = endpoint_time(&engine, run.started);
    engine.flush(time);
    let has_work = engine.events_ready() > 0
        || this.ready.with(py, |ready| !ready.is_empty())
        || this.atomic_flags.has(AtomicFlags::STOPPING);
    // A run that never blocks does not need `_prepare_to_sleep`. Other runs make one more loop iteration without
    // blocking.
    let prepare = !has_work && !run.may_sleep;
    let timeout = if has_work || prepare {
        Some(Duration::ZERO)
    } else {
        let idle = idle_time(this, py, &engine, idle_from);
        idle.at_most(run.limit).timeout()
    };

    let outcome = if timeout == Some(Duration::ZERO) {
        if engine.needs_enter() {
            engine.enter(timeout)
        } else {
            Ok(Entered::Ready)
        }
    } else {
        let mut lent = WithoutLock(&mut engine);
        py.detach(move || lent.enter(timeout))
    };
    let time = endpoint_time(&engine, run.started);
    engine.process(time);
    let events = engine.events_ready();
    this.engine.with(py, |slot| *slot = Some(engine));

    this.ready.with(py, |ready| ready.note_events(events));
    take_due_timers(slf)?;
    if prepare {
        slf.call_method0(intern!(py, "_prepare_to_sleep"))?;
        run.may_sleep = true;
    }

    match outcome {
        // Signals are checked even if the wait was not interrupted, because the kernel does not report EINTR for a
        // signal that comes together with a completion.
        Ok(_) => check_signals(py),
        Err(error) => Err(exception_conversion::io_error(&error)),
    }
}

/// The current time for the QUIC sockets. Nothing else in the engine needs it, so a loop without QUIC sockets does
/// not read the clock again.
fn endpoint_time(engine: &Engine, started: Instant) -> Instant {
    if engine.has_endpoints() {
        Instant::now()
    } else {
        started
    }
}

/// The current time of the loop's clock in seconds, from which the time until the first timer is counted, if the
/// program has replaced the clock. It is read while the engine is in its cell, because the read runs Python code.
fn idle_from(slf: &Bound<'_, LoopCore>) -> PyResult<Option<f64>> {
    let py = slf.py();
    let this = slf.get();
    let may_wait = this.ready.with(py, |ready| ready.is_empty())
        && !this.atomic_flags.has(AtomicFlags::STOPPING)
        && this.timers.with(py, |timers| !timers.is_empty());
    if may_wait && clock::is_replaced(slf)? {
        return clock::now(slf).map(Some);
    }
    Ok(None)
}

/// The time until a timer, a deadline of the engine or a check of the operation queues is due.
fn idle_time(this: &LoopCore, py: Python<'_>, engine: &Engine, from: Option<f64>) -> PollTimeout {
    let timer = this.timers.with(py, |timers| timers.next_due());
    let look = this.op_queues.with(py, |op_queues| op_queues.next_check());
    PollTimeout::default()
        .until_due(timer, || from.unwrap_or_else(clock::monotonic))
        .until(engine.next_deadline(), Instant::now)
        .until(look, Instant::now)
}

fn take_due_timers(slf: &Bound<'_, LoopCore>) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let Some(end) = clock::end_of_iteration(slf)? else {
        return Ok(());
    };
    while let Some(handle) = this.timers.with(py, |timers| timers.pop_due(end)) {
        handle.has_left_timers(py);
        this.push_ready(py, Ready::Handle(handle));
    }
    Ok(())
}

/// Runs the callbacks of this loop iteration, at most `count`. One of them may run nested loop iterations
/// (nest_asyncio), which take some of the others out of the queue.
fn run_ready(slf: &Bound<'_, LoopCore>, count: usize) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let progress = &*this.callback_progress;
    progress.begin(count);
    for left in (0..count).rev() {
        let Some(item) = this.ready.with(py, |ready| ready.pop_front()) else {
            break;
        };
        let outcome = run_reported(slf, item);
        // An exception that leaves the loop (KeyboardInterrupt) ends the loop iteration. Its other callbacks run in the
        // next one.
        let left = if outcome.is_ok() { left } else { 0 };
        if progress.end_one(left) {
            with_engine_at_hand(this, py, Engine::end_watched_callback);
        }
        outcome?;
    }
    Ok(())
}

/// Calls `run` with the engine, unless a callback has closed the loop. Only the loop's own thread may call this
/// function, because no lock excludes other threads here.
#[inline]
pub fn with_engine_at_hand(this: &LoopCore, py: Python<'_>, run: impl FnOnce(&mut Engine)) {
    this.engine.with(py, |engine| {
        if let Some(engine) = engine {
            run(engine);
        }
    });
}

/// Runs one item and reports its exception to the loop's exception handler.
pub fn run_reported(slf: &Bound<'_, LoopCore>, item: Ready) -> PyResult<()> {
    run_item(slf, item).or_else(|error| report_exception(slf, error))
}

fn run_item(slf: &Bound<'_, LoopCore>, item: Ready) -> PyResult<()> {
    let py = slf.py();
    match item {
        Ready::Handle(handle) => run_handle(slf, handle),
        Ready::Event => match slf.get().with_engine(py, Engine::take_event)? {
            Some(event) => event_dispatch::event(slf, event),
            None => Ok(()),
        },
        Ready::Start(transport, waiter) => {
            BaseTransport::start(transport.bind(py), waiter.as_ref())
        }
    }
}

/// Passes an exception to the loop's exception handler. Returns the exception if it must leave the loop (`SystemExit`,
/// `KeyboardInterrupt`).
fn report_exception(slf: &Bound<'_, LoopCore>, error: PyErr) -> PyResult<()> {
    let py = slf.py();
    if exception_conversion::is_exit(py, &error) {
        return Err(error);
    }
    let reported = slf.call_method1(
        intern!(py, "_report"),
        ("Exception in the event loop", error.into_value(py)),
    );
    match reported {
        Ok(_) => Ok(()),
        Err(error) if exception_conversion::is_exit(py, &error) => Err(error),
        // Only a subclass whose `call_exception_handler()` raises comes here.
        Err(error) => {
            error.write_unraisable(py, Some(slf));
            Ok(())
        }
    }
}

/// Runs one handle. Returns only exceptions that leave the loop, as in asyncio.
pub fn run_handle(slf: &Bound<'_, LoopCore>, handle: AnyHandle) -> PyResult<()> {
    let py = slf.py();
    let result = match &handle {
        AnyHandle::Ours(ours) => ours.get().run(py, is_alone(py, ours)),
        AnyHandle::Timer(timer) => timer.bind(py).as_super().get().run(py, is_alone(py, timer)),
        AnyHandle::Foreign(foreign) => {
            if !handle.is_cancelled(py) {
                slf.call_method1(intern!(py, "_run_debug_handle"), (foreign,))?;
            }
            Ok(())
        }
    };
    if let Err(error) = result {
        return handle_raised(slf, &handle, error);
    }
    retire(slf.get(), py, handle);
    Ok(())
}

fn handle_raised(slf: &Bound<'_, LoopCore>, handle: &AnyHandle, error: PyErr) -> PyResult<()> {
    let py = slf.py();
    if exception_conversion::is_exit(py, &error) {
        return Err(error);
    }
    let raised = (handle.as_any(), error.into_value(py));
    slf.call_method1(intern!(py, "_handle_raised"), raised)?;
    Ok(())
}

/// Keeps a handle that has run, to use it for another callback, if nothing else references it.
fn retire(this: &LoopCore, py: Python<'_>, handle: AnyHandle) {
    let left = match handle {
        AnyHandle::Ours(handle) if is_alone(py, &handle) => {
            handle.get().empty(py);
            let too_many = this.ready.with(py, |ready| ready.handles.keep(handle));
            too_many.map(AnyHandle::Ours)
        }
        AnyHandle::Timer(timer) if is_alone(py, &timer) => {
            timer.bind(py).as_super().get().empty(py);
            let too_many = this.ready.with(py, |ready| ready.timers.keep(timer));
            too_many.map(AnyHandle::Timer)
        }
        held => Some(held),
    };
    if let Some(handle) = left {
        handle.drop_ref(py);
    }
}

/// The engine, lent to `Python::detach`, which runs a closure without the interpreter lock.
struct WithoutLock<'a>(&'a mut Engine);

// SAFETY: `detach` runs the closure on this thread; only its bound requires `Send`. Other threads run meanwhile.
// They cannot reach the engine, which `wait`, `rest` and `_core_close` have taken out of its cell before. Nor can
// they reach the counters that the engine shares with buffers outside of it (`uringcore_io::RecvBuf`): no Python
// object holds such a buffer. They are on the stack of this thread, below a nested loop iteration that an event's
// callback runs, and `wait` lets no other thread into a run. If the engine drops a Python object here, it is a `Py`,
// whose drop PyO3 defers while the lock is released.
unsafe impl Send for WithoutLock<'_> {}

impl WithoutLock<'_> {
    fn enter(&mut self, timeout: Option<Duration>) -> std::io::Result<Entered> {
        self.0.enter(timeout)
    }

    fn rest(&mut self) {
        self.0.rest(REST_LIMIT);
    }

    fn shut_down(&mut self) {
        self.0.shutdown(SHUTDOWN_LIMIT);
    }
}

fn check_signals(py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached (`py`); outside the main thread the call does nothing.
    if unsafe { ffi::PyErr_CheckSignals() } != 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(())
}

/// The number of short loop iterations between two checks for signals, which take some microseconds. A loop that blocks
/// is woken by a signal.
const ITERATIONS_WITHOUT_SIGNALS: u32 = 16;
// The wrapping counter of loop iterations must wrap at a multiple of [`ITERATIONS_WITHOUT_SIGNALS`].
const _: () = assert!(ITERATIONS_WITHOUT_SIGNALS.is_power_of_two());
/// The longest time that a stopping loop waits for operations that cannot be cancelled: file operations that the
/// kernel has begun and whose device hangs.
const REST_LIMIT: Duration = Duration::from_millis(50);
/// The longest time that a closing loop waits for the kernel to complete cancelled operations.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);
