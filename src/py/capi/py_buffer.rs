//! [`BufferView`]: a Python buffer, held open while Rust reads or fills it. `bytes_like_objects` explains the ownership of its
//! memory.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A contiguous view of a Python buffer of any item format, as bytes. PyO3's `PyBuffer` accepts only one item format.
pub struct BufferView<'py>(ffi::Py_buffer, Python<'py>);

impl<'py> BufferView<'py> {
    pub fn get(object: &Bound<'py, PyAny>, flags: std::ffi::c_int) -> PyResult<Self> {
        let mut view = Self(ffi::Py_buffer::new(), object.py());
        // SAFETY: this thread is attached (`object` is bound) and the structure is ours. The exporter keeps
        // no pointer to it (`memoryview` and friends hold what they need in `internal` or by reference).
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut view.0, flags) } != 0 {
            // On failure the exporter has set `obj` to NULL, so the release below does nothing.
            return Err(PyErr::fetch(object.py()));
        }
        Ok(view)
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or(0)
    }

    /// Copies the current contents.
    ///
    /// # Errors
    ///
    /// `MemoryError`: a sparse mapping may show more bytes than the machine has memory.
    pub fn copy(&self) -> PyResult<Vec<u8>> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(self.len())
            .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        // SAFETY: the view is held and contiguous, and `copy` has room for its length, which is then filled.
        unsafe {
            std::ptr::copy_nonoverlapping(self.data(), copy.as_mut_ptr(), self.len());
            copy.set_len(self.len());
        }
        Ok(copy)
    }

    /// The start of the memory. Never null, so that an empty slice can be made from it.
    pub fn data(&self) -> *mut u8 {
        let data = self.0.buf.cast::<u8>();
        if data.is_null() {
            std::ptr::NonNull::dangling().as_ptr()
        } else {
            data
        }
    }
}

impl Drop for BufferView<'_> {
    fn drop(&mut self) {
        let _attached: Python<'_> = self.1;
        // SAFETY: this thread is attached (`_attached`), and the view was filled by `PyObject_GetBuffer`,
        // which leaves `obj` NULL when it fails.
        unsafe { ffi::PyBuffer_Release(&raw mut self.0) };
    }
}
