//! Memory that C code of the interpreter reads or fills for the length of one call.
//!
//! Not here: buffers that outlive a call (`buffer`).

use std::ffi::{c_char, c_int};
use std::io;
use std::mem::MaybeUninit;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{ffi, intern};

use crate::buffer::View;

/// Shows `data` to `call` as a read-only memoryview.
///
/// `call` may hand it only to C functions that let go of their arguments' buffers before they return.
pub fn lend<R>(
    py: Python<'_>,
    data: &[u8],
    call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
) -> PyResult<R> {
    // SAFETY: `data` outlives this function, and `take_back` makes sure that the view does not; a
    // read-only view writes nothing through the pointer.
    let view = unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyMemoryView_FromMemory(
                data.as_ptr().cast_mut().cast::<c_char>(),
                data.len().cast_signed(),
                ffi::PyBUF_READ,
            ),
        )?
    };
    let result = call(&view);
    take_back(&view)?;
    result
}

/// A `bytes` object that is being made, of a size that is known only at the end.
pub struct FreshBytes {
    /// The object, which nobody else has seen yet.
    bytes: Py<PyBytes>,
    capacity: usize,
    filled: usize,
}

impl FreshBytes {
    pub fn with_capacity(py: Python<'_>, capacity: usize) -> PyResult<Self> {
        // SAFETY: without a source the contents are undefined; `filled` says how much was written,
        // and `finish` cuts the rest off before anyone can read it.
        let bytes = unsafe {
            let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), capacity.cast_signed());
            Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked::<PyBytes>()
        };
        Ok(Self {
            bytes: bytes.unbind(),
            capacity,
            filled: 0,
        })
    }

    pub fn len(&self) -> usize {
        self.filled
    }

    pub fn space(&self) -> usize {
        self.capacity - self.filled
    }

    /// Copies `data` to the end; there has to be space for it.
    pub fn append(&mut self, data: &[u8]) {
        assert!(data.len() <= self.space(), "no space for the bytes");
        // SAFETY: as in `fill`; the check above keeps the copy within the object, and `data` belongs
        // to another one.
        unsafe {
            let start = ffi::PyBytes_AsString(self.bytes.as_ptr()).add(self.filled);
            std::ptr::copy_nonoverlapping(data.as_ptr(), start.cast::<u8>(), data.len());
        }
        self.filled += data.len();
    }

    /// Lets `work` write to the free space; it returns how much it wrote.
    pub fn write(
        &mut self,
        work: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        // SAFETY: nobody else has seen the object, so its storage is ours to write; `filled` is within
        // it.
        let memory = unsafe {
            let start = ffi::PyBytes_AsString(self.bytes.as_ptr()).add(self.filled);
            std::slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), self.space())
        };
        self.filled += work(memory)?.min(self.space());
        Ok(())
    }

    /// Lets `call` fill the free space, shown as a memoryview; it returns how much it wrote, or None
    /// for nothing. The rules are those of [`lend`].
    pub fn fill(
        &mut self,
        py: Python<'_>,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Option<usize>>,
    ) -> PyResult<Option<usize>> {
        // SAFETY: the object is alive and unshared, so its storage may still be written; `filled` is
        // within it; `take_back` makes sure that the view does not outlive this call.
        let view = unsafe {
            let start = ffi::PyBytes_AsString(self.bytes.as_ptr()).add(self.filled);
            let made =
                ffi::PyMemoryView_FromMemory(start, self.space().cast_signed(), ffi::PyBUF_WRITE);
            Bound::from_owned_ptr_or_err(py, made)?
        };
        let result = call(&view);
        take_back(&view)?;
        if let Ok(Some(count)) = result {
            assert!(
                count <= self.space(),
                "more bytes written than there was space for"
            );
            self.filled += count;
        }
        result
    }

    pub fn finish(self, py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
        let mut object = self.bytes.into_ptr();
        // SAFETY: the only reference to a fresh bytes object, as the function demands; it replaces the
        // reference, or drops it, writes NULL and sets an exception.
        unsafe {
            let status = if self.filled == self.capacity {
                0
            } else {
                _PyBytes_Resize(&raw mut object, self.filled.cast_signed())
            };
            if status != 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(Bound::from_owned_ptr(py, object).cast_into_unchecked::<PyBytes>())
        }
    }
}

/// A writable, contiguous Python buffer of any item format, held while parts of it are lent.
pub struct Target<'py>(View<'py>);

impl<'py> Target<'py> {
    pub fn get(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match View::get(object, ffi::PyBUF_WRITABLE) {
            Ok(view) => Ok(Self(view)),
            Err(error) if error.is_instance_of::<PyBufferError>(object.py()) => Err(
                PyTypeError::new_err("get_buffer() must return a writable, contiguous buffer"),
            ),
            Err(error) => Err(error),
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Lets `call` fill what comes after the first `from` bytes. The rules are those of [`lend`].
    pub fn fill<R>(
        &self,
        py: Python<'_>,
        from: usize,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> PyResult<R> {
        assert!(from < self.len(), "no space in the buffer");
        // SAFETY: the buffer is held, writable and contiguous, and `from` is within it; `take_back`
        // makes sure that the view does not outlive this call.
        let view = unsafe {
            let start = self.0.data().cast::<c_char>().add(from);
            let space = (self.len() - from).cast_signed();
            let made = ffi::PyMemoryView_FromMemory(start, space, ffi::PyBUF_WRITE);
            Bound::from_owned_ptr_or_err(py, made)?
        };
        let result = call(&view);
        take_back(&view)?;
        result
    }
}

/// Somebody kept the view: it must not lead to memory that is about to go.
fn take_back(view: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: a live object, and the lock is held (`view` is bound).
    let references = unsafe { ffi::Py_REFCNT(view.as_ptr()) };
    if references != 1 {
        let py = view.py();
        if let Err(error) = view.call_method0(intern!(py, "release")) {
            if error.is_instance_of::<PyBufferError>(py) {
                // Still exported: going on would leave a pointer to freed memory in Python's hands.
                abort("a buffer lent for one call was kept");
            }
            return Err(error);
        }
    }
    Ok(())
}

fn abort(message: &str) -> ! {
    log::error!("{message}");
    std::process::abort()
}

unsafe extern "C" {
    // In every CPython's documented C API; PyO3 keeps its declaration to itself.
    fn _PyBytes_Resize(bytes: *mut *mut ffi::PyObject, size: ffi::Py_ssize_t) -> c_int;
}
