//! [`Callback`]: a callback with its arguments, called by the cheapest way that the C API has.

use std::ptr::null_mut;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{Borrowed, PyTraverseError, PyVisit, ffi};

/// A callback with its arguments. Up to two arguments, which nearly always suffice, are stored here without a tuple.
pub struct Callback {
    callback: Py<PyAny>,
    args: Args,
}

enum Args {
    None,
    One(Py<PyAny>),
    Two(Py<PyAny>, Py<PyAny>),
    Many(Py<PyTuple>),
}

impl Callback {
    pub fn new(callback: &Bound<'_, PyAny>, args: &[Borrowed<'_, '_, PyAny>]) -> PyResult<Self> {
        let own = |arg: &Borrowed<'_, '_, PyAny>| (*arg).to_owned().unbind();
        let args = match args {
            [] => Args::None,
            [one] => Args::One(own(one)),
            [one, two] => Args::Two(own(one), own(two)),
            many => Args::Many(PyTuple::new(callback.py(), many)?.unbind()),
        };
        Ok(Self {
            callback: callback.clone().unbind(),
            args,
        })
    }

    pub fn callback(&self) -> &Py<PyAny> {
        &self.callback
    }

    /// Calls `callback(*args)` by vectorcall and drops the result.
    pub fn run(&self, py: Python<'_>) -> PyResult<()> {
        let callback = self.callback.as_ptr();
        // The first slot of `items` stays free: a bound method that is called puts its object there (PEP 590).
        let result = match &self.args {
            Args::None => {
                let mut items = [null_mut()];
                // SAFETY: this thread is attached (`py`), and `self` keeps the callback alive for the call. There is no
                // argument.
                unsafe { vectorcall(callback, &mut items) }
            }
            Args::One(one) => {
                let mut items = [null_mut(), one.as_ptr()];
                // SAFETY: this thread is attached (`py`); `self` keeps the callback and the argument alive for the
                // call.
                unsafe { vectorcall(callback, &mut items) }
            }
            Args::Two(one, two) => {
                let mut items = [null_mut(), one.as_ptr(), two.as_ptr()];
                // SAFETY: this thread is attached (`py`); `self` keeps the callback and the items alive for
                // the call.
                unsafe { vectorcall(callback, &mut items) }
            }
            Args::Many(tuple) => {
                let tuple = tuple.bind(py);
                let items = tuple.as_ptr().cast::<ffi::PyTupleObject>();
                // SAFETY: the tuple is alive, so `ob_item` points at its `len` items. The tuple keeps them alive for
                // the call, and no code changes it; this thread is attached.
                unsafe {
                    let items = (*items).ob_item.as_ptr();
                    ffi::PyObject_Vectorcall(callback, items, tuple.len(), null_mut())
                }
            }
        };
        // SAFETY: the result is a new reference, or null with an exception set.
        let result = unsafe { Bound::from_owned_ptr_or_err(py, result) };
        result.map(drop)
    }

    pub fn args<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.args {
            Args::None => Ok(PyTuple::empty(py)),
            Args::One(one) => PyTuple::new(py, [one]),
            Args::Two(one, two) => PyTuple::new(py, [one, two]),
            Args::Many(tuple) => Ok(tuple.bind(py).clone()),
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        let args = match &self.args {
            Args::None => Args::None,
            Args::One(one) => Args::One(one.clone_ref(py)),
            Args::Two(one, two) => Args::Two(one.clone_ref(py), two.clone_ref(py)),
            Args::Many(tuple) => Args::Many(tuple.clone_ref(py)),
        };
        Self {
            callback: self.callback.clone_ref(py),
            args,
        }
    }

    /// Drops the references. `py` proves that this thread is attached, so PyO3 need not check it.
    pub fn drop_ref(self, py: Python<'_>) {
        match self.args {
            Args::None => {}
            Args::One(one) => one.drop_ref(py),
            Args::Two(one, two) => {
                one.drop_ref(py);
                two.drop_ref(py);
            }
            Args::Many(tuple) => tuple.drop_ref(py),
        }
        self.callback.drop_ref(py);
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callback)?;
        match &self.args {
            Args::None => Ok(()),
            Args::One(one) => visit.call(one),
            Args::Two(one, two) => {
                visit.call(one)?;
                visit.call(two)
            }
            Args::Many(tuple) => visit.call(tuple),
        }
    }
}

/// Calls `callable` with all but the first of `items`.
///
/// # Safety
///
/// This thread is attached, and the callable and the items stay alive for the call.
unsafe fn vectorcall<const N: usize>(
    callable: *mut ffi::PyObject,
    items: &mut [*mut ffi::PyObject; N],
) -> *mut ffi::PyObject {
    let count = (N - 1) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
    // SAFETY: the caller guarantees what `# Safety` requires. The flag declares the free slot before the first
    // argument.
    unsafe { ffi::PyObject_Vectorcall(callable, items.as_ptr().add(1), count, null_mut()) }
}
