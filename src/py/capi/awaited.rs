//! Awaitables of our own, which are coroutines too: the results of their steps, and the futures that they wait for.

use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The exception by which a coroutine returns `value`. CPython accepts the value itself without an exception object,
/// except a tuple, which would become the exception's arguments, and an exception.
pub fn returned(py: Python<'_>, value: Py<PyAny>) -> PyErr {
    let is_taken_apart = {
        let value = value.bind(py);
        value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyBaseException>()
    };
    match is_taken_apart {
        true => PyStopIteration::new_err((value,)),
        false => PyStopIteration::new_err(value),
    }
}

/// Converts the result of `__next__` to that of `send()`, where the end without a value is an exception.
pub fn as_sent(py: Python<'_>, what: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    what.ok_or_else(|| PyStopIteration::new_err((py.None(),)))
}

/// The error of a step after the last one.
pub fn used_up() -> PyErr {
    PyRuntimeError::new_err("cannot reuse already awaited coroutine")
}

/// The exception that `throw(type[, value[, traceback]])` raises.
pub fn raised(args: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let first = args.get_item(0)?;
    match args.get_item(1) {
        Ok(value) if !value.is_none() => Ok(PyErr::from_value(value)),
        _ => Ok(PyErr::from_value(first)),
    }
}

/// Wakes all waiting futures. Returns the first error, such as that of a closed loop.
pub fn wake(py: Python<'_>, waiting: Vec<Py<PyAny>>) -> PyResult<()> {
    let mut outcome = Ok(());
    for future in waiting {
        let future = future.bind(py);
        let set = is_done(future).and_then(|is_done| match is_done {
            true => Ok(()),
            false => future
                .call_method1(intern!(py, "set_result"), (py.None(),))
                .map(drop),
        });
        outcome = outcome.and(set);
    }
    outcome
}

pub fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = future.py();
    future.call_method0(intern!(py, "done"))?.is_truthy()
}
