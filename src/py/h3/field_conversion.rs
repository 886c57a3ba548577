//! Converts field lines between `uringcore_h3` and Python's lists of `(bytes, bytes)`.
//!
//! Most messages have the same few field lines. So their tuples are kept and shared, which is possible because tuples
//! and bytes are immutable. Lines whose name marks a secret value, and long lines, are always made anew.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple};
use uringcore_h3::Field;

use crate::capi::gil_cell::GilCell;

/// Converts field lines to a list of tuples.
pub fn to_list<'py>(py: Python<'py>, fields: &[Field]) -> PyResult<Bound<'py, PyList>> {
    let lines = fields
        .iter()
        .map(|(name, value)| line(py, name, value))
        .collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, lines)
}

/// Field lines that a Python program has passed. The `bytes` objects of names and values are kept alive while Rust
/// reads them.
pub struct FieldLines<'py>(Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>);

impl<'py> FieldLines<'py> {
    /// Reads any iterable of pairs of `bytes`.
    pub fn extract(headers: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mut lines = Vec::new();
        if let Ok(list) = headers.cast::<PyList>() {
            // The size is read from the list itself. The `__len__` of a subclass is not called.
            lines.reserve(list.len());
            for item in list {
                lines.push(pair(&item)?);
            }
        } else {
            for item in headers.try_iter()? {
                lines.push(pair(&item?)?);
            }
        }
        Ok(Self(lines))
    }

    pub fn as_slices(&self) -> Vec<(&[u8], &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .collect()
    }
}

fn pair<'py>(item: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (name, value) = if let Ok(tuple) = item.cast::<PyTuple>() {
        tuple.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()
    } else {
        // Some frameworks pass lists of two items instead of tuples.
        item.extract::<[Bound<'py, PyAny>; 2]>()
            .map(|[name, value]| (name, value))
    }
    .map_err(|_| PyTypeError::new_err("headers must be pairs of (name, value)"))?;
    Ok((as_bytes(name, "name")?, as_bytes(value, "value")?))
}

fn as_bytes<'py>(item: Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyBytes>> {
    item.cast_into::<PyBytes>().or_else(|error| {
        let class = error.into_inner().get_type();
        let message = format!(
            "headers: a field's {what} must be bytes, not {}",
            class.name()?
        );
        Err(PyTypeError::new_err(message))
    })
}

fn line<'py>(py: Python<'py>, name: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    if name.len() + value.len() > SHARED_SIZE_MAX || is_secret(name) {
        return make(py, name, value);
    }
    let slot = hash(name, value) % SHARED_LINES;
    let shared = shared(py);
    // The closure only compares and counts, because no Python code may run while the cell is borrowed.
    let known = shared.with(py, |lines| {
        let line = lines[slot].as_ref()?;
        is_line(line.bind(py), name, value).then(|| line.clone_ref(py))
    });
    if let Some(known) = known {
        return Ok(known.into_bound(py));
    }
    let line = make(py, name, value)?;
    let displaced = shared.with(py, |lines| lines[slot].replace(line.clone().unbind()));
    drop(displaced);
    Ok(line)
}

fn make<'py>(py: Python<'py>, name: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [PyBytes::new(py, name), PyBytes::new(py, value)])
}

fn is_line(line: &Bound<'_, PyTuple>, name: &[u8], value: &[u8]) -> bool {
    let same = |index, expected: &[u8]| {
        line.get_borrowed_item(index).is_ok_and(|item| {
            item.cast::<PyBytes>()
                .is_ok_and(|bytes| bytes.as_bytes() == expected)
        })
    };
    same(1, value) && same(0, name)
}

/// True for a field with a secret value, which must not be cached beyond its message.
fn is_secret(name: &[u8]) -> bool {
    matches!(
        name,
        b"authorization" | b"proxy-authorization" | b"cookie" | b"set-cookie"
    )
}

fn hash(name: &[u8], value: &[u8]) -> usize {
    let mut hash = (name.len() * 31 + value.len()) as u64;
    for part in [name, value] {
        let mut chunks = part.chunks_exact(8);
        for chunk in &mut chunks {
            let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
            hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        for &byte in chunks.remainder() {
            hash = (hash.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    (hash >> 40) as usize
}

type SharedLines = GilCell<Vec<Option<Py<PyTuple>>>>;

fn shared(py: Python<'_>) -> &'static SharedLines {
    static SHARED: PyOnceLock<SharedLines> = PyOnceLock::new();
    SHARED.get_or_init(py, || {
        GilCell::new((0..SHARED_LINES).map(|_| None).collect())
    })
}

/// The number of cached field lines. The hash of a line selects the only slot in which it can be.
const SHARED_LINES: usize = 1024;
/// The largest sum of name and value, in bytes, of a field line that is cached.
const SHARED_SIZE_MAX: usize = 128;
