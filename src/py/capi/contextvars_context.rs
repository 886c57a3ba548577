//! `contextvars` contexts, entered through the C API, which costs half as much as `Context.run`.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::{Borrowed, ffi};

/// Makes a copy of the current context, as `contextvars.copy_context()` does.
pub fn copy_current(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // SAFETY: this thread is attached (`py`), and the context belongs to it. The call returns a new reference or NULL
    // with an exception set, as `from_owned_ptr_or_err` expects.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent()).map(Bound::unbind) }
}

/// Returns the context that was passed with a callback. If that is None or missing, returns a copy of the caller's
/// context.
pub fn given_or_copied(
    py: Python<'_>,
    given: Option<Borrowed<'_, '_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    match given {
        Some(context) if !context.is_none() => Ok(context.to_owned().unbind()),
        _ => copy_current(py),
    }
}

/// The context in which the callbacks of a transport run, or those of all connections of a server.
pub enum CallbackContext {
    /// The program has given a context. All callbacks run in it, `connection_lost` included, as on CPython 3.15 and
    /// later.
    Given(Py<PyAny>),
    /// A copy of the context in which the transport or the server was created. `connection_lost` runs in a copy of the
    /// context in which the transport was closed.
    Copied(Py<PyAny>),
}

impl CallbackContext {
    /// `Given` with the context `given`. If `given` is None, `Copied` with a copy of the caller's context.
    pub fn new(py: Python<'_>, given: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(context) = given.filter(|context| !context.is_none()) else {
            return copy_current(py).map(Self::Copied);
        };
        // SAFETY: this thread is attached (`py`) and `context` is a live object.
        if unsafe { ffi::PyContext_CheckExact(context.as_ptr()) } == 0 {
            let kind = context.get_type().name()?;
            let text = format!("context: must be a contextvars.Context, not {kind}");
            return Err(PyTypeError::new_err(text));
        }
        Ok(Self::Given(context.unbind()))
    }

    pub fn get(&self) -> &Py<PyAny> {
        let (Self::Given(context) | Self::Copied(context)) = self;
        context
    }

    /// Makes the context of one connection of a server: a copy of this context. It begins with this context's values,
    /// and later changes do not affect other connections.
    pub fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        // SAFETY: this thread is attached (`py`) and the context is a live object. The call returns a new reference or
        // NULL with an exception set, as `from_owned_ptr_or_err` expects.
        let copy = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyContext_Copy(self.get().as_ptr()))?.unbind()
        };
        Ok(match self {
            Self::Given(_) => Self::Given(copy),
            Self::Copied(_) => Self::Copied(copy),
        })
    }

    /// Returns the context for `connection_lost` of a transport that is being closed now. `None` means the context of
    /// the other callbacks.
    pub fn at_the_end(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self {
            Self::Given(_) => Ok(None),
            Self::Copied(_) => copy_current(py).map(Some),
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Given(context) => Self::Given(context.clone_ref(py)),
            Self::Copied(context) => Self::Copied(context.clone_ref(py)),
        }
    }
}

/// A context that the current thread has entered. Its drop leaves the context.
pub struct Inside<'py>(Bound<'py, PyAny>);

impl<'py> Inside<'py> {
    /// Enters `context` for a callback that must run in any case. If the context is entered already (a callback that
    /// runs the loop inside itself has not left it), a copy is entered instead, because a context cannot be entered
    /// twice.
    pub fn of(context: &Bound<'py, PyAny>) -> PyResult<Self> {
        match Self::exactly(context) {
            Err(error) if error.is_instance_of::<PyRuntimeError>(context.py()) => {
                // SAFETY: this thread is attached and the context is a live object. The call returns a new reference or
                // NULL with an exception set, as `from_owned_ptr_or_err` expects.
                let copy = unsafe {
                    let copy = ffi::PyContext_Copy(context.as_ptr());
                    Bound::from_owned_ptr_or_err(context.py(), copy)?
                };
                Self::exactly(&copy)
            }
            outcome => outcome,
        }
    }

    /// Enters `context`. Fails if it is entered already, as in asyncio.
    pub fn exactly(context: &Bound<'py, PyAny>) -> PyResult<Self> {
        // SAFETY: this thread is attached and `context` is a live object. A wrong type, and a context that any thread
        // has entered, raise an exception.
        if unsafe { ffi::PyContext_Enter(context.as_ptr()) } != 0 {
            return Err(PyErr::fetch(context.py()));
        }
        Ok(Self(context.clone()))
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread is attached and the context is a live object, which `exactly` has entered. An exit on
        // another thread, or of a context that is not the last one entered, raises an exception.
        if unsafe { ffi::PyContext_Exit(self.0.as_ptr()) } != 0 {
            // Other code has entered a context and has not left it. The error is only printed, because nothing here
            // depends on that.
            PyErr::fetch(self.0.py()).write_unraisable(self.0.py(), None);
        }
    }
}
