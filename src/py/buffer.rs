//! Python buffers held as `Bytes`. No other file keeps a pointer into a Python object.

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

/// A `bytes` object that lives as long as the kernel or a queue needs its contents.
struct HeldBytes {
    data: *const u8,
    len: usize,
    _owner: Py<PyBytes>,
}

// SAFETY: a `bytes` object is immutable and its storage never moves, so reading it needs no lock; the
// reference keeps it alive, and dropping a `Py` without the lock is deferred by PyO3.
unsafe impl Send for HeldBytes {}
// SAFETY: as above: only shared reads of immutable memory.
unsafe impl Sync for HeldBytes {}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `data` and `len` were taken from `_owner`, which is alive and immutable.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// A `bytes` object as `Bytes`: copied while small, referenced above that.
pub fn hold_bytes(bytes: &Bound<'_, PyBytes>) -> Bytes {
    let slice = bytes.as_bytes();
    if slice.len() < HOLD_FROM_BYTES {
        return Bytes::copy_from_slice(slice);
    }
    Bytes::from_owner(HeldBytes {
        data: slice.as_ptr(),
        len: slice.len(),
        _owner: bytes.clone().unbind(),
    })
}

/// Any bytes-like object as `Bytes`. A mutable one is copied: it may change before it is sent.
pub fn bytes_like(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(hold_bytes(bytes));
    }
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        let view = PyBuffer::<u8>::get(data);
        return match view {
            Ok(view) => Ok(Bytes::from(view.to_vec(data.py())?)),
            // A memoryview of another item format: asyncio sends its bytes all the same.
            Err(_) => Ok(hold_bytes(data.call_method0("tobytes")?.cast::<PyBytes>()?)),
        };
    }
    Err(PyTypeError::new_err(format!(
        "data argument must be a bytes-like object, not {}",
        data.get_type().name()?.repr()?
    )))
}

/// Copies as much of `data` as fits into a writable Python buffer. Returns the count.
pub fn copy_into(target: &Bound<'_, PyAny>, data: &[u8]) -> PyResult<usize> {
    let view = PyBuffer::<u8>::get(target)?;
    if view.readonly() || !view.is_c_contiguous() {
        return Err(PyTypeError::new_err(
            "get_buffer() must return a writable, contiguous buffer",
        ));
    }
    let count = view.len_bytes().min(data.len());
    // SAFETY: the view is held, writable and contiguous, and `count` is within its length; the
    // interpreter lock is held, so no Python code touches it meanwhile; `data` is Rust memory, which
    // the Python buffer cannot overlap.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), view.buf_ptr().cast::<u8>(), count) };
    Ok(count)
}

/// Below this a copy is cheaper than keeping the object alive through two reference counts.
const HOLD_FROM_BYTES: usize = 4096;
