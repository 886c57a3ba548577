//! File operations of the ring, with a Python future each.
//!
//! Each function starts one operation and returns its [`FileOperation`]. A caller that is cancelled calls `abandon`
//! with a callback, which gets the result: the operation may complete before its cancellation, and then a read has
//! moved the file's position, and an open has made a descriptor.
//!
//! | file | content |
//! | --- | --- |
//! | `page_cache_reads` | reads of bytes in the page cache, which do not wait |
//! | `file_status` | the result of `stat` as Python objects |
//!
//! Buffering, text, modes and names are in Python (`uringcore.aio`); the requests to the kernel are in
//! `uringcore_io::FileRequest`.

mod file_status;
mod page_cache_reads;

use std::ffi::CString;
use std::os::fd::{IntoRawFd, RawFd};
use std::ptr::NonNull;

use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_io::{
    At, Driver, Errno, FileOutcome, FileRequest, OpId, Outcome, ReadTarget, Token, net,
};

use crate::capi::exception_conversion;
use crate::capi::fresh_bytes::FreshBytes;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
use crate::ops::operation_futures::{self, Plan, Subject};

/// A file operation, in flight or ended.
#[pyclass(frozen, weakref, module = "uringcore._uringcore")]
pub struct FileOperation {
    owner: GilCell<Option<Py<LoopCore>>>,
    state: GilCell<FileState>,
}

#[derive(Default)]
struct FileState {
    future: Option<Py<PyAny>>,
    /// Up to two paths, for `filename` and `filename2` of the exception.
    names: Option<Py<PyTuple>>,
    /// A callback that gets the result in place of the future, because the waiting coroutine was cancelled. `None`
    /// until `abandon` passes one.
    late: Option<Py<PyAny>>,
    over: bool,
    /// The result of an operation whose future was cancelled, until `abandon` passes a callback.
    unreported: Option<PyResult<Py<PyAny>>>,
}

static FILE: Plan = Plan {
    convert,
    on_cancelled,
};

