//! [`Coroutine`]: coroutine classes written in Rust, with the methods and attributes of CPython's coroutines.
//!
//! No class can derive from CPython's coroutine type, and a PyO3 class cannot be generic. So the macro
//! [`coroutine_methods`] writes the methods of each class, and the first field of the class implements [`Coroutine`];
//! in most cases it is a [`RustCoroutine`](super::rust_coroutine::RustCoroutine). asyncio runs these coroutines;
//! `inspect`, anyio and asyncio's debug mode read their attributes.

use std::borrow::Cow;

use pyo3::exceptions::{
    PyBaseException, PyRuntimeError, PyStopIteration, PyTypeError, PyValueError,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit, ffi};

/// The result of a step of a coroutine.
pub enum Stepped {
    /// The coroutine waits for this future, or with None for the next loop iteration.
    Waits(Py<PyAny>),
    /// The coroutine has ended with this value.
    Returned(Py<PyAny>),
}

/// The behaviour of a coroutine. [`coroutine_methods`] makes a Python class from it.
pub trait Coroutine {
    /// Runs until the coroutine waits or ends. `value` is the argument of `send()`.
    fn resume(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<Stepped>;

    /// Raises the exception of `args` inside the coroutine, as a cancelled task does, and runs until the coroutine waits
    /// or ends.
    fn throw(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Stepped>;

    fn close(&self, py: Python<'_>) -> PyResult<()>;

    fn state(&self, py: Python<'_>) -> CoroutineState;

    fn qualname(&self, py: Python<'_>) -> Cow<'static, str>;

    fn name(&self, py: Python<'_>) -> Cow<'static, str> {
        match self.qualname(py) {
            Cow::Borrowed(name) => Cow::Borrowed(name.rsplit('.').next().unwrap_or(name)),
            Cow::Owned(name) => Cow::Owned(name.rsplit('.').next().unwrap_or(&name).to_owned()),
        }
    }

    /// The iterator of the future for which the coroutine waits, if it waits.
    fn awaited(&self, py: Python<'_>) -> Option<Py<PyAny>>;

    fn frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        stand_in_frame(py, self.state(py))
    }

    /// The code object. `None` for a coroutine without Python code.
    fn code(&self, _py: Python<'_>) -> Option<Py<PyAny>> {
        None
    }

    /// The traceback of the coroutine's creation. `None` unless `sys.set_coroutine_origin_tracking_depth` has enabled
    /// it.
    fn origin(&self, _py: Python<'_>) -> Option<Py<PyAny>> {
        None
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;

    /// Drops all references that may be part of a reference cycle. The garbage collector calls this method.
    fn clear(&self, py: Python<'_>);
}

/// The states that `inspect.getcoroutinestate` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoroutineState {
    Created,
    Running,
    Suspended,
    Closed,
}

impl CoroutineState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "CORO_CREATED",
            Self::Running => "CORO_RUNNING",
            Self::Suspended => "CORO_SUSPENDED",
            Self::Closed => "CORO_CLOSED",
        }
    }
}

/// Defines the Python methods of a coroutine class `$class`, whose first field implements [`Coroutine`].
macro_rules! coroutine_methods {
    ($class:ident) => {
        #[pyo3::pymethods]
        impl $class {
            fn __await__(slf: pyo3::Py<Self>) -> pyo3::Py<Self> {
                slf
            }

            fn __iter__(slf: pyo3::Py<Self>) -> pyo3::Py<Self> {
                slf
            }

            fn __next__(
                &self,
                py: pyo3::Python<'_>,
            ) -> pyo3::PyResult<Option<pyo3::Py<pyo3::PyAny>>> {
                $crate::capi::coroutine_methods::next(&self.0, py)
            }

            fn send(
                &self,
                py: pyo3::Python<'_>,
                value: &pyo3::Bound<'_, pyo3::PyAny>,
            ) -> pyo3::PyResult<pyo3::Py<pyo3::PyAny>> {
                $crate::capi::coroutine_methods::send(&self.0, py, value)
            }

            #[pyo3(signature = (*args))]
            fn throw(
                &self,
                py: pyo3::Python<'_>,
                args: &pyo3::Bound<'_, pyo3::types::PyTuple>,
            ) -> pyo3::PyResult<pyo3::Py<pyo3::PyAny>> {
                $crate::capi::coroutine_methods::throw(&self.0, py, args)
            }

            fn close(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<()> {
                $crate::capi::coroutine_methods::Coroutine::close(&self.0, py)
            }

            /// CPython's coroutine type, because anyio makes a task only of an object for which `inspect.iscoroutine`
            /// is True.
            #[getter(__class__)]
            fn class(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<pyo3::Py<pyo3::PyAny>> {
                $crate::capi::coroutine_methods::class(py)
            }

            #[getter]
            fn __name__(&self, py: pyo3::Python<'_>) -> std::borrow::Cow<'static, str> {
                $crate::capi::coroutine_methods::Coroutine::name(&self.0, py)
            }

            #[getter]
            fn __qualname__(&self, py: pyo3::Python<'_>) -> std::borrow::Cow<'static, str> {
                $crate::capi::coroutine_methods::Coroutine::qualname(&self.0, py)
            }

            #[getter]
            fn cr_await(&self, py: pyo3::Python<'_>) -> Option<pyo3::Py<pyo3::PyAny>> {
                $crate::capi::coroutine_methods::Coroutine::awaited(&self.0, py)
            }

            #[getter]
            fn cr_code(&self, py: pyo3::Python<'_>) -> Option<pyo3::Py<pyo3::PyAny>> {
                $crate::capi::coroutine_methods::Coroutine::code(&self.0, py)
            }

            #[getter]
            fn cr_frame(
                &self,
                py: pyo3::Python<'_>,
            ) -> pyo3::PyResult<Option<pyo3::Py<pyo3::PyAny>>> {
                $crate::capi::coroutine_methods::Coroutine::frame(&self.0, py)
            }

            #[getter]
            fn cr_origin(&self, py: pyo3::Python<'_>) -> Option<pyo3::Py<pyo3::PyAny>> {
                $crate::capi::coroutine_methods::Coroutine::origin(&self.0, py)
            }

            #[getter]
            fn cr_running(&self, py: pyo3::Python<'_>) -> bool {
                let state = $crate::capi::coroutine_methods::Coroutine::state(&self.0, py);
                state == $crate::capi::coroutine_methods::CoroutineState::Running
            }

            /// Read by `inspect.getcoroutinestate` from CPython 3.11 on.
            #[getter]
            fn cr_suspended(&self, py: pyo3::Python<'_>) -> bool {
                let state = $crate::capi::coroutine_methods::Coroutine::state(&self.0, py);
                state == $crate::capi::coroutine_methods::CoroutineState::Suspended
            }

            /// Read by `inspect.getcoroutinestate` from CPython 3.15 on.
            #[getter]
            fn cr_state(&self, py: pyo3::Python<'_>) -> &'static str {
                $crate::capi::coroutine_methods::Coroutine::state(&self.0, py).name()
            }

            fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
                $crate::capi::coroutine_methods::Coroutine::traverse(&self.0, &visit)
            }

            fn __clear__(&self, py: pyo3::Python<'_>) {
                $crate::capi::coroutine_methods::Coroutine::clear(&self.0, py);
            }
        }
    };
}

pub(crate) use coroutine_methods;

/// The method `__next__()` of a coroutine, by which `await` makes its steps. If the coroutine has returned a value, the
/// result is `None` and the interpreter has the StopIteration already: PyO3 would make an exception object for it, which
/// costs as much as the step.
#[inline]
pub fn next(coroutine: &impl Coroutine, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    match coroutine.resume(py, None)? {
        Stepped::Waits(future) => Ok(Some(future)),
        Stepped::Returned(value) => {
            if !value.is_none(py) {
                raise_returned(py, value);
            }
            Ok(None)
        }
    }
}

/// The method `send()` of a coroutine.
pub fn send(
    coroutine: &impl Coroutine,
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    if !value.is_none() && coroutine.state(py) == CoroutineState::Created {
        let message = "can't send non-None value to a just-started coroutine";
        return Err(PyTypeError::new_err(message));
    }
    as_sent(coroutine.resume(py, Some(value))?)
}

/// The method `throw()` of a coroutine.
pub fn throw(
    coroutine: &impl Coroutine,
    py: Python<'_>,
    args: &Bound<'_, PyTuple>,
) -> PyResult<Py<PyAny>> {
    as_sent(coroutine.throw(py, args)?)
}

pub fn class(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let types = py.import(intern!(py, "types"))?;
    Ok(types.getattr(intern!(py, "CoroutineType"))?.unbind())
}

/// A frame for `cr_frame` of a coroutine without Python code, because debuggers expect one. `None` after the
/// coroutine's end.
pub fn stand_in_frame(py: Python<'_>, state: CoroutineState) -> PyResult<Option<Py<PyAny>>> {
    let name = match state {
        CoroutineState::Created => intern!(py, "NEW"),
        CoroutineState::Running | CoroutineState::Suspended => intern!(py, "WAITING"),
        CoroutineState::Closed => return Ok(None),
    };
    let frames = py.import(intern!(py, "uringcore._rust_coroutine_frames"))?;
    let frame = frames.getattr(name)?.getattr(intern!(py, "gi_frame"))?;
    Ok(Some(frame.unbind()))
}

/// Raises the `StopIteration` with which a coroutine returns `value`. Before CPython 3.12, the interpreter keeps the
/// value without an exception object. Two kinds of values need that object: a tuple, whose items CPython would take for
/// the exception's arguments, and an exception, which CPython would raise itself.
fn raise_returned(py: Python<'_>, value: Py<PyAny>) {
    let value = value.into_bound(py);
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyBaseException>() {
        return PyStopIteration::new_err((value.unbind(),)).restore(py);
    }
    // SAFETY: this thread is attached (`py`), and both objects are alive. The call takes references of its own.
    unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, value.as_ptr()) };
}

/// The error for a coroutine that is resumed after its end.
pub fn used_up() -> PyErr {
    PyRuntimeError::new_err("cannot reuse already awaited coroutine")
}

/// The error for a coroutine that is resumed from inside its own step.
pub fn executing() -> PyErr {
    PyValueError::new_err("coroutine already executing")
}

/// The exception that `throw(exception)` or `throw(type[, value[, traceback]])` raises. The traceback is ignored.
pub fn raised(args: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let first = args.get_item(0)?;
    let value = args.get_item(1).ok().filter(|value| !value.is_none());
    let class = first.cast::<PyType>().ok();
    let class = class.filter(|class| class.is_subclass_of::<PyBaseException>().unwrap_or(false));
    match (class, value) {
        (None, _) if !first.is_instance_of::<PyBaseException>() => {
            let kind = first.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "exceptions must be classes or instances deriving from BaseException, not {kind}"
            )))
        }
        (None, Some(_)) => Err(PyTypeError::new_err(
            "instance exception may not have a separate value",
        )),
        (_, None) => Ok(PyErr::from_value(first.clone())),
        (Some(_), Some(value)) if value.is_instance_of::<PyBaseException>() => {
            Ok(PyErr::from_value(value))
        }
        (Some(class), Some(value)) => Ok(match value.cast_into::<PyTuple>() {
            Ok(values) => PyErr::from_type(class.clone(), values.unbind()),
            Err(value) => PyErr::from_type(class.clone(), (value.into_inner().unbind(),)),
        }),
    }
}

/// The result of `send()` and of `throw()`, which raise StopIteration for None, too.
fn as_sent(stepped: Stepped) -> PyResult<Py<PyAny>> {
    match stepped {
        Stepped::Waits(future) => Ok(future),
        Stepped::Returned(value) => Err(PyStopIteration::new_err((value,))),
    }
}
