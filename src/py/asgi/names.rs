//! Field lines that come again and again, as the Python objects that they were before.
//!
//! A client sends the same names with every request, and most of the values. Not here: what is secret.

use std::hash::Hasher;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use rustc_hash::FxHasher;

/// A line that was asked for lately. A place holds one line; another with the same place takes it.
pub struct Lines {
    places: Box<[Option<Line>]>,
}

struct Line {
    name: Py<PyBytes>,
    value: Py<PyBytes>,
    pair: Py<PyTuple>,
}

impl Lines {
    pub fn new() -> Self {
        Self {
            places: std::iter::repeat_with(|| None).take(PLACES).collect(),
        }
    }

    /// The pair `(name, value)`.
    pub fn pair<'py>(
        &mut self,
        py: Python<'py>,
        name: &[u8],
        value: &[u8],
    ) -> PyResult<Bound<'py, PyTuple>> {
        if value.len() > VALUE_MAX || name.len() > VALUE_MAX || is_secret(name) {
            return PyTuple::new(py, [PyBytes::new(py, name), PyBytes::new(py, value)]);
        }
        let place = &mut self.places[place_of(name, value)];
        if let Some(line) = place
            && line.name.as_bytes(py) == name
            && line.value.as_bytes(py) == value
        {
            return Ok(line.pair.bind(py).clone());
        }
        let name = match place.take() {
            Some(old) if old.name.as_bytes(py) == name => old.name.into_bound(py),
            _ => PyBytes::new(py, name),
        };
        let value = PyBytes::new(py, value);
        let pair = PyTuple::new(py, [&name, &value])?;
        *place = Some(Line {
            name: name.unbind(),
            value: value.unbind(),
            pair: pair.clone().unbind(),
        });
        Ok(pair)
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
/// Above that a line is not kept: with the names and the objects around them the table takes 128 KiB at most.
const VALUE_MAX: usize = 160;
