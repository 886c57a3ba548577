//! Wakes the asyncio futures for which coroutines written in Rust wait.

use pyo3::intern;
use pyo3::prelude::*;

/// Sets the result None on all futures in `waiting` that are not done. Returns the first error, such as that of a
/// closed loop.
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
