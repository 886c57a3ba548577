//! Arguments of any size (bytes, lists), read without trust in the length that the object claims; and time spans.
//!
//! PyO3's `Vec<T>` reserves `len(object)` items before it reads the first one, and its `Vec<u8>` reads any sequence
//! of numbers. An argument `range(1 << 40)`, or an object whose `__len__` returns `1 << 62`, would exhaust the memory
//! and end the process. So no function of this crate takes a `Vec` from Python: bytes are read through the buffer
//! protocol, all other sequences by iteration with an upper bound.

use std::borrow::Cow;
use std::ops::Deref;
use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::capi::py_buffer::BufferView;

/// A bytes-like argument. `bytes` are borrowed for the call; the contents of any other contiguous buffer are copied.
pub struct BytesLike<'a>(Cow<'a, [u8]>);

/// A bytes-like argument that outlives the call, or a bytes-like item of a [`List`]. Always a copy.
pub struct OwnedBytes(pub Vec<u8>);

/// The items of an iterable argument, at most `ITEMS_MAX`. A `str` is refused.
pub struct List<T>(pub Vec<T>);

/// Converts seconds to a `Duration`. Returns `None` for a negative number, NaN, and more than [`SPAN_MAX`].
///
/// Sums and multiples of longer times would leave the range of the clocks, where `Instant + Duration` panics.
pub fn span(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|span| *span <= SPAN_MAX)
}

/// Converts the seconds of the argument `name`, which must be above 0. Raises `ValueError` with this name.
pub fn positive_span(name: &str, seconds: f64) -> PyResult<Duration> {
    match span(seconds) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(PyValueError::new_err(format!(
            "{name}: must be a number of seconds above 0, and no more than a century, not {seconds}"
        ))),
    }
}

impl BytesLike<'_> {
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_owned()
    }
}

impl Deref for BytesLike<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for BytesLike<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.is_instance_of::<PyBytes>() {
            true => Ok(Self(Cow::Borrowed(object.extract::<&[u8]>()?))),
            false => copied(object).map(Cow::Owned).map(Self),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for OwnedBytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        copied(object).map(Self)
    }
}

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for List<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // A `str` is iterable, too: it yields its letters. A program that passes one name instead of a list of names
        // therefore gets a TypeError.
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(
                "an iterable of items is required, not 'str'",
            ));
        }
        let mut items = Vec::new();
        for item in object.try_iter()? {
            if items.len() == ITEMS_MAX {
                let message = format!("more than {ITEMS_MAX} items");
                return Err(PyValueError::new_err(message));
            }
            items.push(item?.extract::<T>().map_err(Into::into)?);
        }
        Ok(Self(items))
    }
}

impl List<OwnedBytes> {
    pub fn into_vecs(self) -> Vec<Vec<u8>> {
        self.0.into_iter().map(|item| item.0).collect()
    }
}

fn copied(object: Borrowed<'_, '_, PyAny>) -> PyResult<Vec<u8>> {
    BufferView::get(&object, ffi::PyBUF_SIMPLE)?.copy()
}

/// The largest number of items in one list. The longest legitimate list is the environment of a child process, which
/// the kernel limits to 2 MiB or less.
const ITEMS_MAX: usize = 1 << 20;
/// A century: the longest time that a program may pass.
pub const SPAN_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
