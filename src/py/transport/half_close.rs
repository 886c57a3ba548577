//! The end of the sending direction of a transport, of this loop or of another one.

use pyo3::exceptions::{PyConnectionError, PyOSError};
use pyo3::intern;
use pyo3::prelude::*;

/// The outcome of [`end_sending`].
pub enum SendingEnd {
    Ended,
    /// The transport can close only both directions.
    Unsupported,
    /// The peer has reset the connection. The receiving side reports that too.
    Reset,
}

/// Ends the sending direction after all written bytes.
pub fn end_sending(transport: &Bound<'_, PyAny>) -> PyResult<SendingEnd> {
    let py = transport.py();
    let can = transport.call_method0(intern!(py, "can_write_eof"))?;
    if !can.is_truthy()? {
        return Ok(SendingEnd::Unsupported);
    }
    match transport.call_method0(intern!(py, "write_eof")) {
        Ok(_) => Ok(SendingEnd::Ended),
        // A reset may arrive at any time, also between the last write and this call. The application that has sent a
        // response must not see the error.
        Err(error) if is_reset(py, &error) => Ok(SendingEnd::Reset),
        Err(error) => Err(error),
    }
}

fn is_reset(py: Python<'_>, error: &PyErr) -> bool {
    let errno = || error.value(py).getattr(intern!(py, "errno"));
    error.is_instance_of::<PyConnectionError>(py)
        || error.is_instance_of::<PyOSError>(py)
            && errno().is_ok_and(|it| it.extract().is_ok_and(|it: i32| it == libc::ENOTCONN))
}
