//! The marks of a queue, as `set_write_buffer_limits` and similar methods take and return them. The engine and TLS apply
//! them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use pyo3::{PyTraverseError, PyVisit};

/// A low and a high mark in bytes: whole numbers that compare with a size as the given numbers do.
#[derive(Default)]
pub struct Marks {
    pub low: usize,
    pub high: usize,
    pub given: Given,
}

/// The low and the high mark as given, if they are not two sizes. asyncio accepts any object that compares with numbers,
/// and returns it.
#[derive(Default)]
pub struct Given(Option<Box<(Py<PyAny>, Py<PyAny>)>>);

/// The comparison by which a size is too large, which decides how a fraction of a byte counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Above the high mark: asyncio's transports over sockets.
    Above,
    /// Pause at the high mark already, like asyncio's TLS.
    At,
}

impl Marks {
    /// asyncio's default low mark for a high one.
    pub const fn below(high: usize) -> Self {
        Self {
            low: high / 4,
            high,
            given: Given(None),
        }
    }

    /// Marks of `high` and `low`, with asyncio's defaults and errors.
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
            given: Given(
                (!is_size(&low) || !is_size(&high))
                    .then(|| Box::new((low.unbind(), high.unbind()))),
            ),
        })
    }

    /// `(low, high)` for Python.
    pub fn to_python<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        self.given.to_python(py, self.low, self.high)
    }

    /// Marks to be kept as objects, if the sizes are not kept elsewhere.
    pub fn into_given(self, py: Python<'_>) -> PyResult<Given> {
        let (low, high) = self.to_python(py)?;
        Ok(Given(Some(Box::new((low.unbind(), high.unbind())))))
    }
}

impl Given {
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

    /// `(low, high)` for Python: the given objects, or the sizes.
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

/// Converts a number that is not negative to whole bytes, at most the largest size.
fn whole(number: &Bound<'_, PyAny>, round: fn(f64) -> f64) -> PyResult<usize> {
    if let Ok(size) = number.extract::<usize>() {
        return Ok(size);
    }
    if number.is_instance_of::<PyInt>() {
        return Ok(usize::MAX);
    }
    Ok(round(number.extract::<f64>()?) as usize)
}
