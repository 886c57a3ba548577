//! Parses the application's messages: their keys, and the field lines in them.

use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::capi::bytes_like_objects;

/// Converts the name of a field to lower case, as HTTP/2 and HTTP/3 require.
pub fn lower_name<'py>(name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let name = plain_bytes(name)?;
    match name.as_bytes().iter().any(u8::is_ascii_uppercase) {
        true => Ok(PyBytes::new(
            name.py(),
            &name.as_bytes().to_ascii_lowercase(),
        )),
        false => Ok(name),
    }
}

/// Converts a value as `bytes(value)` does.
pub fn plain_bytes<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => Ok(PyBytes::new(
            value.py(),
            &bytes_like_objects::any_buffer(value)?,
        )),
    }
}

pub fn final_status(status: &Bound<'_, PyAny>) -> PyResult<u16> {
    match status.extract::<u16>() {
        Ok(status @ 200..=999) => Ok(status),
        _ => {
            let text = format!("Invalid HTTP status code {status} for a final response.");
            Err(PyRuntimeError::new_err(text))
        }
    }
}

pub fn content_length(value: &[u8]) -> PyResult<u64> {
    let text = std::str::from_utf8(value).map(str::trim).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let value = String::from_utf8_lossy(value);
        PyValueError::new_err(format!("content-length: not a number: {value:?}"))
    })
}

/// The value of a key of a message. `None` if the key is missing.
pub fn optional<'py>(
    message: &Bound<'py, PyAny>,
    key: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match message.cast_exact::<PyDict>() {
        Ok(dict) => dict.get_item(key),
        Err(_) => match message.get_item(key) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_instance_of::<PyKeyError>(message.py()) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

pub fn required<'py>(
    message: &Bound<'py, PyAny>,
    key: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    optional(message, key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
}

pub fn is_true(message: &Bound<'_, PyAny>, key: &Bound<'_, PyString>) -> PyResult<bool> {
    match optional(message, key)? {
        Some(value) => value.is_truthy(),
        None => Ok(false),
    }
}
