//! `Handle` and `TimerHandle`: one callback that the loop will run.
//!
//! In debug mode the loop uses asyncio's own classes instead, which record where they were made: an
//! [`AnyHandle`] is either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit, ffi, intern};

use crate::cell::GilCell;
use crate::context::Entered;
use crate::error;
use crate::loop_core::LoopCore;
use crate::running::{Running, Turn};
use crate::thread_end::Stays;

#[derive(Default)]
struct State {
    callback: Option<Py<PyAny>>,
    args: Option<Py<PyTuple>>,
    context: Option<Py<PyAny>>,
    cancelled: bool,
    /// Where to count a cancellation while the handle sits in the timer heap.
    timer_count: Option<Arc<AtomicUsize>>,
    /// What other threads wait for while the callback runs: CPython 3.14's `call_soon_threadsafe`.
    shared: Option<Arc<Running>>,
}

/// A callback wrapper with asyncio.Handle's public methods.
#[pyclass(frozen, subclass, weakref, module = "uringcore._uringcore")]
pub struct Handle {
    state: GilCell<State>,
}

/// A callback that is due at a time of the loop's clock, with asyncio.TimerHandle's public methods.
#[pyclass(frozen, extends = Handle, weakref, module = "uringcore._uringcore")]
pub struct TimerHandle {
    when: f64,
}

/// What running a callback can end with.
pub enum Ran {
    Done,
    /// An exception for the loop's exception handler.
    Raised(PyErr),
}

impl Handle {
    pub fn new(callback: Py<PyAny>, args: Py<PyTuple>, context: Py<PyAny>) -> Self {
        Self {
            state: GilCell::new(State {
                callback: Some(callback),
                args: Some(args),
                context: Some(context),
                cancelled: false,
                timer_count: None,
                shared: None,
            }),
        }
    }

    /// A handle whose `cancel` and `cancelled` wait for a callback that runs in another thread.
    pub fn new_shared(callback: Py<PyAny>, args: Py<PyTuple>, context: Py<PyAny>) -> Self {
        let this = Self::new(callback, args, context);
        Self {
            state: GilCell::new(State {
                shared: Some(Arc::default()),
                ..this.state.into_inner()
            }),
        }
    }

    /// Makes the pair that `call_at` returns and stores.
    pub fn new_timer(
        py: Python<'_>,
        handle: Handle,
        when: f64,
        cancelled: &Arc<AtomicUsize>,
    ) -> PyResult<Py<TimerHandle>> {
        handle
            .state
            .with(py, |state| state.timer_count = Some(Arc::clone(cancelled)));
        Py::new(
            py,
            PyClassInitializer::from(handle).add_subclass(TimerHandle { when }),
        )
    }

    pub fn is_cancelled(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.cancelled)
    }

    /// The handle left the timer heap: cancelling it no longer counts there.
    pub fn leave_heap(&self, py: Python<'_>) {
        self.state.with(py, |state| state.timer_count = None);
    }

    /// Calls the callback in its context, unless it was cancelled.
    pub fn run(&self, py: Python<'_>, entered: &mut Entered) -> Ran {
        let parts = self.state.with(py, |state| {
            match (&state.callback, &state.args, &state.context) {
                (Some(callback), Some(args), Some(context)) => Some((
                    callback.clone_ref(py),
                    args.clone_ref(py),
                    context.clone_ref(py),
                    // Together with the look at the callback: who cancels sees one or the other.
                    state.shared.clone().map(Turn::begin),
                )),
                _ => None,
            }
        });
        let Some((callback, args, context, _turn)) = parts else {
            return Ran::Done;
        };
        if let Err(error) = entered.switch_exactly(py, &context) {
            return Ran::Raised(error);
        }
        match call_with_tuple(py, &callback, args.bind(py)) {
            Ok(_) => Ran::Done,
            Err(error) => Ran::Raised(error),
        }
    }

    fn wait_while_running(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.state.with(py, |state| state.shared.clone());
        match shared {
            Some(running) => running.wait(py),
            None => Ok(()),
        }
    }

    fn cancel_now(&self, py: Python<'_>) {
        let dropped = self.state.with(py, |state| {
            if state.cancelled {
                return None;
            }
            state.cancelled = true;
            if let Some(count) = state.timer_count.take() {
                count.fetch_add(1, Relaxed);
            }
            // Reference cycles end here, and the context is kept for `get_context`.
            Some((state.callback.take(), state.args.take()))
        });
        drop(dropped);
    }
}

