//! `TimerHandle`: a callback that runs at a given time of the loop's clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit};
use uringcore_engine::TimerKey;

use super::{AnyHandle, Handle, asyncio_class, is_alone};
use crate::capi::callback::Callback;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;

/// A callback that the loop calls at a given time of its clock, with the public methods of asyncio.TimerHandle.
#[pyclass(frozen, extends = Handle, weakref, module = "uringcore._uringcore")]
pub struct TimerHandle {
    /// The time in seconds, as the bits of an `f64`. It changes when the handle is reused for another callback.
    when: AtomicU64,
    /// The position of the handle in the loop's list of timers. `None` if the handle is not in the list.
    position: GilCell<Option<TimerPosition>>,
}

struct TimerPosition {
    owner: Py<LoopCore>,
    key: TimerKey,
}

impl TimerHandle {
    /// Makes a handle and adds it to the loop's timers.
    pub fn schedule(
        owner: &Bound<'_, LoopCore>,
        call: Callback,
        context: Py<PyAny>,
        when: f64,
    ) -> PyResult<Py<TimerHandle>> {
        let py = owner.py();
        let spare = owner.get().ready.with(py, |ready| ready.timers.take());
        let timer = match spare.filter(|spare| is_alone(py, spare)) {
            Some(timer) => {
                let timer = timer.into_bound(py);
                timer.as_super().get().refill(py, call, context);
                timer.get().when.store(when.to_bits(), Relaxed);
                timer.unbind()
            }
            None => {
                let timer = TimerHandle {
                    when: AtomicU64::new(when.to_bits()),
                    position: GilCell::new(None),
                };
                let handle = PyClassInitializer::from(Handle::new(call, context));
                Py::new(py, handle.add_subclass(timer))?
            }
        };
        let item = AnyHandle::Timer(timer.clone_ref(py));
        let key = owner
            .get()
            .timers
            .with(py, |timers| timers.push(when, item));
        let position = TimerPosition {
            owner: owner.clone().unbind(),
            key,
        };
        timer.get().position.with(py, |slot| *slot = Some(position));
        Ok(timer)
    }

    pub fn when(&self) -> f64 {
        f64::from_bits(self.when.load(Relaxed))
    }

    /// Records that the handle has left the loop's timers.
    pub fn has_left(&self, py: Python<'_>) {
        if let Some(position) = self.position.take(py) {
            position.owner.drop_ref(py);
        }
    }

    pub fn cancel_now(slf: &Bound<'_, Self>) {
        let py = slf.py();
        slf.as_super().get().cancel_now(py);
        if let Some(position) = slf.get().position.take(py) {
            let timers = &position.owner.get().timers;
            let left = timers.with(py, |timers| timers.remove(position.key));
            drop((left, position.owner));
        }
    }
}

#[pymethods]
impl TimerHandle {
    /// Cancels the callback, so that it will not run. A second call has no effect.
    fn cancel(slf: &Bound<'_, Self>) {
        Self::cancel_now(slf);
    }

    /// The time at which the callback is due, in seconds on the loop's clock (`loop.time()`).
    #[pyo3(name = "when")]
    fn when_method(&self) -> f64 {
        self.when()
    }

    #[getter]
    fn _when(&self) -> f64 {
        self.when()
    }

    /// asyncio's class, so that `isinstance(handle, asyncio.TimerHandle)` is true.
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        asyncio_class(py, "TimerHandle")
    }

    fn __hash__(&self) -> u64 {
        // 0.0 and -0.0 are equal, so they must have the same hash.
        (self.when() + 0.0).to_bits()
    }

    /// Handles with equal callbacks, arguments and times are equal, as in asyncio.
    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<TimerHandle>() else {
            return Ok(false);
        };
        if slf.is(other) {
            return Ok(true);
        }
        if slf.get().when() != other.get().when() {
            return Ok(false);
        }
        let py = slf.py();
        let (one, two) = (slf.as_super().get(), other.as_super().get());
        Ok(one.is_cancelled(py) == two.is_cancelled(py)
            && one
                .callback(py)
                .into_bound_py_any(py)?
                .eq(two.callback(py))?
            && one.args(py)?.into_bound_py_any(py)?.eq(two.args(py)?)?)
    }

    fn __lt__(&self, other: &Bound<'_, TimerHandle>) -> bool {
        self.when() < other.get().when()
    }

    fn __le__(slf: &Bound<'_, Self>, other: &Bound<'_, TimerHandle>) -> PyResult<bool> {
        Ok(slf.get().when() < other.get().when() || Self::__eq__(slf, other.as_any())?)
    }

    fn __gt__(&self, other: &Bound<'_, TimerHandle>) -> bool {
        self.when() > other.get().when()
    }

    fn __ge__(slf: &Bound<'_, Self>, other: &Bound<'_, TimerHandle>) -> PyResult<bool> {
        Ok(slf.get().when() > other.get().when() || Self::__eq__(slf, other.as_any())?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.position
            .traverse(|position| {
                position
                    .as_ref()
                    .map(|position| visit.call(&position.owner))
            })
            .flatten()
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.position.take(py));
    }
}
