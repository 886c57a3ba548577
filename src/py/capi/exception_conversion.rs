//! Converts Rust errors to Python exceptions. No other file makes an exception from an error code.

use std::ffi::CString;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use uringcore_io::{Backend, Errno, SetupError};

/// `OSError(errno, strerror)`. Python selects the subclass by the number, such as `ConnectionResetError`.
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

/// Makes the error of [`os_error`] with `filename`, and `filename2` if the operation has two paths.
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

/// Converts an error of the loop's creation. `OSError` if the process has no free descriptor or epoll fails, as with
/// asyncio's selectors; `RuntimeError` for a fault of io_uring itself.
pub fn setup_error(error: &SetupError) -> PyErr {
    let errno = error.errno().0;
    let is_about_the_ring = error.backend() == Backend::Uring;
    match errno {
        libc::EMFILE | libc::ENFILE => PyOSError::new_err((errno, error.to_string())),
        _ if is_about_the_ring => PyRuntimeError::new_err(error.to_string()),
        _ => PyOSError::new_err((errno, error.to_string())),
    }
}

/// The error for a call from another thread while the loop's own thread is inside the kernel with the engine.
pub fn engine_away() -> PyErr {
    PyRuntimeError::new_err(
        "Non-thread-safe operation invoked on an event loop other than the current one: \
         use loop.call_soon_threadsafe() to reach a loop that runs in another thread",
    )
}

/// The error for a forked child that uses an object of its parent's loop.
pub fn loop_of_parent() -> PyErr {
    PyRuntimeError::new_err(
        "This event loop belongs to the parent process; make a new one in the forked child",
    )
}

pub fn loop_closed() -> PyErr {
    PyRuntimeError::new_err("Event loop is closed")
}

/// Runs `run`, which may call Python, inside an object's drop. The interpreter may drop the object while an exception
/// is pending, and Python code must not be called then. So the pending exception is taken and set again afterwards.
pub fn with_pending_set_aside<R>(py: Python<'_>, run: impl FnOnce() -> R) -> R {
    let pending = PyErr::take(py);
    let result = run();
    if let Some(pending) = pending {
        pending.restore(py);
    }
    result
}

/// Issues a warning from an object's drop. If warnings are errors, the exception has no caller, so it is written to
/// `sys.unraisablehook`.
pub fn warn_of_a_dying_object(category: &Bound<'_, PyType>, text: String) {
    let py = category.py();
    // A text that contains a NUL byte becomes an empty one.
    let text = CString::new(text).unwrap_or_default();
    with_pending_set_aside(py, || {
        if let Err(error) = PyErr::warn(py, category, &text, 1) {
            error.write_unraisable(py, None);
        }
    });
}

/// Makes the exception object of `error` now. PyO3 makes it at the first use, and panics if the interpreter is ending
/// by then. Finalisers still call methods at that time, so a method that inspects an error calls this function first.
pub fn made(py: Python<'_>, error: PyErr) -> PyErr {
    error.restore(py);
    PyErr::fetch(py)
}

/// True for `SystemExit` and `KeyboardInterrupt`, which end the event loop in asyncio. All other exceptions go to the
/// loop's exception handler.
pub fn is_exit(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PySystemExit>(py)
        || error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py)
}
