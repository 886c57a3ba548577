//! Reads that need not wait: bytes of the page cache, taken without a turn of the loop.
//!
//! A coroutine that only makes such reads never suspends, so [`DirectReads`] tells it now and then to
//! let others run. Also here: `bytes` objects that are filled after they are made. Not here: anything that
//! may block.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use pyo3::{PyTraverseError, PyVisit, ffi};
use uringcore_engine::Engine;
use uringcore_io::{Errno, read_now};

use crate::capi::cell::GilCell;
use crate::capi::error;
use crate::event_loop::loop_core::LoopCore;

/// Direct reads of the files of one loop.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct DirectReads {
    /// The loop, if it is one of ours: its turns tell when others have run.
    owner: GilCell<Option<Py<LoopCore>>>,
    slice: GilCell<Slice>,
}

/// The time since others could last run.
struct Slice {
    turn: u64,
    began: Instant,
}

#[pymethods]
impl DirectReads {
    #[new]
    #[pyo3(signature = (owner = None))]
    fn new(owner: Option<Py<LoopCore>>) -> Self {
        Self {
            owner: GilCell::new(owner),
            slice: GilCell::new(Slice {
                turn: 0,
                began: Instant::now(),
            }),
        }
    }

    /// Reads up to ``size`` bytes at ``offset``, or at the file's position if that is negative.
    ///
    /// ``bytes``: what was there, empty at the end of the file. ``None``: it would have to wait.
    /// ``False``: this kind of file cannot tell. ``True``: nothing was tried, let others run first.
    fn read<'py>(
        &self,
        py: Python<'py>,
        fd: RawFd,
        size: usize,
        offset: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.is_over(py) {
            return Ok(PyBool::new(py, true).to_owned().into_any());
        }
        if size == 0 {
            return Ok(PyBytes::new(py, b"").into_any());
        }
        let bytes = uninitialised(py, size)?;
        // SAFETY: a `bytes` object of `size` bytes that nobody else has a reference to.
        let memory = unsafe {
            let start = ffi::PyBytes_AsString(bytes.as_ptr()).cast::<MaybeUninit<u8>>();
            std::slice::from_raw_parts_mut(start, size)
        };
        let offset = u64::try_from(offset).ok();
        let result = if size <= WITH_LOCK_MAX {
            read_now(fd, memory, offset)
        } else {
            py.detach(|| read_now(fd, memory, offset))
        };
        match result {
            Ok(count) => Ok(shrink(bytes, py, count)?.into_bound(py).into_any()),
            Err(Errno(libc::EAGAIN)) => Ok(py.None().into_bound(py)),
            Err(Errno(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                Ok(PyBool::new(py, false).to_owned().into_any())
            }
            Err(errno) => Err(error::os_error(errno)),
        }
    }

    /// Whether it is time to let others run.
    fn is_due(&self, py: Python<'_>) -> bool {
        self.is_over(py)
    }

    /// Others have run: a new slice of time begins.
    fn rested(&self, py: Python<'_>) {
        self.slice.with(py, |slice| slice.began = Instant::now());
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.owner
            .traverse(|owner| visit.call(owner))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.owner.take(py));
    }
}

impl DirectReads {
    fn is_over(&self, py: Python<'_>) -> bool {
        let turn = self.owner.with(py, |owner| {
            let owner = owner.as_ref()?.get();
            owner
                .engine
                .with(py, |engine| engine.as_deref().map(Engine::turns))
        });
        let now = Instant::now();
        self.slice.with(py, |slice| match turn {
            Some(turn) if turn != slice.turn => {
                *slice = Slice { turn, began: now };
                false
            }
            _ => now.saturating_duration_since(slice.began) >= SLICE,
        })
    }
}

/// A new `bytes` object whose contents nobody has written yet.
pub fn uninitialised(py: Python<'_>, size: usize) -> PyResult<Py<PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(size)?;
    // SAFETY: a null pointer asks for uninitialised contents; the result is a new reference or null
    // with MemoryError set.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        Ok(object.cast_into_unchecked::<PyBytes>().unbind())
    }
}

unsafe extern "C" {
    /// Documented C API of every version; PyO3 leaves it out.
    fn _PyBytes_Resize(bytes: *mut *mut ffi::PyObject, size: ffi::Py_ssize_t) -> std::ffi::c_int;
}

/// Cuts a `bytes` object of [`uninitialised`] that only its maker has seen.
pub fn shrink(bytes: Py<PyBytes>, py: Python<'_>, count: usize) -> PyResult<Py<PyBytes>> {
    if bytes.as_bytes(py).len() == count {
        return Ok(bytes);
    }
    let mut object = bytes.into_ptr();
    // SAFETY: the only reference, given up by `into_ptr` and taken back from where the call left it;
    // on failure the object is gone and the pointer null.
    unsafe {
        _PyBytes_Resize(&raw mut object, count as ffi::Py_ssize_t);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        Ok(object.cast_into_unchecked::<PyBytes>().unbind())
    }
}

/// Copying this much takes less than a hundredth of the interpreter's switch interval.
const WITH_LOCK_MAX: usize = 64 * 1024;
/// How long a coroutine may go on without suspending.
const SLICE: Duration = Duration::from_micros(500);
