//! Converts Rust errors to Python exceptions. No other file makes an exception from an error code.

use std::ffi::CString;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use uringcore_io::{Backend, Errno, SetupError};

/// `OSError(errno, strerror)`. Python selects the subclass (`ConnectionResetError` and so on).
pub fn os_error(errno: Errno) -> PyErr {
    let text = std::io::Error::from_raw_os_error(errno.0).to_string();
    // Rust appends " (os error N)"; Python already shows "[Errno N]".
    let text = text
        .split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned();
    PyOSError::new_err((errno.0, text))
}

/// Like [`os_error`], with the one or two paths of the operation.
pub fn named_os_error(py: Python<'_>, errno: Errno, names: Option<Py<PyTuple>>) -> PyErr {
    let error = os_error(errno);
    let Some(names) = names else { return error };
    let names = names.bind(py);
    let text = error
        .value(py)
        .getattr(intern!(py, "strerror"))
        .unwrap_or_else(|_| py.None().into_bound(py))
        .unbind();
    let name = |index: usize| names.get_item(index).map(Bound::unbind).ok();
    match (name(0), name(1)) {
        (first, None) => PyOSError::new_err((errno.0, text, first)),
        (first, second) => PyOSError::new_err((errno.0, text, first, py.None(), second)),
    }
}

pub fn io_error(error: &std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(code) => os_error(Errno(code)),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// `OSError` if the process has no descriptor left or epoll fails, as with asyncio's selectors. A fault of io_uring
/// itself is a `RuntimeError`.
pub fn setup_error(error: &SetupError) -> PyErr {
    let errno = error.errno().0;
    let is_about_the_ring = error.backend() == Backend::Uring;
    match errno {
        libc::EMFILE | libc::ENFILE => PyOSError::new_err((errno, error.to_string())),
        _ if is_about_the_ring => PyRuntimeError::new_err(error.to_string()),
        _ => PyOSError::new_err((errno, error.to_string())),
    }
}

/// The loop is inside the kernel on its own thread, and this is another thread.
pub fn engine_away() -> PyErr {
    PyRuntimeError::new_err(
        "Non-thread-safe operation invoked on an event loop other than the current one: \
         use loop.call_soon_threadsafe() to reach a loop that runs in another thread",
    )
}

/// A forked child used an object of its parent's loop.
pub fn loop_of_parent() -> PyErr {
    PyRuntimeError::new_err(
        "This event loop belongs to the parent process; make a new one in the forked child",
    )
}

pub fn loop_closed() -> PyErr {
    PyRuntimeError::new_err("Event loop is closed")
}

/// Runs code that calls Python from an object's drop. The interpreter drops objects while an exception is pending,
/// and no Python code may be called then.
pub fn with_pending_set_aside<R>(py: Python<'_>, run: impl FnOnce() -> R) -> R {
    let pending = PyErr::take(py);
    let result = run();
    if let Some(pending) = pending {
        pending.restore(py);
    }
    result
}

/// A warning from an object's drop. If warnings are errors, no caller exists to receive it.
pub fn warn_of_a_dying_object(category: &Bound<'_, PyType>, text: String) {
    let py = category.py();
    // The text must not contain a NUL byte.
    let text = CString::new(text).unwrap_or_default();
    with_pending_set_aside(py, || {
        if let Err(error) = PyErr::warn(py, category, &text, 1) {
            error.write_unraisable(py, None);
        }
    });
}

/// Creates the exception of the error. PyO3 creates the exception of `new_err` at its first use, and panics there
/// once the interpreter ends. Finalisers still call methods then, so an error that such a method inspects comes from
/// here.
pub fn made(py: Python<'_>, error: PyErr) -> PyErr {
    error.restore(py);
    PyErr::fetch(py)
}

/// True for an exception that asyncio lets out of the loop instead of passing it to the exception handler.
pub fn is_exit(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PySystemExit>(py)
        || error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py)
}
