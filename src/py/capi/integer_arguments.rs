//! Integer arguments with a given number of bits, such as error codes, checked before a call has any effect.
//!
//! Python's integers have no bounds. The error for a value out of range names the argument. Not here: the meaning of
//! a code.

use std::fmt;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use uringcore_quic::Priority;

/// The number of bits of a variable-length integer (RFC 9000 section 16).
pub const VARINT_BITS: u32 = 62;

/// Converts an integer from 0 to 2^`bits` - 1. The `ValueError` or `TypeError` contains `name`, the name of the
/// argument.
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

/// Converts an integer argument that is called `code`.
pub fn code(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    of_bits(given, "code", VARINT_BITS)
}

/// Converts an integer argument that is called `error_code`.
pub fn error_code(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    of_bits(given, "error_code", VARINT_BITS)
}

/// Converts a text argument that is called `reason_phrase`. PyO3's own error would name the argument only in a note of
/// the exception, and Python 3.10 has no notes.
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

/// Converts the arguments `urgency` and `incremental` (RFC 9218 section 4).
pub fn priority(urgency: i64, incremental: bool) -> PyResult<Priority> {
    let priority = u8::try_from(urgency)
        .ok()
        .and_then(|urgency| Priority::new(urgency, incremental));
    priority
        .ok_or_else(|| PyValueError::new_err(format!("urgency must be from 0 to 7, not {urgency}")))
}

/// Converts an argument with the name `frame_type`, which may be None.
pub fn frame_type(given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    match given.is_none() {
        true => Ok(None),
        false => of_bits(given, "frame_type", VARINT_BITS).map(Some),
    }
}
