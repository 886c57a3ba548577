//! Content of a request that has arrived before the application calls `receive()`.
//!
//! In most cases the application takes it before more arrives. So content that arrives at once is copied once, into
//! the object that the application gets. Nothing here keeps the memory of received packets.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::capi::bytes_like_objects::bytes_of;

#[derive(Default)]
pub(super) enum Body {
    #[default]
    Empty,
    /// Content that has arrived at once, and its number of bytes.
    Whole(Py<PyBytes>, usize),
    Joined(Vec<u8>),
}

impl Body {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Whole(_, len) => *len,
            Self::Joined(bytes) => bytes.len(),
        }
    }

    /// The memory in bytes that the content occupies, including spare capacity.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Joined(bytes) => bytes.capacity(),
            Self::Empty | Self::Whole(..) => self.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds content that has arrived in `pieces`.
    pub(super) fn push(&mut self, py: Python<'_>, pieces: &[Bytes]) -> PyResult<()> {
        let count = pieces.iter().map(Bytes::len).sum();
        if count == 0 {
            return Ok(());
        }
        let mut joined = match std::mem::take(self) {
            Self::Empty => {
                let bytes = bytes_of(py, pieces.iter(), count)?;
                *self = Self::Whole(bytes.unbind(), count);
                return Ok(());
            }
            Self::Whole(bytes, _) => bytes.as_bytes(py).to_vec(),
            Self::Joined(bytes) => bytes,
        };
        joined.reserve(count);
        pieces
            .iter()
            .for_each(|piece| joined.extend_from_slice(piece));
        *self = Self::Joined(joined);
        Ok(())
    }

    pub(super) fn into_bytes(self, py: Python<'_>) -> Py<PyBytes> {
        match self {
            Self::Empty => PyBytes::new(py, b"").unbind(),
            Self::Whole(bytes, _) => bytes,
            Self::Joined(bytes) => PyBytes::new(py, &bytes).unbind(),
        }
    }
}