#[pymethods]
impl FileOperation {
    /// The future of the result, for the coroutine that has started the operation. None after the end.
    #[getter]
    fn future(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.future.as_ref().map(|f| f.clone_ref(py)))
    }

    /// Cancels the operation, because the coroutine that waited for it was cancelled. Calls ``late(result, error)``
    /// when the operation ends, or at once if it has ended already.
    fn abandon(&self, py: Python<'_>, late: Py<PyAny>) -> PyResult<()> {
        let unreported = self.state.with(py, |state| {
            if state.over {
                Some(state.unreported.take())
            } else {
                state.late = Some(late.clone_ref(py));
                None
            }
        });
        let future = self.future(py);
        let Some(unreported) = unreported else {
            let owner = self
                .owner
                .with(py, |owner| owner.as_ref().map(|o| o.clone_ref(py)));
            return match (owner, future) {
                (Some(owner), Some(future)) => {
                    let owner = owner.bind(py);
                    // A closed loop has cancelled all operations already.
                    if owner.get().check_closed().is_ok() {
                        operation_futures::abandon(owner, future.bind(py))?;
                    }
                    Ok(())
                }
                _ => Ok(()),
            };
        };
        match (unreported, future) {
            (Some(result), _) => call_late(py, &late, result),
            // The future already has its result, but the coroutine that waited for it was cancelled before it ran.
            (None, Some(future)) => {
                let result = future.bind(py).call_method0("result").map(Bound::unbind);
                call_late(py, &late, result)
            }
            (None, None) => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.owner
            .traverse(|owner| visit.call(owner))
            .unwrap_or(Ok(()))?;
        self.state
            .traverse(|state| {
                visit.call(&state.future)?;
                visit.call(&state.names)?;
                visit.call(&state.late)?;
                match &state.unreported {
                    Some(Ok(result)) => visit.call(result),
                    _ => Ok(()),
                }
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop((self.owner.take(py), self.state.take(py)));
    }
}

/// Converts an outcome to the future's result or its exception.
fn convert(
    slf: &Bound<'_, LoopCore>,
    subject: Subject<'_, '_>,
    outcome: Outcome,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let names = match subject {
        Some(operation) => end(py, operation.cast::<FileOperation>()?.get()),
        None => None,
    };
    to_python(py, outcome, names, false)
}

/// Passes the result of a cancelled operation to the callback, or keeps it until `abandon` passes the callback.
fn on_cancelled(
    slf: &Bound<'_, LoopCore>,
    subject: Subject<'_, '_>,
    outcome: Outcome,
) -> PyResult<()> {
    let py = slf.py();
    let Some(operation) = subject else {
        return Ok(());
    };
    let this = operation.cast::<FileOperation>()?.get();
    let names = end(py, this);
    let result = to_python(py, outcome, names, true);
    match this.state.with(py, |state| state.late.take()) {
        Some(late) => report(slf, call_late(py, &late, result)),
        None => {
            this.state.with(py, |state| state.unreported = Some(result));
            Ok(())
        }
    }
}

fn end(py: Python<'_>, operation: &FileOperation) -> Option<Py<PyTuple>> {
    operation.state.with(py, |state| {
        state.over = true;
        state.names.take()
    })
}

fn call_late(py: Python<'_>, late: &Py<PyAny>, result: PyResult<Py<PyAny>>) -> PyResult<()> {
    match result {
        Ok(value) => late.call1(py, (value, py.None())),
        Err(error) => late.call1(py, (py.None(), error.into_value(py))),
    }
    .map(drop)
}

fn report(slf: &Bound<'_, LoopCore>, result: PyResult<()>) -> PyResult<()> {
    let py = slf.py();
    match result {
        Err(error) if !exception_conversion::is_exit(py, &error) => slf
            .call_method1(
                intern!(py, "_report"),
                (
                    "Exception after an abandoned file operation",
                    error.into_value(py),
                ),
            )
            .map(drop),
        result => result,
    }
}

fn to_python(
    py: Python<'_>,
    outcome: Outcome,
    names: Option<Py<PyTuple>>,
    abandoned: bool,
) -> PyResult<Py<PyAny>> {
    let failed = |errno: Errno| match errno {
        Errno::CANCELED if !abandoned => PyRuntimeError::new_err(
            "the file operation was ended: its event loop was shut down, or this is a forked child",
        ),
        errno => exception_conversion::named_os_error(py, errno, names),
    };
    let outcome = match outcome {
        Outcome::File(outcome) => *outcome,
        Outcome::Done(result) => FileOutcome::Done(result),
        other => return Err(operation_futures::failed(&other)),
    };
    match outcome {
        FileOutcome::Opened(result) => {
            let fd = result.map_err(failed)?;
            Ok(fd.into_raw_fd().into_pyobject(py)?.into_any().unbind())
        }
        FileOutcome::Read(result, target) => {
            let count = result.map_err(failed)?;
            read_bytes(py, target, count as usize)
        }
        FileOutcome::Stat(result) => {
            let stat = result.map_err(failed)?;
            file_status::stat_fields(py, &stat).map(|fields| fields.into_any().unbind())
        }
        FileOutcome::Done(result) => {
            let count = result.map_err(failed)?;
            Ok(count.into_pyobject(py)?.into_any().unbind())
        }
    }
}

/// The `bytes` object of a read, cut to the bytes that were read.
fn read_bytes(py: Python<'_>, target: ReadTarget, count: usize) -> PyResult<Py<PyAny>> {
    match target.into_owner().downcast::<FreshBytes>() {
        Ok(mut bytes) => {
            // SAFETY: the kernel has written this number of bytes, from the beginning on.
            unsafe { bytes.advance(count) };
            Ok(bytes.finish(py)?.into_any().unbind())
        }
        Err(_) => Err(PyRuntimeError::new_err(
            "a read returned memory that is not its own",
        )),
    }
}

fn start(
    slf: &Bound<'_, LoopCore>,
    names: Option<Py<PyTuple>>,
    request: FileRequest,
) -> PyResult<Py<FileOperation>> {
    queue(slf, names, |driver, token| {
        driver.file(Box::new(request), token)
    })
}

fn queue(
    slf: &Bound<'_, LoopCore>,
    names: Option<Py<PyTuple>>,
    queue: impl FnOnce(&mut Driver, Token) -> OpId,
) -> PyResult<Py<FileOperation>> {
    let py = slf.py();
    let state = FileState {
        names,
        ..FileState::default()
    };
    let operation = Py::new(
        py,
        FileOperation {
            owner: GilCell::new(Some(slf.clone().unbind())),
            state: GilCell::new(state),
        },
    )?;
    let subject = operation.clone_ref(py).into_any();
    let future = operation_futures::start(slf, &FILE, Some(subject), queue)?;
    operation
        .get()
        .state
        .with(py, |state| state.future = Some(future));
    Ok(operation)
}

fn path_at(directory: RawFd, path: &[u8]) -> PyResult<At> {
    Ok(At {
        directory,
        path: CString::new(path).map_err(|_| PyValueError::new_err("embedded null byte"))?,
    })
}

fn position(offset: i64) -> Option<u64> {
    u64::try_from(offset).ok()
}

/// Opens ``path``. The future's result is the descriptor.
#[pyfunction]
fn file_open(
    slf: &Bound<'_, LoopCore>,
    path: &[u8],
    dir_fd: RawFd,
    flags: i32,
    mode: u32,
    wait: bool,
    names: Py<PyTuple>,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Open {
        at: path_at(dir_fd, path)?,
        flags,
        mode,
        wait,
    };
    start(slf, Some(names), request)
}

/// Reads at most ``size`` bytes at ``offset``, or at the file's position if ``offset`` is negative.
#[pyfunction]
fn file_read(
    slf: &Bound<'_, LoopCore>,
    fd: RawFd,
    size: usize,
    offset: i64,
    kernel_thread: bool,
) -> PyResult<Py<FileOperation>> {
    let py = slf.py();
    let bytes = FreshBytes::with_capacity(py, size)?;
    let memory = NonNull::new(bytes.free()).ok_or_else(|| PyMemoryError::new_err(()))?;
    // SAFETY: the memory of a `bytes` object of `size` bytes never moves. The object was just made, there is no other
    // reference, and the target keeps it alive until the operation's last completion.
    let target = unsafe { ReadTarget::new(memory, size, Box::new(bytes)) };
    let request = FileRequest::Read {
        fd,
        target,
        offset: position(offset),
        kernel_thread,
    };
    start(slf, None, request)
}

/// Writes ``data`` once. The future's result is the number of bytes.
#[pyfunction]
fn file_write(
    slf: &Bound<'_, LoopCore>,
    fd: RawFd,
    data: &Bound<'_, PyAny>,
    offset: i64,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Write {
        fd,
        data: crate::capi::bytes_like_objects::contiguous(data, "data")?,
        offset: position(offset),
    };
    start(slf, None, request)
}

#[pyfunction]
fn file_sync(slf: &Bound<'_, LoopCore>, fd: RawFd, data_only: bool) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Sync { fd, data_only };
    start(slf, None, request)
}

#[pyfunction]
fn file_truncate(slf: &Bound<'_, LoopCore>, fd: RawFd, length: u64) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Truncate { fd, length };
    start(slf, None, request)
}

/// Closes the caller's descriptor. The descriptor is closed even if this fails.
#[pyfunction]
fn file_close(slf: &Bound<'_, LoopCore>, fd: RawFd) -> PyResult<Py<FileOperation>> {
    // SAFETY: the caller no longer uses the descriptor, as with os.close().
    let fd =
        unsafe { net::take_over(fd) }.map_err(|error| exception_conversion::io_error(&error))?;
    queue(slf, None, |driver, token| driver.close(fd, token))
}

/// Reads the status of ``path``, or of the descriptor ``dir_fd`` if ``path`` is empty. The future's result has the
/// fields of ``os.stat_result``.
#[pyfunction]
fn file_stat(
    slf: &Bound<'_, LoopCore>,
    path: &[u8],
    dir_fd: RawFd,
    flags: i32,
    names: Option<Py<PyTuple>>,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::stat(path_at(dir_fd, path)?, flags);
    start(slf, names, request)
}

#[pyfunction]
fn file_unlink(
    slf: &Bound<'_, LoopCore>,
    path: &[u8],
    dir_fd: RawFd,
    flags: i32,
    names: Py<PyTuple>,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Unlink {
        at: path_at(dir_fd, path)?,
        flags,
    };
    start(slf, Some(names), request)
}

#[pyfunction]
fn file_rename(
    slf: &Bound<'_, LoopCore>,
    source: &[u8],
    source_dir_fd: RawFd,
    target: &[u8],
    target_dir_fd: RawFd,
    names: Py<PyTuple>,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Rename {
        from: path_at(source_dir_fd, source)?,
        to: path_at(target_dir_fd, target)?,
        flags: 0,
    };
    start(slf, Some(names), request)
}

#[pyfunction]
fn file_mkdir(
    slf: &Bound<'_, LoopCore>,
    path: &[u8],
    dir_fd: RawFd,
    mode: u32,
    names: Py<PyTuple>,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::MakeDirectory {
        at: path_at(dir_fd, path)?,
        mode,
    };
    start(slf, Some(names), request)
}

#[pyfunction]
fn file_symlink(
    slf: &Bound<'_, LoopCore>,
    target: &[u8],
    path: &[u8],
    dir_fd: RawFd,
    names: Py<PyTuple>,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Symlink {
        target: path_at(dir_fd, target)?.path,
        at: path_at(dir_fd, path)?,
    };
    start(slf, Some(names), request)
}

#[pyfunction]
fn file_link(
    slf: &Bound<'_, LoopCore>,
    source: &[u8],
    source_dir_fd: RawFd,
    target: &[u8],
    target_dir_fd: RawFd,
    flags: i32,
    names: Py<PyTuple>,
) -> PyResult<Py<FileOperation>> {
    let request = FileRequest::Link {
        from: path_at(source_dir_fd, source)?,
        to: path_at(target_dir_fd, target)?,
        flags,
    };
    start(slf, Some(names), request)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<FileOperation>()?;
    m.add_class::<page_cache_reads::PageCacheReads>()?;
    m.add_function(wrap_pyfunction!(file_status::file_describe, m)?)?;
    m.add_function(wrap_pyfunction!(file_open, m)?)?;
    m.add_function(wrap_pyfunction!(file_read, m)?)?;
    m.add_function(wrap_pyfunction!(file_write, m)?)?;
    m.add_function(wrap_pyfunction!(file_sync, m)?)?;
    m.add_function(wrap_pyfunction!(file_truncate, m)?)?;
    m.add_function(wrap_pyfunction!(file_close, m)?)?;
    m.add_function(wrap_pyfunction!(file_stat, m)?)?;
    m.add_function(wrap_pyfunction!(file_unlink, m)?)?;
    m.add_function(wrap_pyfunction!(file_rename, m)?)?;
    m.add_function(wrap_pyfunction!(file_mkdir, m)?)?;
    m.add_function(wrap_pyfunction!(file_symlink, m)?)?;
    m.add_function(wrap_pyfunction!(file_link, m)?)
}
