//! [`PageCacheReads`]: reads of bytes that are in the page cache, in one system call that never blocks.
//!
//! A coroutine that makes only such reads would never suspend. So [`PageCacheReads`] limits the time for which it may
//! run; after that it must suspend once, to let other coroutines run.
//!
//! All other reads go to the ring. They fill the `bytes` object that the caller gets; the operation's slot owns the
//! object until the completion. Above 256 KiB the ring copies in a kernel thread, because it would copy a cached read
//! inside the loop's `enter`.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_engine::Engine;
use uringcore_io::{Errno, read_now};

use crate::capi::exception_conversion;
use crate::capi::fresh_bytes::FreshBytes;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;

/// Reads from the page cache for the files of one loop.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct PageCacheReads {
    /// The loop, if it is one of this package. The number of its loop iterations shows whether other coroutines have
    /// run.
    owner: GilCell<Option<Py<LoopCore>>>,
    slice: GilCell<TimeSlice>,
}

/// The time slice of the running coroutine: the loop's iteration in which it began, and the time.
struct TimeSlice {
    iteration: u64,
    began: Instant,
}

#[pymethods]
impl PageCacheReads {
    #[new]
    #[pyo3(signature = (owner = None))]
    fn new(owner: Option<Py<LoopCore>>) -> Self {
        Self {
            owner: GilCell::new(owner),
            slice: GilCell::new(TimeSlice {
                iteration: 0,
                began: Instant::now(),
            }),
        }
    }

    /// Reads up to ``size`` bytes at ``offset``, or at the file's position if ``offset`` is negative.
    ///
    /// Returns ``bytes``, which are empty at the end of the file; ``None`` if the bytes are not in the page cache;
    /// ``False`` if this kind of file does not support such reads; ``True`` if nothing was tried, because other
    /// coroutines have to run first.
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
        let mut bytes = FreshBytes::with_capacity(py, size)?;
        let offset = u64::try_from(offset).ok();
        // SAFETY: the kernel has written the number of bytes that the call returns, from the beginning on.
        let result = unsafe {
            bytes.write(|memory| match size <= WITH_LOCK_MAX {
                true => read_now(fd, memory, offset),
                false => py.detach(|| read_now(fd, memory, offset)),
            })
        };
        match result {
            Ok(()) => Ok(bytes.finish(py)?.into_any()),
            Err(Errno(libc::EAGAIN)) => Ok(py.None().into_bound(py)),
            Err(Errno(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                Ok(PyBool::new(py, false).to_owned().into_any())
            }
            Err(errno) => Err(exception_conversion::os_error(errno)),
        }
    }

    /// True if the running coroutine has used up its time slice, so that others must run.
    fn is_due(&self, py: Python<'_>) -> bool {
        self.is_over(py)
    }

    /// Begins a new time slice, after other coroutines have run.
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

impl PageCacheReads {
    fn is_over(&self, py: Python<'_>) -> bool {
        let iteration = self.owner.with(py, |owner| {
            let owner = owner.as_ref()?.get();
            owner
                .engine
                .with(py, |engine| engine.as_deref().map(Engine::iterations))
        });
        let now = Instant::now();
        self.slice.with(py, |slice| match iteration {
            Some(iteration) if iteration != slice.iteration => {
                *slice = TimeSlice {
                    iteration,
                    began: now,
                };
                false
            }
            _ => now.saturating_duration_since(slice.began) >= SLICE,
        })
    }
}

/// The largest read in bytes that keeps the interpreter lock. Its copy takes less than a hundredth of the
/// interpreter's switch interval.
const WITH_LOCK_MAX: usize = 64 * 1024;
/// The longest time for which a coroutine reads without suspending.
const SLICE: Duration = Duration::from_micros(500);
