//! `Handle`: a callback that the loop will run.
//!
//! | file | content |
//! | --- | --- |
//! | `timer_handle` | `TimerHandle`: a callback that runs at a given time |
//! | `any_handle` | a handle in the loop's lists, of this package or of asyncio |
//!
//! If the loop has the only reference to a handle when the handle runs, the callback is moved out of it and `iteration`
//! keeps the handle for another callback. This is so for nearly every handle of `call_soon`. Timer handles are reused
//! too. In debug mode the loop uses asyncio's own classes, which record where a handle was made.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit, ffi, intern};

use crate::capi::callback::Callback;
use crate::capi::contextvars_context::Inside;
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;
use crate::capi::thread_exit_guard::UnwindGuard;
use crate::event_loop::loop_core::LoopCore;
use crate::event_loop::threadsafe_handle_lock::{CallbackRun, RunningCallback};

mod any_handle;
mod timer_handle;

pub use any_handle::AnyHandle;
pub use timer_handle::TimerHandle;

#[derive(Default)]
struct HandleState {
    call: Option<Callback>,
    context: Option<Py<PyAny>>,
    cancelled: bool,
    /// Present in a handle of `call_soon_threadsafe` on CPython 3.14 and later: other threads wait on it while the
    /// callback runs.
    shared: Option<Arc<RunningCallback>>,
}

/// A callback for the loop, with the public methods of asyncio.Handle.
#[pyclass(frozen, subclass, weakref, module = "uringcore._uringcore")]
pub struct Handle {
    state: GilCell<HandleState>,
}

/// The callback of a handle that runs now, moved out of the handle or copied.
struct TakenCallback {
    call: Callback,
    context: Py<PyAny>,
    _busy: Option<CallbackRun>,
}

impl Handle {
    pub fn new(call: Callback, context: Py<PyAny>) -> Self {
        Self {
            state: GilCell::new(HandleState {
                call: Some(call),
                context: Some(context),
                ..HandleState::default()
            }),
        }
    }

    /// Makes a handle whose methods `cancel` and `cancelled` wait while its callback runs in another thread.
    pub fn new_shared(call: Callback, context: Py<PyAny>) -> Self {
        Self {
            state: GilCell::new(HandleState {
                call: Some(call),
                context: Some(context),
                shared: Some(Arc::default()),
                ..HandleState::default()
            }),
        }
    }

    /// Fills a handle that [`empty`](Self::empty) has emptied.
    pub fn refill(&self, py: Python<'_>, call: Callback, context: Py<PyAny>) {
        self.state.with(py, |state| {
            debug_assert!(state.call.is_none() && state.context.is_none());
            state.call = Some(call);
            state.context = Some(context);
        });
    }

    /// Drops the contents of a handle to which no other references exist, so that it can be reused.
    pub fn empty(&self, py: Python<'_>) {
        let left = self.state.with(py, |state| {
            let is_empty = state.call.is_none() && state.context.is_none();
            // Most handles are empty here: if nothing else references a handle, running it moves the callback and the
            // context out.
            if is_empty && state.shared.is_none() {
                state.cancelled = false;
                return None;
            }
            Some(std::mem::take(state))
        });
        let Some(state) = left else {
            return;
        };
        if let Some(call) = state.call {
            call.drop_ref(py);
        }
        if let Some(context) = state.context {
            context.drop_ref(py);
        }
    }

