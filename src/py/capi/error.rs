//! Rust errors into Python exceptions. No other file makes an exception out of an error code.

use std::ffi::CString;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use uringcore_io::{Backend, Errno, SetupError};

/// `OSError(errno, strerror)`; Python picks the subclass (`ConnectionResetError` and so on).
pub fn os_error(errno: Errno) -> PyErr {
    let text = std::io::Error::from_raw_os_error(errno.0).to_string();
    // Rust appends " (os error N)", which Python shows as "[Errno N]" already.
    let text = text
        .split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned();
    PyOSError::new_err((errno.0, text))
}

/// As [`os_error`], with the one or two paths that the operation was about.
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

/// `OSError` where the process has no descriptor left or epoll fails, as with asyncio's selectors. What is
/// about io_uring itself is a `RuntimeError`.
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

/// A forked child wants something of its parent's loop.
pub fn loop_of_parent() -> PyErr {
    PyRuntimeError::new_err(
        "This event loop belongs to the parent process; make a new one in the forked child",
    )
}

pub fn loop_closed() -> PyErr {
    PyRuntimeError::new_err("Event loop is closed")
}

/// Runs what calls Python from an object's drop. The interpreter drops objects while an exception is pending, and no
/// Python code may be called then.
pub fn with_pending_set_aside<R>(py: Python<'_>, run: impl FnOnce() -> R) -> R {
    let pending = PyErr::take(py);
    let result = run();
    if let Some(pending) = pending {
        pending.restore(py);
    }
    result
}

/// A warning from an object's drop, where nobody is there to raise it to if warnings are errors.
pub fn warn_of_a_dying_object(category: &Bound<'_, PyType>, text: String) {
    let py = category.py();
    // Without a NUL byte in it.
    let text = CString::new(text).unwrap_or_default();
    with_pending_set_aside(py, || {
        if let Err(error) = PyErr::warn(py, category, &text, 1) {
            error.write_unraisable(py, None);
        }
    });
}

/// The error with its exception made. PyO3 makes the exception of `new_err` when somebody first looks at it, and
/// panics there once the interpreter ends. Finalisers still call methods then, so an error that such a
/// method looks at comes from here.
pub fn made(py: Python<'_>, error: PyErr) -> PyErr {
    error.restore(py);
    PyErr::fetch(py)
}

/// True for what asyncio lets out of the loop instead of handing it to the exception handler.
pub fn is_exit(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PySystemExit>(py)
        || error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py)
}
