//! Misuse of an HTTP/3 connection as Python exceptions, whose classes Python defines.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use uringcore_h3::LocalError;

/// Converts misuse to aioquic's exceptions. Returns `None` for a call on a closed connection: as in aioquic, its data
/// is dropped, because `ConnectionTerminated` reports the close.
pub fn local<T>(py: Python<'_>, result: Result<T, LocalError>) -> PyResult<Option<T>> {
    let error = match result {
        Ok(value) => return Ok(Some(value)),
        Err(LocalError::Closed) => return Ok(None),
        Err(error) => error,
    };
    let message = error.to_string();
    Err(match error {
        LocalError::FrameUnexpected(_) => {
            exception(py, "uringcore.h3.connection", "FrameUnexpected", &message)
        }
        LocalError::InvalidStream(_) => exception(
            py,
            "uringcore.h3.exceptions",
            "InvalidStreamTypeError",
            &message,
        ),
        LocalError::GoingAway => {
            exception(py, "uringcore.h3.exceptions", "GoingAwayError", &message)
        }
        LocalError::NoPush => exception(
            py,
            "uringcore.h3.exceptions",
            "NoAvailablePushIDError",
            &message,
        ),
        LocalError::InvalidField(_) => PyValueError::new_err(format!("headers: {message}")),
        LocalError::FieldSectionTooLarge { .. } => {
            PyValueError::new_err(format!("headers: {message}"))
        }
        LocalError::InvalidId(_) => PyValueError::new_err(format!("stream_id: {message}")),
        LocalError::DatagramsNotNegotiated | LocalError::Closed => PyRuntimeError::new_err(message),
    })
}

/// Makes an instance of the exception class `class` of the Python module `module`.
pub fn exception(py: Python<'_>, module: &str, class: &str, message: &str) -> PyErr {
    let made = py
        .import(module)
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