    pub fn is_cancelled(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.cancelled)
    }

    /// Calls the callback in its context, unless it was cancelled. `alone` is true if there are no other references to
    /// the handle. The caller passes a returned error to the loop's exception handler.
    pub fn run(&self, py: Python<'_>, alone: bool) -> PyResult<()> {
        let begun = self.state.with(py, |state| {
            // The callback is read and the run is marked in one borrow. So `cancel` on another thread sees either a
            // callback that has not started, or a marked run.
            let busy = state.shared.clone().map(CallbackRun::begin);
            let (call, context) = match (alone, &state.call, &state.context) {
                (true, Some(_), Some(_)) => (state.call.take()?, state.context.take()?),
                (false, Some(call), Some(context)) => (call.clone_ref(py), context.clone_ref(py)),
                _ => return None,
            };
            Some(TakenCallback {
                call,
                context,
                _busy: busy,
            })
        });
        let Some(begun) = begun else {
            return Ok(());
        };
        let entering = Inside::exactly(begun.context.bind(py));
        let result = entering.and_then(|_inside| begun.call.run(py));
        match result {
            Err(_) if alone => self.state.with(py, |state| {
                // The callback is put back into the handle, because the exception handler gets the handle and prints
                // its callback.
                (state.call, state.context) = (Some(begun.call), Some(begun.context));
            }),
            _ => {
                begun.call.drop_ref(py);
                begun.context.drop_ref(py);
            }
        }
        result
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
            state.cancelled = true;
            // Drops the callback, which breaks reference cycles. The context is kept for `get_context`.
            state.call.take()
        });
        if let Some(call) = dropped {
            call.drop_ref(py);
        }
    }

    fn call(&self, py: Python<'_>) -> Option<Callback> {
        self.state.with(py, |state| {
            state.call.as_ref().map(|call| call.clone_ref(py))
        })
    }
}

/// True if this is the only reference to the object, weak references included.
pub fn is_alone<T>(_py: Python<'_>, handle: &Py<T>) -> bool {
    if cfg!(Py_GIL_DISABLED) {
        return false; // Without an interpreter lock the reference count is not reliable.
    }
    let object = handle.as_ptr();
    // SAFETY: the object is alive and has the memory layout of its class: `tp_weaklistoffset` is the offset of its list
    // of weak references, 0 if there is none. This thread has the interpreter lock (`_py`), and builds without one
    // returned above, so no other thread changes the count or the list.
    unsafe {
        let offset = (*ffi::Py_TYPE(object)).tp_weaklistoffset;
        ffi::Py_REFCNT(object) == 1
            && offset > 0
            && (*object.byte_offset(offset).cast::<*mut ffi::PyObject>()).is_null()
    }
}

#[pymethods]
impl Handle {
    /// Cancels the callback, so that it will not run. Further calls do nothing. On CPython 3.14 and later, a handle of
    /// `call_soon_threadsafe` waits for the end of the callback if another thread is running it.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.wait_while_running(py)?;
        self.cancel_now(py);
        Ok(())
    }

    /// True if the callback was cancelled. Waits for a running callback as `cancel` does.
    fn cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait_while_running(py)?;
        Ok(self.is_cancelled(py))
    }

    /// The contextvars.Context in which the callback runs.
    fn get_context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.context.as_ref().map(|c| c.clone_ref(py)))
    }

    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let shared = self.state.with(py, |state| state.shared.is_some());
        asyncio_class(py, if shared { "ThreadSafeHandle" } else { "Handle" })
    }

    /// Runs the callback now. For programs that run the loop's iterations themselves. An exception goes to the
    /// exception handler of the running loop. A handle has no reference to its loop, so if no loop of this package
    /// runs, the exception is raised, unlike in asyncio.
    fn _run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let _guard = UnwindGuard::enter();
        match slf.get().run(py, false) {
            Err(error) if !exception_conversion::is_exit(py, &error) => {
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
            outcome => outcome,
        }
    }

    #[getter(_callback)]
    fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.call(py).map(|call| call.callback().clone_ref(py))
    }

    #[getter(_args)]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.call(py).map(|call| call.args(py)).transpose()
    }

    #[getter(_cancelled)]
    fn cancelled_attribute(&self, py: Python<'_>) -> bool {
        self.is_cancelled(py)
    }

    /// Always None, because only handles of debug mode record where they were made.
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
            let when = PyFloat::new(py, timer.get().when());
            text.push_str(&format!(" when={}", when.repr()?));
        }
        // When the interpreter ends, no module can be imported, and the repr has no details.
        if let (Some(callback), Some(args)) = (this.callback(py), this.args(py)?)
            && let Ok(helpers) = py.import(intern!(py, "asyncio.format_helpers"))
        {
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
                if let Some(call) = &state.call {
                    call.traverse(&visit)?;
                }
                visit.call(&state.context)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.state.take(py));
    }
}

/// The asyncio class that a handle returns as its `__class__`, so that `isinstance` is true. Extension classes cannot
/// derive from asyncio's classes, which have slots.
fn asyncio_class(py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
    Ok(py
        .import(intern!(py, "uringcore._isinstance_classes"))?
        .getattr(name)?
        .unbind())
}
