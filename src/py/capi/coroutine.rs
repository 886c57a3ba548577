//! The attributes of coroutines that `inspect`, anyio and asyncio's debug mode read, for coroutines of our own.

use pyo3::intern;
use pyo3::prelude::*;

/// The `__class__` of a coroutine of ours. `inspect.iscoroutine` has to hold, which anyio checks before it makes a
/// task, and no class can derive from Python's own.
pub fn class(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let types = py.import(intern!(py, "types"))?;
    Ok(types.getattr(intern!(py, "CoroutineType"))?.unbind())
}

/// `cr_state`, which Python has since 3.15. `None` is a coroutine that is over.
pub fn state(has_begun: Option<bool>) -> &'static str {
    match has_begun {
        Some(false) => "CORO_CREATED",
        Some(true) => "CORO_SUSPENDED",
        None => "CORO_CLOSED",
    }
}

/// A frame for a coroutine that has not begun or waits; none for one that is over.
pub fn frame(py: Python<'_>, has_begun: Option<bool>) -> PyResult<Option<Py<PyAny>>> {
    let Some(has_begun) = has_begun else {
        return Ok(None);
    };
    let frames = py.import(intern!(py, "uringcore._native_frames"))?;
    let name = match has_begun {
        true => intern!(py, "WAITING"),
        false => intern!(py, "NEW"),
    };
    let frame = frames.getattr(name)?.getattr(intern!(py, "gi_frame"))?;
    Ok(Some(frame.unbind()))
}