/// `callback(*args)` by vectorcall on the tuple's own items.
fn call_with_tuple<'py>(
    py: Python<'py>,
    callback: &Py<PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let tuple = args.as_ptr().cast::<ffi::PyTupleObject>();
    // SAFETY: `args` is a live tuple, so `ob_item` points at its `len` items, which the tuple keeps
    // alive for the call and which nobody changes; this thread is attached (`py`); the result is a new
    // reference or NULL with an exception.
    unsafe {
        let items = (*tuple).ob_item.as_ptr();
        let result =
            ffi::PyObject_Vectorcall(callback.as_ptr(), items, args.len(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, result)
    }
}

#[pymethods]
impl Handle {
    /// Cancels the callback: it will not run. Idempotent. On CPython 3.14 a handle of
    /// `call_soon_threadsafe` waits here for a callback that runs in another thread.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.wait_while_running(py)?;
        self.cancel_now(py);
        Ok(())
    }

    /// True when the callback was cancelled. Waits as `cancel` does.
    fn cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait_while_running(py)?;
        Ok(self.is_cancelled(py))
    }

    /// The contextvars.Context that the callback runs in.
    fn get_context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.context.as_ref().map(|c| c.clone_ref(py)))
    }

    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let shared = self.state.with(py, |state| state.shared.is_some());
        asyncio_class(py, if shared { "ThreadSafeHandle" } else { "Handle" })
    }

    /// Runs the callback now, for a program that runs the loop's turns itself. An error goes to the
    /// exception handler of the loop that runs. A handle does not know the loop that made it, so where
    /// no loop of ours runs the caller gets the error, unlike asyncio's.
    fn _run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let _stays = Stays::here();
        let mut entered = Entered::default();
        let ran = slf.get().run(py, &mut entered);
        entered.leave(py);
        match ran {
            Ran::Raised(error) if !error::is_exit(py, &error) => {
                let running = py
                    .import(intern!(py, "asyncio.events"))?
                    .call_method0(intern!(py, "_get_running_loop"))?;
                let Ok(owner) = running.cast::<LoopCore>() else {
                    return Err(error);
                };
                let raised = (slf, error.into_value(py));
                owner.call_method1(intern!(py, "_handle_raised"), raised)?;
                Ok(())
            }
            Ran::Raised(error) => Err(error),
            Ran::Done => Ok(()),
        }
    }

    #[getter(_callback)]
    fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.callback.as_ref().map(|c| c.clone_ref(py)))
    }

    #[getter(_args)]
    fn args(&self, py: Python<'_>) -> Option<Py<PyTuple>> {
        self.state
            .with(py, |state| state.args.as_ref().map(|a| a.clone_ref(py)))
    }

    #[getter(_cancelled)]
    fn cancelled_attribute(&self, py: Python<'_>) -> bool {
        self.is_cancelled(py)
    }

    /// Always None: outside debug mode no one records where a handle was made.
    #[getter(_source_traceback)]
    fn source_traceback(&self) -> Option<Py<PyAny>> {
        None
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let this = slf.get();
        let mut text = format!("<{}", slf.get_type().name()?);
        if this.is_cancelled(py) {
            text.push_str(" cancelled");
        }
        if let Ok(timer) = slf.cast::<TimerHandle>() {
            text.push_str(&format!(" when={}", timer.get().when));
        }
        if let (Some(callback), Some(args)) = (this.callback(py), this.args(py)) {
            let helpers = py.import(intern!(py, "asyncio.format_helpers"))?;
            let source =
                helpers.call_method1(intern!(py, "_format_callback_source"), (callback, args))?;
            text.push(' ');
            text.push_str(source.cast::<PyString>()?.to_str()?);
        }
        text.push('>');
        Ok(text)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state
            .traverse(|state| {
                visit.call(&state.callback)?;
                visit.call(&state.args)?;
                visit.call(&state.context)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.state.take(py));
    }
}

