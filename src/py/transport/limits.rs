//! The limits of a write queue, as `set_write_buffer_limits` takes them. What they do is the engine's.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::HIGH_WATER_BYTES;

/// asyncio's `_set_write_buffer_limits`: `(low, high)` with its defaults and its error.
pub fn watermarks(
    high: Option<&Bound<'_, PyAny>>,
    low: Option<&Bound<'_, PyAny>>,
) -> PyResult<(usize, usize)> {
    let number = |given: Option<&Bound<'_, PyAny>>| match given {
        // asyncio takes what compares with numbers; a fraction of a byte means nothing.
        Some(given) => match given.extract::<i64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => given.extract::<f64>().map(|number| Some(number as i64)),
        },
        None => Ok(None),
    };
    watermarks_above(number(high)?, number(low)?, HIGH_WATER_BYTES)
}

/// The same with another default for the high one.
pub fn watermarks_above(
    high: Option<i64>,
    low: Option<i64>,
    default: usize,
) -> PyResult<(usize, usize)> {
    let (high, low) = match (high, low) {
        (None, None) => return Ok((default / 4, default)),
        (None, Some(low)) => (low.saturating_mul(4), low),
        (Some(high), None) => (high, high.div_euclid(4)),
        (Some(high), Some(low)) => (high, low),
    };
    if high < low || low < 0 {
        return Err(PyValueError::new_err(format!(
            "high ({high}) must be >= low ({low}) must be >= 0"
        )));
    }
    match (usize::try_from(low), usize::try_from(high)) {
        (Ok(low), Ok(high)) => Ok((low, high)),
        _ => Err(PyTypeError::new_err(
            "the limits must be non-negative integers",
        )),
    }
}
