//! The low-water and high-water marks of a queue, as `set_write_buffer_limits` and similar methods take and return
//! them. The engine and TLS apply them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{PyTraverseError, PyVisit};

/// A low-water and a high-water mark in bytes. If the program's numbers are no whole sizes, they are rounded such
/// that a comparison with a size has the result that the numbers would have.
#[derive(Default)]
pub struct WaterMarks {
    pub low: usize,
    pub high: usize,
    pub given: OriginalMarks,
}

/// The marks in the form in which the program has passed them, unless they are two integers. asyncio accepts any
/// objects that compare with numbers, and returns the same objects.
#[derive(Default)]
pub struct OriginalMarks(Option<Box<(Py<PyAny>, Py<PyAny>)>>);

/// The length of the queue from which on writing is paused. A high-water mark with a fraction is rounded down for
/// `Above` and up for `At`, so that the comparison with a whole number has the same result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The queue is longer than the high-water mark, as in asyncio's transports over sockets.
    Above,
    /// The queue is as long as the high-water mark or longer, as in asyncio's TLS.
    At,
}

impl WaterMarks {
    /// Both marks, if only the high-water mark `high` is given. The low one is asyncio's default.
    pub const fn below(high: usize) -> Self {
        Self {
            low: high / 4,
            high,
            given: OriginalMarks(None),
        }
    }

    /// The marks for the arguments `high` and `low`, with asyncio's defaults and errors.
    pub fn new(
        high: Option<&Bound<'_, PyAny>>,
        low: Option<&Bound<'_, PyAny>>,
        default_high: usize,
        pause: Pause,
    ) -> PyResult<Self> {
        let (high, low) = match (high, low) {
            (None, None) => return Ok(Self::below(default_high)),
            (None, Some(low)) => (PyInt::new(low.py(), 4).mul(low)?, low.clone()),
            (Some(high), None) => (high.clone(), high.floor_div(4)?),
            (Some(high), Some(low)) => (high.clone(), low.clone()),
        };
        if !(high.ge(&low)? && low.ge(0)?) {
            return Err(PyValueError::new_err(format!(
                "high ({}) must be >= low ({}) must be >= 0",
                high.repr()?,
                low.repr()?
            )));
        }
        Ok(Self {
            low: whole(&low, f64::floor)?,
            high: whole(
                &high,
                if pause == Pause::At {
                    f64::ceil
                } else {
                    f64::floor
                },
            )?,
            given: OriginalMarks(
                (!is_size(&low) || !is_size(&high))
                    .then(|| Box::new((low.unbind(), high.unbind()))),
            ),
        })
    }

    /// The tuple `(low, high)` for Python.
    pub fn to_python<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        self.given.to_python(py, self.low, self.high)
    }

    /// The marks as Python objects, for an owner that keeps no sizes.
    pub fn into_given(self, py: Python<'_>) -> PyResult<OriginalMarks> {
        let (low, high) = self.to_python(py)?;
        Ok(OriginalMarks(Some(Box::new((low.unbind(), high.unbind())))))
    }
}

impl OriginalMarks {
    /// Visits the numbers, which are objects of the program and may refer to the transport.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.0 {
            Some(given) => {
                visit.call(&given.0)?;
                visit.call(&given.1)
            }
            None => Ok(()),
        }
    }

    /// The tuple `(low, high)` for Python: the given objects if there are any, else the sizes.
    pub fn to_python<'py>(
        &self,
        py: Python<'py>,
        low: usize,
        high: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        match &self.0 {
            Some(given) => Ok((given.0.bind(py).clone(), given.1.bind(py).clone())),
            None => {
                let (low, high) = (low.into_pyobject(py)?, high.into_pyobject(py)?);
                Ok((low.into_any(), high.into_any()))
            }
        }
    }
}

fn is_size(number: &Bound<'_, PyAny>) -> bool {
    number.is_exact_instance_of::<PyInt>() && number.extract::<usize>().is_ok()
}

/// Converts a number of 0 or more to whole bytes. Larger numbers become `usize::MAX`.
fn whole(number: &Bound<'_, PyAny>, round: fn(f64) -> f64) -> PyResult<usize> {
    if let Ok(size) = number.extract::<usize>() {
        return Ok(size);
    }
    if number.is_instance_of::<PyInt>() {
        return Ok(usize::MAX);
    }
    Ok(round(number.extract::<f64>()?) as usize)
}
