//! `Buffer`: a cursor over bytes with QUIC's integers (RFC 9000 section 16) and aioquic's API.
//!
//! Programs use it for their own framing on top of streams. Our own parsers are in the protocol crates and do not use
//! it.

use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};

use crate::capi::bounded_arguments::BytesLike;

create_exception!(
    uringcore.buffer,
    BufferReadError,
    PyValueError,
    "There are fewer bytes in the buffer than requested."
);
create_exception!(
    uringcore.buffer,
    BufferWriteError,
    PyValueError,
    "There is less space in the buffer than needed."
);

/// Bytes with a position, to read and write integers and byte strings.
///
/// ``Buffer(capacity=n)`` is empty and has space for ``n`` bytes. ``Buffer(data=b"...")`` is for reading.
#[pyclass(module = "uringcore.buffer", subclass)]
pub struct Buffer {
    bytes: Vec<u8>,
    position: usize,
}

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (capacity = 0, data = None))]
    fn new(capacity: Option<isize>, data: Option<BytesLike<'_>>) -> PyResult<Self> {
        let mut bytes = Vec::new();
        match data {
            Some(data) => bytes = data.into_vec(),
            None => {
                let capacity = usize::try_from(capacity.unwrap_or(0))
                    .map_err(|_| PyValueError::new_err("capacity cannot be negative"))?;
                // The capacity may come from a peer, so a failed allocation must not end the process.
                bytes
                    .try_reserve_exact(capacity)
                    .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
                bytes.resize(capacity, 0);
            }
        }
        Ok(Self { bytes, position: 0 })
    }

    /// The number of bytes for which there is space.
    #[getter]
    fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes before the position.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes[..self.position])
    }

    /// The bytes from ``start`` to ``end``, whatever the position is.
    fn data_slice<'py>(
        &self,
        py: Python<'py>,
        start: isize,
        end: isize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let range = usize::try_from(start).and_then(|start| Ok(start..usize::try_from(end)?));
        match range.ok().and_then(|range| self.bytes.get(range)) {
            Some(slice) => Ok(PyBytes::new(py, slice)),
            None => Err(BufferReadError::new_err("Read out of bounds")),
        }
    }

    /// True if all bytes were read.
    fn eof(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// Moves the position to ``pos``.
    fn seek(&mut self, pos: isize) -> PyResult<()> {
        match usize::try_from(pos) {
            Ok(pos) if pos <= self.bytes.len() => self.position = pos,
            _ => return Err(BufferReadError::new_err("Seek out of bounds")),
        }
        Ok(())
    }

    /// Returns the position.
    fn tell(&self) -> usize {
        self.position
    }

    /// Reads ``length`` bytes. Raises ``BufferReadError`` if there are fewer.
    fn pull_bytes<'py>(&mut self, py: Python<'py>, length: isize) -> PyResult<Bound<'py, PyBytes>> {
        // A negative length may result from arithmetic with the peer's data. It raises the error of a too large length.
        self.pull(usize::try_from(length).unwrap_or(usize::MAX))
            .map(|slice| PyBytes::new(py, slice))
    }

    /// Reads an unsigned integer of 8 bits.
    fn pull_uint8(&mut self) -> PyResult<u64> {
        self.pull_int(1)
    }

    /// Reads an unsigned integer of 16 bits in network byte order.
    fn pull_uint16(&mut self) -> PyResult<u64> {
        self.pull_int(2)
    }

    /// Reads an unsigned integer of 32 bits in network byte order.
    fn pull_uint32(&mut self) -> PyResult<u64> {
        self.pull_int(4)
    }

    /// Reads an unsigned integer of 64 bits in network byte order.
    fn pull_uint64(&mut self) -> PyResult<u64> {
        self.pull_int(8)
    }

    /// Reads a variable-length integer (RFC 9000 section 16).
    fn pull_uint_var(&mut self) -> PyResult<u64> {
        let Some(first) = self.bytes.get(self.position) else {
            return Err(BufferReadError::new_err("Read out of bounds"));
        };
        let size = 1 << (first >> 6);
        let value = self.pull_int(size)?;
        // The two high bits of the first byte are the size, so they are removed from the value.
        Ok(value & (u64::MAX >> (66 - 8 * size)))
    }

    /// Writes bytes. Raises ``BufferWriteError`` if they do not fit.
    #[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
    fn push_bytes(&mut self, value: BytesLike<'_>) -> PyResult<()> {
        self.push(&value)
    }

    /// Writes an unsigned integer of 8 bits.
    fn push_uint8(&mut self, value: u8) -> PyResult<()> {
        self.push(&value.to_be_bytes())
    }

    /// Writes an unsigned integer of 16 bits in network byte order.
    fn push_uint16(&mut self, value: u16) -> PyResult<()> {
        self.push(&value.to_be_bytes())
    }

    /// Writes an unsigned integer of 32 bits in network byte order.
    fn push_uint32(&mut self, v: u32) -> PyResult<()> {
        self.push(&v.to_be_bytes())
    }

    /// Writes an unsigned integer of 64 bits in network byte order.
    fn push_uint64(&mut self, v: u64) -> PyResult<()> {
        self.push(&v.to_be_bytes())
    }

    /// Writes a variable-length integer (RFC 9000 section 16) in its shortest form.
    fn push_uint_var(&mut self, value: &Bound<'_, PyInt>) -> PyResult<()> {
        // A value of more than 64 bits exceeds the 62 bits of a varint as well, so it raises the same error.
        match value.extract::<u64>().unwrap_or(u64::MAX) {
            value @ 0..=0x3f => self.push(&[value as u8]),
            value @ 0x40..=0x3fff => self.push(&(value as u16 | 0x4000).to_be_bytes()),
            value @ 0x4000..=0x3fff_ffff => self.push(&(value as u32 | 0x8000_0000).to_be_bytes()),
            value @ 0x4000_0000..=0x3fff_ffff_ffff_ffff => {
                self.push(&(value | 0xc000_0000_0000_0000).to_be_bytes())
            }
            _ => Err(PyValueError::new_err(
                "Integer is too big for a variable-length integer",
            )),
        }
    }
}

impl Buffer {
    fn pull(&mut self, length: usize) -> PyResult<&[u8]> {
        let end = self
            .position
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(BufferReadError::new_err("Read out of bounds"));
        };
        let slice = &self.bytes[self.position..end];
        self.position = end;
        Ok(slice)
    }

    fn pull_int(&mut self, size: usize) -> PyResult<u64> {
        Ok(self
            .pull(size)?
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn push(&mut self, value: &[u8]) -> PyResult<()> {
        let end = self.position + value.len();
        let Some(room) = self.bytes.get_mut(self.position..end) else {
            return Err(BufferWriteError::new_err("Write out of bounds"));
        };
        room.copy_from_slice(value);
        self.position = end;
        Ok(())
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Buffer>()?;
    m.add("BufferReadError", m.py().get_type::<BufferReadError>())?;
    m.add("BufferWriteError", m.py().get_type::<BufferWriteError>())
}
