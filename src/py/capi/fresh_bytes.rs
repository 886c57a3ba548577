//! [`FreshBytes`]: a `bytes` object that is filled after it is made, before any other code sees it. Not here: access
//! of the interpreter's C code to its memory (`buffer_exporter`).

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_io::net;

use crate::capi::buffer_exporter::Loan;

/// A `bytes` object under construction. Its size is only known at the end, when it is cut to the filled bytes.
pub struct FreshBytes {
    /// The `bytes` object, to which no other code has a reference.
    bytes: Py<PyBytes>,
    capacity: usize,
    filled: usize,
}

impl FreshBytes {
    pub fn with_capacity(py: Python<'_>, capacity: usize) -> PyResult<Self> {
        let size = ffi::Py_ssize_t::try_from(capacity)?;
        // SAFETY: without a source the contents are undefined. `filled` counts the bytes that were written, and
        // `finish` cuts the rest off before any code can read it.
        let bytes = unsafe {
            let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
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

    pub fn filled(&self) -> &[u8] {
        // SAFETY: `filled` bytes were written, and no other code has seen the object.
        unsafe { std::slice::from_raw_parts(self.free().sub(self.filled), self.filled) }
    }

    /// Appends `data`. Panics if there is no space for it.
    pub fn append(&mut self, data: &[u8]) {
        assert!(data.len() <= self.space(), "no space for the bytes");
        // SAFETY: the check above keeps the copy within the object. No other code has seen the object, so its storage
        // may still be written. `data` is other memory.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.free(), data.len()) };
        self.filled += data.len();
    }

    /// Receives from a socket into the free space, without waiting.
    pub fn receive(&mut self, fd: RawFd) -> io::Result<()> {
        // SAFETY: recv returns the number of bytes that the kernel has written, from the beginning of the space on.
        unsafe { self.write(|memory| net::recv(fd, memory)) }
    }

    /// Passes the free space to `work`, which writes to the beginning of it and returns the number of written bytes.
    ///
    /// # Safety
    ///
    /// `work` has written as many bytes as it returns, from the beginning of the space on.
    pub unsafe fn write<E>(
        &mut self,
        work: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let (start, space) = (self.free(), self.space());
        // SAFETY: `free` points to `space` bytes, to which only this object writes.
        let memory =
            unsafe { std::slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), space) };
        let count = work(memory)?;
        // SAFETY: the caller guarantees that `count` bytes were written.
        unsafe { self.advance(count) };
        Ok(())
    }

    /// Counts bytes that other code has written to the free space.
    ///
    /// # Safety
    ///
    /// `count` bytes were written, from the beginning of the space on.
    pub unsafe fn advance(&mut self, count: usize) {
        assert!(
            count <= self.space(),
            "more bytes written than there was space for"
        );
        self.filled += count;
    }

    /// Passes the free space as a Python object with the buffer protocol to `call` (see
    /// [`lend`](super::buffer_exporter::lend)). `call` fills it from the beginning and returns the number of bytes, or
    /// None.
    ///
    /// # Safety
    ///
    /// `call` has written as many bytes as it returns, from the beginning of the space on.
    pub unsafe fn fill(
        &mut self,
        py: Python<'_>,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Option<usize>>,
    ) -> PyResult<Option<usize>> {
        let is_kept = Cell::new(false);
        let keep = || {
            std::mem::forget(self.bytes.clone_ref(py));
            is_kept.set(true);
        };
        // SAFETY: the space is part of an object that is alive (`self`) and that no other code has seen. The object
        // lives for ever once a reference to it is leaked.
        let written = unsafe { Loan::lend(py, self.free(), self.space(), true, keep, call) };
        if let Ok(Some(count)) = written {
            // SAFETY: the caller guarantees that `count` bytes were written.
            unsafe { self.advance(count) };
        }
        if is_kept.get() {
            self.move_away(py)?;
        }
        written
    }

    /// Copies the contents to a new object. This is necessary if some code has kept a view of the memory, because that
    /// code may write to the old object for as long as the object lives.
    fn move_away(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut other = Self::with_capacity(py, self.capacity)?;
        // SAFETY: `filled` bytes of this object are filled, and the other object has space for them. Code that has kept
        // a view of this object may write to it meanwhile. In a free-threaded build that is a race of the program (see
        // `bytes_like_objects`): the copy takes each byte as it finds it, and no Rust reference to the bytes is made.
        unsafe {
            let start = ffi::PyBytes_AsString(self.bytes.as_ptr()).cast::<u8>();
            std::ptr::copy_nonoverlapping(start, other.free(), self.filled);
            other.advance(self.filled);
        }
        *self = other;
        Ok(())
    }

    /// The start of the free space. The address is valid until the object is cut to its final size or dropped.
    pub fn free(&self) -> *mut u8 {
        // SAFETY: the object is a live `bytes` of `capacity` bytes, and `filled` is not larger.
        unsafe {
            ffi::PyBytes_AsString(self.bytes.as_ptr())
                .add(self.filled)
                .cast()
        }
    }

    pub fn finish(self, py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
        let mut object = self.bytes.into_ptr();
        // SAFETY: the function demands the only reference to a fresh bytes object, and this is it. The function
        // replaces the reference, or drops it, writes NULL and sets an exception.
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

unsafe extern "C" {
    // `_PyBytes_Resize` is part of the documented C API of every CPython. PyO3's declaration is private.
    fn _PyBytes_Resize(bytes: *mut *mut ffi::PyObject, size: ffi::Py_ssize_t) -> c_int;
}
