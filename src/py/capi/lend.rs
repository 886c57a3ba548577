//! Memory that C code of the interpreter reads or fills for the length of one call.
//!
//! Not here: buffers that outlive a call (`buffer`).

use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_io::net;

use crate::capi::buffer::View;

/// Memory of ours with the buffer protocol, which it has for the length of one call.
///
/// **Invariant.** Where nobody has a view of the memory when the call is over, nobody gets one: the loan
/// counts its views, and gives out no more of them. Where somebody has, the lender is told, and the memory
/// stays for ever. CPython's own view of plain memory (`PyMemoryView_FromMemory`) cannot say which: a
/// `memoryview` of that view leaves no trace in it.
///
/// The collector does not know of a loan, but of the tuple in which a C function may get its arguments.
/// Code that runs during the call (a callback of OpenSSL that debugs, another thread) can find the loan there,
/// and keep a view of it.
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
    /// The memory is valid until this returns, for writing too if `writable`, and nobody else writes it. If
    /// `keep` was called and has returned, it is valid for ever.
    unsafe fn lend<R>(
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

    /// True: there are no views, and there will be none.
    fn end(&self) -> bool {
        self.views
            .compare_exchange(0, ENDED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// Ends the loan also where the call panics.
struct EndsLoan<'py, F: FnOnce()> {
    loan: Bound<'py, Loan>,
    /// Keeps the memory for those who have a view of it.
    keep: Option<F>,
}

impl<F: FnOnce()> Drop for EndsLoan<'_, F> {
    fn drop(&mut self) {
        if !self.loan.get().end()
            && let Some(keep) = self.keep.take()
        {
            log::warn!("a buffer that was lent for one call is still in use, and kept for ever");
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
                PyBufferError::new_err("this memory was lent for one call, which is over")
            })?;
        // SAFETY: the interpreter gives a structure to fill; the memory is valid while a view is
        // counted (`Loan::lend`), and on failure the call sets an exception and counts as no view.
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

/// Shows `data` to `call` as a read-only object with the buffer protocol, for C functions that take this
/// argument alone and let go of its buffer: they get it without a tuple, so nobody else finds it. A view
/// that is left all the same ends the process, for borrowed memory cannot be kept.
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
        let is_kept = Cell::new(false);
        let keep = || {
            std::mem::forget(self.bytes.clone_ref(py));
            is_kept.set(true);
        };
        // SAFETY: the space is part of an object that is alive (`self`) and that nobody else has seen; it
        // lives for ever once a reference to it is forgotten.
        let written = unsafe { Loan::lend(py, self.free(), self.space(), true, keep, call) };
        if let Ok(Some(count)) = written {
            assert!(
                count <= self.space(),
                "more bytes written than there was space for"
            );
            self.filled += count;
        }
        if is_kept.get() {
            self.move_away(py)?;
        }
        written
    }

    /// Somebody may write to this object for as long as it lives: what is in it goes on in another one.
    fn move_away(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut other = Self::with_capacity(py, self.capacity)?;
        // SAFETY: so much of the object is filled, and nobody writes there while this thread is attached.
        other.append(unsafe {
            std::slice::from_raw_parts(
                ffi::PyBytes_AsString(self.bytes.as_ptr()).cast(),
                self.filled,
            )
        });
        *self = other;
        Ok(())
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

/// A writable, contiguous Python buffer of any item format, held while parts of it are lent; for ever, if
/// somebody has kept a view of a part.
pub struct Target<'py> {
    view: ManuallyDrop<View<'py>>,
    is_kept: Cell<bool>,
}

impl<'py> Target<'py> {
    pub fn get(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match View::get(object, ffi::PyBUF_WRITABLE) {
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

    /// Lets `call` fill what comes after the first `from` bytes, lent as [`lend`] does.
    pub fn fill<R>(
        &self,
        py: Python<'_>,
        from: usize,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> PyResult<R> {
        assert!(from < self.len(), "no space in the buffer");
        let keep = || self.is_kept.set(true);
        // SAFETY: the view is held (`self`, for ever after `keep`), writable and contiguous, and `from` is
        // within it. That others may write what they gave us to fill is their own race, as with a
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
            // SAFETY: dropped here alone, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.view) };
        }
    }
}

/// No count of views: the loan is over.
const ENDED: usize = usize::MAX;

unsafe extern "C" {
    // In every CPython's documented C API; PyO3 keeps its declaration to itself.
    fn _PyBytes_Resize(bytes: *mut *mut ffi::PyObject, size: ffi::Py_ssize_t) -> c_int;
}
