//! A cache of field lines as Python objects. A client sends the same names, and in most cases the same values, with
//! every request. Secret values are not cached.

use std::hash::Hasher;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use rustc_hash::FxHasher;

use crate::capi::gil_cell::GilCell;

/// The recent lines. A line has only one slot, which its hash selects, and replaces the line in that slot.
pub struct HeaderCache {
    places: Box<[Option<Line>]>,
}

struct Line {
    name: Py<PyBytes>,
    value: Py<PyBytes>,
    pair: Py<PyTuple>,
}

impl HeaderCache {
    pub fn new() -> Self {
        Self {
            places: std::iter::repeat_with(|| None).take(PLACES).collect(),
        }
    }
}

/// Returns the pair `(name, value)` from the cache, or makes it.
///
/// The tuple is made outside of the cell, because an allocation may start a garbage collection, whose finalisers may
/// call this function again.
pub fn pair<'py>(
    py: Python<'py>,
    lines: &GilCell<HeaderCache>,
    name: &[u8],
    value: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    if value.len() > VALUE_MAX || name.len() > VALUE_MAX || is_secret(name) {
        return PyTuple::new(py, [PyBytes::new(py, name), PyBytes::new(py, value)]);
    }
    let place = place_of(name, value);
    let found = lines.with(py, |lines| {
        lines.places[place].as_ref()?.find(py, name, value)
    });
    let name = match found {
        Some(Found::Pair(pair)) => return Ok(pair.into_bound(py)),
        Some(Found::Name(name)) => name.into_bound(py),
        None => PyBytes::new(py, name),
    };
    let value = PyBytes::new(py, value);
    let pair = PyTuple::new(py, [&name, &value])?;
    let line = Line {
        name: name.unbind(),
        value: value.unbind(),
        pair: pair.clone().unbind(),
    };
    let displaced = lines.with(py, |lines| lines.places[place].replace(line));
    drop(displaced);
    Ok(pair)
}

/// The part of a line that the cache has: the pair, or only the name.
enum Found {
    Pair(Py<PyTuple>),
    Name(Py<PyBytes>),
}

impl Line {
    fn find(&self, py: Python<'_>, name: &[u8], value: &[u8]) -> Option<Found> {
        let is_name = self.name.as_bytes(py) == name;
        match is_name && self.value.as_bytes(py) == value {
            true => Some(Found::Pair(self.pair.clone_ref(py))),
            false => is_name.then(|| Found::Name(self.name.clone_ref(py))),
        }
    }
}

fn is_secret(name: &[u8]) -> bool {
    matches!(name, b"authorization" | b"cookie" | b"proxy-authorization")
}

fn place_of(name: &[u8], value: &[u8]) -> usize {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.write(value);
    (hasher.finish() >> 32) as usize % PLACES
}

const PLACES: usize = 256;
/// The longest value in bytes that is kept. The whole cache, with names and objects, then takes 128 KiB at most.
const VALUE_MAX: usize = 160;
