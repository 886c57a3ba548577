//! Memory of Rust that C code of the interpreter reads or fills during one call, through an object with the buffer
//! protocol.
//!
//! Not here: buffers that outlive a call (`bytes_like_objects`), and `bytes` under construction (`fresh_bytes`).

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::capi::py_buffer::BufferView;

/// An object with the buffer protocol over memory of Rust, for the length of one call.
///
/// **Invariant.** The loan counts the views of its memory. If there is no view when the call ends, the loan exports
/// no view from then on. If there is a view, the lender's `keep` is called, and the memory is never freed. CPython's
/// own object for plain memory (`PyMemoryView_FromMemory`) cannot distinguish these cases, because a `memoryview` of
/// it is not counted.
///
/// The garbage collector does not track a loan, but it tracks the tuple in which a C function may get its arguments.
/// Code that runs during the call (a debug callback of OpenSSL, another thread) can find the loan in that tuple and
/// keep a view of it.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub(super) struct Loan {
    data: AtomicPtr<u8>,
    len: usize,
    writable: bool,
    /// The number of views that exist, or [`ENDED`].
    views: AtomicUsize,
}

impl Loan {
    /// Calls `call` with an object whose buffer is the `len` bytes from `data` on. If a view of it exists after the
    /// call, calls `keep`.
    ///
    /// # Safety
    ///
    /// The memory is valid until this returns, for writing too if `writable`, and no other code writes it. If `keep`
    /// was called and has returned, the memory is valid for ever.
    pub(super) unsafe fn lend<R>(
        py: Python<'_>,
        data: *mut u8,
        len: usize,
        writable: bool,
        keep: impl FnOnce(),
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> PyResult<R> {
        let loan = Self {
            data: AtomicPtr::new(data),
            len,
            writable,
            views: AtomicUsize::new(0),
        };
        let loan = EndsLoan {
            loan: Bound::new(py, loan)?,
            keep: Some(keep),
        };
        call(loan.loan.as_any())
    }

    /// Ends the loan and returns true, unless views of the memory exist. After the end no view can be made.
    fn end(&self) -> bool {
        self.views
            .compare_exchange(0, ENDED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// Ends the loan when it is dropped, so that the loan also ends if the call panics.
struct EndsLoan<'py, F: FnOnce()> {
    loan: Bound<'py, Loan>,
    /// Keeps the memory alive for ever. Called if some Python code has kept a view of the memory.
    keep: Option<F>,
}

impl<F: FnOnce()> Drop for EndsLoan<'_, F> {
    fn drop(&mut self) {
        if !self.loan.get().end()
            && let Some(keep) = self.keep.take()
        {
            log::warn!(
                "a buffer lent for one call is still in use after the call, so its memory is never freed"
            );
            keep();
        }
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
                PyBufferError::new_err("this memory was lent for one call, which has ended")
            })?;
        // SAFETY: the interpreter passes a structure to fill; the memory is valid while a view is counted
        // (`Loan::lend`); on failure the call sets an exception and counts as no view.
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

/// Calls `call` with a read-only object whose buffer is `data`. For C functions that get this object as their only
/// argument and release its buffer: without an argument tuple no other code can find the object. If a view remains
/// nevertheless, the process is aborted, because the borrowed memory cannot be kept.
pub fn lend<R>(
    py: Python<'_>,
    data: &[u8],
    call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
) -> PyResult<R> {
    let start = data.as_ptr().cast_mut();
    // SAFETY: `data` is borrowed for this call, nothing is written through the pointer, and `keep` does not
    // return.
    unsafe { Loan::lend(py, start, data.len(), false, || std::process::abort(), call) }
}

/// A writable, contiguous Python buffer of any item format, held open while parts of it are lent to C code. If some
/// code has kept a view of a part, the buffer is never released.
pub struct Target<'py> {
    view: ManuallyDrop<BufferView<'py>>,
    is_kept: Cell<bool>,
}

impl<'py> Target<'py> {
    pub fn get(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match BufferView::get(object, ffi::PyBUF_WRITABLE) {
            Ok(view) => Ok(Self {
                view: ManuallyDrop::new(view),
                is_kept: Cell::new(false),
            }),
            Err(error) if error.is_instance_of::<PyBufferError>(object.py()) => Err(
                PyTypeError::new_err("get_buffer() must return a writable, contiguous buffer"),
            ),
            Err(error) => Err(error),
        }
    }

    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// The address of the byte after the first `from` bytes. Valid while this object lives.
    pub fn start(&self, from: usize) -> *mut u8 {
        assert!(from <= self.len(), "outside of the buffer");
        // SAFETY: the check keeps `from` within the buffer.
        unsafe { self.view.data().add(from) }
    }

    /// Lends the memory behind the first `from` bytes to `call`, which fills it.
    pub fn fill<R>(
        &self,
        py: Python<'_>,
        from: usize,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> PyResult<R> {
        assert!(from < self.len(), "no space in the buffer");
        let keep = || self.is_kept.set(true);
        // SAFETY: the view is held (`self`, for ever after `keep`), writable and contiguous, and `from` is within it.
        // If other code writes a buffer that was given to us to fill, that is a race of the program, as with a
        // `recv_into` of CPython's.
        unsafe {
            let start = self.view.data().add(from);
            Loan::lend(py, start, self.len() - from, true, keep, call)
        }
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // SAFETY: the view is dropped nowhere else, and it is not used after the drop of this object.
            unsafe { ManuallyDrop::drop(&mut self.view) };
        }
    }
}

/// The value of `views` that marks a loan as ended.
const ENDED: usize = usize::MAX;