#[pymethods]
impl TimerHandle {
    /// When the callback is due, in seconds on the loop's clock (`loop.time()`).
    fn when(&self) -> f64 {
        self.when
    }

    #[getter]
    fn _when(&self) -> f64 {
        self.when
    }

    /// See `Handle`: what the object is to `isinstance`.
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        asyncio_class(py, "TimerHandle")
    }

    fn __hash__(&self) -> u64 {
        // 0.0 and -0.0 are equal.
        (self.when + 0.0).to_bits()
    }

    /// asyncio's: the same callback with the same arguments at the same time.
    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<TimerHandle>() else {
            return Ok(false);
        };
        if slf.is(other) {
            return Ok(true);
        }
        if slf.get().when != other.get().when {
            return Ok(false);
        }
        let py = slf.py();
        let (one, two) = (slf.as_super().get(), other.as_super().get());
        Ok(one.is_cancelled(py) == two.is_cancelled(py)
            && one
                .callback(py)
                .into_bound_py_any(py)?
                .eq(two.callback(py))?
            && one.args(py).into_bound_py_any(py)?.eq(two.args(py))?)
    }

    fn __lt__(&self, other: &Bound<'_, TimerHandle>) -> bool {
        self.when < other.get().when
    }

    fn __le__(slf: &Bound<'_, Self>, other: &Bound<'_, TimerHandle>) -> PyResult<bool> {
        Ok(slf.get().when < other.get().when || Self::__eq__(slf, other.as_any())?)
    }

    fn __gt__(&self, other: &Bound<'_, TimerHandle>) -> bool {
        self.when > other.get().when
    }

    fn __ge__(slf: &Bound<'_, Self>, other: &Bound<'_, TimerHandle>) -> PyResult<bool> {
        Ok(slf.get().when > other.get().when || Self::__eq__(slf, other.as_any())?)
    }
}

/// A handle is an asyncio.Handle to `isinstance`; an extension class cannot derive from that one, which
/// has slots, so the object names the class that it stands for.
fn asyncio_class(py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
    Ok(py
        .import(intern!(py, "uringcore.transports"))?
        .getattr(name)?
        .unbind())
}

/// A handle of ours, or one of asyncio's (debug mode).
pub enum AnyHandle {
    Ours(Py<Handle>),
    Foreign(Py<PyAny>),
}

impl AnyHandle {
    pub fn is_cancelled(&self, py: Python<'_>) -> bool {
        match self {
            Self::Ours(handle) => handle.get().is_cancelled(py),
            // The slot, not the method: reading it runs no Python code.
            Self::Foreign(handle) => handle
                .bind(py)
                .getattr(intern!(py, "_cancelled"))
                .and_then(|cancelled| cancelled.is_truthy())
                .unwrap_or(false),
        }
    }

    /// The handle left the timer heap. asyncio's own says so in an attribute, which may run Python.
    pub fn leave_heap(&self, py: Python<'_>) {
        match self {
            Self::Ours(handle) => handle.get().leave_heap(py),
            Self::Foreign(handle) => {
                let handle = handle.bind(py);
                if let Err(error) = handle.setattr(intern!(py, "_scheduled"), false) {
                    error.write_unraisable(py, Some(handle));
                }
            }
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Ours(handle) => Self::Ours(handle.clone_ref(py)),
            Self::Foreign(handle) => Self::Foreign(handle.clone_ref(py)),
        }
    }

    pub fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::Ours(handle) => handle.get().cancel_now(py),
            Self::Foreign(handle) => {
                handle.bind(py).call_method0(intern!(py, "cancel"))?;
            }
        }
        Ok(())
    }

    pub fn as_any(&self) -> &Py<PyAny> {
        match self {
            Self::Ours(handle) => handle.as_any(),
            Self::Foreign(handle) => handle,
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Ours(handle) => visit.call(handle),
            Self::Foreign(handle) => visit.call(handle),
        }
    }
}
