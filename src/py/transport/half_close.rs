//! The end of the sending direction of a transport, of this loop or of another one.

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;

/// Ends the sending direction after all written bytes. Returns false if there is nothing to end: the transport can
/// close only both directions, or the peer has reset the connection, which the receiving side reports.
pub fn end_sending(transport: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = transport.py();
    let can = transport.call_method0(intern!(py, "can_write_eof"))?;
    if !can.is_truthy()? {
        return Ok(false);
    }
    match transport.call_method0(intern!(py, "write_eof")) {
        // A reset may arrive at any time, also between the last write and this call: the application that answers
        // must not see the error (ENOTCONN).
        Err(error) if error.is_instance_of::<PyOSError>(py) => Ok(false),
        outcome => outcome.map(|_| true),
    }
}
