//! Making handles: what `call_soon`, `call_later` and the like put on the loop's lists.
//!
//! The lists are in `loop_core` (ready) and `timers`; running them is the turn's business. In debug mode
//! asyncio's own handles are made, which record where they come from.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::context;
use crate::handle::{AnyHandle, Handle};
use crate::loop_core::LoopCore;
use crate::timers;

impl LoopCore {
    /// A handle for `callback`, on no list yet. `method` is who was called, for debug mode.
    pub fn make_handle(
        slf: &Bound<'_, Self>,
        method: &str,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<AnyHandle> {
        let py = slf.py();
        let this = slf.get();
        this.check_closed(py)?;
        if this.is_debug(py) {
            let handle = slf.call_method1(
                intern!(py, "_debug_handle"),
                (method, callback, args, context),
            )?;
            return Ok(AnyHandle::Foreign(handle.unbind()));
        }
        let make = match method {
            "call_soon_threadsafe" if cfg!(Py_3_14) => Handle::new_shared,
            _ => Handle::new,
        };
        let handle = make(
            callback.clone().unbind(),
            args.clone().unbind(),
            context::given_or_copied(py, context)?,
        );
        Ok(AnyHandle::Ours(Py::new(py, handle)?))
    }

    /// A timer on the heap, swept first if need be.
    pub fn schedule(
        slf: &Bound<'_, Self>,
        when: f64,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        this.check_closed(py)?;
        if when.is_nan() {
            return Err(PyValueError::new_err("the time must not be NaN"));
        }
        if this.is_debug(py) {
            let timer = slf.call_method1(
                intern!(py, "_debug_timer"),
                ("call_at", when, callback, args, context),
            )?;
            let handle = AnyHandle::Foreign(timer.clone().unbind());
            this.timers.with(py, |timers| timers.push(when, handle));
            return Ok(timer.unbind());
        }
        timers::rebuild(&this.timers, py);
        let handle = Handle::new(
            callback.clone().unbind(),
            args.clone().unbind(),
            context::given_or_copied(py, context)?,
        );
        let count = this.timers.with(py, |timers| timers.cancelled.clone());
        let timer = Handle::new_timer(py, handle, when, &count)?;
        let base = timer.bind(py).as_super().clone().unbind();
        this.timers
            .with(py, |timers| timers.push(when, AnyHandle::Ours(base)));
        Ok(timer.into_any())
    }
}
