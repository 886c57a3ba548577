//! Codes among the arguments of a call: integers of a given number of bits, checked before anything else happens.
//!
//! Python's integers have no bounds, and the error names the argument. Not here: the meaning of a code.

use std::fmt;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use uringcore_quic::Priority;

/// The bits of a variable-length integer (RFC 9000 section 16).
pub const VARINT_BITS: u32 = 62;

/// An integer from 0 to 2 to the power of `bits`, less one. `ValueError` and `TypeError` name the argument.
pub fn of_bits(given: &Bound<'_, PyAny>, name: &str, bits: u32) -> PyResult<u64> {
    let py = given.py();
    let code = match given.extract::<u64>() {
        Ok(code) => Some(code),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            let kind = given.get_type().name()?;
            let message = format!("{name}: must be an int, not {kind}");
            return Err(PyTypeError::new_err(message));
        }
        Err(error) => return Err(error),
    };
    match code {
        Some(code) if code >> bits == 0 => Ok(code),
        _ => Err(out_of_range(name, bits, given.repr()?)),
    }
}

pub fn out_of_range(name: &str, bits: u32, given: impl fmt::Display) -> PyErr {
    PyValueError::new_err(format!(
        "{name}: must be from 0 to 2**{bits} - 1 ({bits} bits), not {given}"
    ))
}

/// Converts a parameter `code`.
pub fn code(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    of_bits(given, "code", VARINT_BITS)
}

/// Converts a parameter `error_code`.
pub fn error_code(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    of_bits(given, "error_code", VARINT_BITS)
}

/// Converts a parameter `reason_phrase`. PyO3 names an argument in a note of the exception, which Python 3.10
/// does not have.
pub fn reason_phrase(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let Ok(text) = given.cast::<PyString>() else {
        let kind = given.get_type().name()?;
        let message = format!("reason_phrase: must be str, not {kind}");
        return Err(PyTypeError::new_err(message));
    };
    let text = text.to_str();
    text.map(str::to_owned)
        .map_err(|_| PyValueError::new_err("reason_phrase: cannot be encoded as UTF-8"))
}

/// For parameters `urgency` and `incremental` (RFC 9218).
pub fn priority(urgency: i64, incremental: bool) -> PyResult<Priority> {
    let priority = u8::try_from(urgency)
        .ok()
        .and_then(|urgency| Priority::new(urgency, incremental));
    priority
        .ok_or_else(|| PyValueError::new_err(format!("urgency must be from 0 to 7, not {urgency}")))
}

/// Converts a parameter `frame_type`, which may be None.
pub fn frame_type(given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    match given.is_none() {
        true => Ok(None),
        false => of_bits(given, "frame_type", VARINT_BITS).map(Some),
    }
}
