//! Memory that C code of the interpreter reads or fills for the length of one call.
//!
//! Not here: buffers that outlive a call (`buffer`).

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_io::net;

use crate::buffer::View;

/// Memory of ours with the buffer protocol, which it has for the length of one call.
///
/// **Invariant.** Nobody has a view of the memory after [`Loan::end`]: it counts the views, gives out
/// no more of them, and ends the process if one is left. CPython's own view of plain memory
/// (`PyMemoryView_FromMemory`) cannot promise that: a `memoryview` of that view leaves no trace in it.
/// Nor does the collector know of a loan, so that code which runs during the call (a callback of
/// OpenSSL, another thread) does not find it there.
#[pyclass(frozen, module = "uringcore._uringcore")]
struct Loan {
    data: AtomicPtr<u8>,
    len: usize,
    writable: bool,
    /// How many views there are, or [`ENDED`].
    views: AtomicUsize,
}

impl Loan {
    /// Shows `len` bytes from `data` on to `call`, as an object with the buffer protocol.
    ///
    /// # Safety
    ///
    /// The memory is valid until this returns, for writing too if `writable`, and nobody else writes it.
    unsafe fn lend<R>(
        py: Python<'_>,
        data: *mut u8,
        len: usize,
        writable: bool,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> PyResult<R> {
        let loan = Self {
            data: AtomicPtr::new(data),
            len,
            writable,
            views: AtomicUsize::new(0),
        };
        let loan = EndsLoan(Bound::new(py, loan)?);
        call(loan.0.as_any())
    }

    fn end(&self) {
        let ended = self
            .views
            .compare_exchange(0, ENDED, Ordering::SeqCst, Ordering::SeqCst);
        if ended.is_err() {
            // Going on would leave a pointer to freed memory in Python's hands.
            log::error!("a buffer that was lent for one call is still in use");
            std::process::abort();
        }
    }
}

/// Ends the loan also where `call` panics.
struct EndsLoan<'py>(Bound<'py, Loan>);

impl Drop for EndsLoan<'_> {
    fn drop(&mut self) {
        self.0.get().end();
    }
}

#[pymethods]
impl Loan {
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        this.views
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |views| {
                (views != ENDED).then(|| views + 1)
            })
            .map_err(|_| {
                PyBufferError::new_err("this memory was lent for one call, which is over")
            })?;
        // SAFETY: the interpreter gives a structure to fill; the memory is valid while the view is
        // counted (`lend`), and on failure the call sets an exception and counts as no view.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                this.data.load(Ordering::Relaxed).cast(),
                this.len.cast_signed(),
                c_int::from(!this.writable),
                flags,
            )
        };
        if status != 0 {
            this.views.fetch_sub(1, Ordering::SeqCst);
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.views.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Shows `data` to `call` as a read-only object with the buffer protocol. Whoever keeps a view of it
/// ends the process: it is for C functions, which let go of their arguments' buffers.
pub fn lend<R>(
    py: Python<'_>,
    data: &[u8],
    call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
) -> PyResult<R> {
    // SAFETY: `data` is borrowed for this call, and nothing is written through the pointer.
    unsafe { Loan::lend(py, data.as_ptr().cast_mut(), data.len(), false, call) }
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
        // SAFETY: the check above keeps the copy within the object, which nobody else has seen, so its
        // storage may still be written and `data` belongs to another one.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.free(), data.len()) };
        self.filled += data.len();
    }

    /// Receives from a socket into the free space, without waiting.
    pub fn receive(&mut self, fd: RawFd) -> io::Result<()> {
        let (start, space) = (self.free(), self.space());
        // SAFETY: `free` is the beginning of so many bytes that are ours to write.
        let memory =
            unsafe { std::slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), space) };
        self.filled += net::recv(fd, memory)?;
        Ok(())
    }

    /// Lets `call` fill the free space, lent as [`lend`] does; it returns how much it wrote, or None for
    /// nothing.
    ///
    /// # Safety
    ///
    /// As much as `call` says has been written, from the beginning of the space on.
    pub unsafe fn fill(
        &mut self,
        py: Python<'_>,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Option<usize>>,
    ) -> PyResult<Option<usize>> {
        // SAFETY: the space is part of an object that is alive (`self`) and that nobody else has seen.
        let written = unsafe { Loan::lend(py, self.free(), self.space(), true, call) }?;
        if let Some(count) = written {
            assert!(
                count <= self.space(),
                "more bytes written than there was space for"
            );
            self.filled += count;
        }
        Ok(written)
    }

    /// Where the free space begins.
    fn free(&self) -> *mut u8 {
        // SAFETY: a live `bytes` object of `capacity` bytes, of which `filled` are no more.
        unsafe {
            ffi::PyBytes_AsString(self.bytes.as_ptr())
                .add(self.filled)
                .cast()
        }
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

    /// Lets `call` fill what comes after the first `from` bytes, lent as [`lend`] does.
    pub fn fill<R>(
        &self,
        py: Python<'_>,
        from: usize,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> PyResult<R> {
        assert!(from < self.len(), "no space in the buffer");
        // SAFETY: the view is held (`self`), writable and contiguous, and `from` is within it. That others
        // may write what they gave us to fill is their own race, as with a `recv_into` of CPython's.
        unsafe {
            let start = self.0.data().add(from);
            Loan::lend(py, start, self.len() - from, true, call)
        }
    }
}

/// No count of views: the loan is over.
const ENDED: usize = usize::MAX;

unsafe extern "C" {
    // In every CPython's documented C API; PyO3 keeps its declaration to itself.
    fn _PyBytes_Resize(bytes: *mut *mut ffi::PyObject, size: ffi::Py_ssize_t) -> c_int;
}
