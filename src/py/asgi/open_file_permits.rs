//! The open files of a process: permits, which clients share fairly (`limits::fair_permits`).
//!
//! A response holds a permit while it reads its file, also while a thread reads for it. While the client accepts
//! nothing, the file stays open with the permit. When another response needs the permit, the file is closed, and it
//! is opened again later. So a client that reads slowly takes no descriptor from others, and a response without a
//! descriptor waits and does not fail.
//!
//! The permits belong to the process, whatever loops and servers it has. Not here: reading (`file_response`), and the
//! identity of a client, which comes from `HttpStream::file_client`.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;
use uringcore_io::{PerProcess, SentFile, descriptor_limit_and_dup};
use uringcore_limits::fair_permits::{Changes, FairPermits, HolderId, Taken};
use uringcore_limits::memory_budget::AddressBlock;

use crate::capi::exception_conversion::with_pending_set_aside;
use crate::capi::future_wakeup;
use crate::capi::gil_cell::GilCell;

/// A response's share of the open files of the process.
pub(super) struct FileShare {
    /// The files of the process that has made this object. A forked child has copies of its parent's objects.
    files: &'static Mutex<Files>,
    id: HolderId,
    waiter: GilCell<Option<Arc<Waiter>>>,
}

/// The client whose account a response's open file belongs to, and the limit.
#[derive(Clone, Copy)]
pub struct FileClient {
    pub block: AddressBlock,
    /// The largest number of open files of the whole process. `None` for the default.
    pub max: Option<usize>,
}

/// The answer to a request for a permit.
pub(super) enum PermitAnswer {
    /// The file is still open.
    Open(Arc<SentFile>),
    /// A permit to open the file.
    Room,
    /// No permit now. [`FileShare::wait`] sets a future when there is one.
    Later,
}

/// A future of a loop that is set when there is a permit.
struct Waiter {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

#[derive(Default)]
struct Files {
    shares: FairPermits<AddressBlock, Arc<SentFile>>,
    /// The responses that wait for a permit. The references are weak: a response's [`FileShare`] owns its waiter, so
    /// the waiter is dropped with the response, also if the loop ends before there is a permit.
    waiters: FxHashMap<HolderId, Weak<Waiter>>,
}

/// A forked child begins with all permits, because its parent's responses do not run in it.
static FILES: PerProcess<Mutex<Files>> = PerProcess::new();

/// Calls `run` with the files, while they are locked. `run` must call no Python code.
fn with_files<R>(run: impl FnOnce(&mut Files) -> R) -> R {
    let mut files = FILES.get().lock().unwrap_or_else(PoisonError::into_inner);
    run(&mut files)
}

/// Calls `run` with the files. Afterwards, without the lock, closes files and sets futures, as `run` has caused.
fn change<R>(py: Python<'_>, run: impl FnOnce(&mut Files) -> R) -> R {
    let (result, waiting) = with_files(|files| {
        let result = run(files);
        let Changes { dropped, granted } = files.shares.take_changes();
        let waiters = granted.iter().filter_map(|id| files.waiters.remove(id));
        (result, (dropped, waiters.collect::<Vec<_>>()))
    });
    let (dropped, waiters) = waiting;
    drop(dropped);
    for waiter in waiters.iter().filter_map(Weak::upgrade) {
        waiter.set_soon(py);
    }
    result
}

/// Closes a file that only waits, because the system has no free descriptor. Returns false if there is none.
pub(super) fn close_one(py: Python<'_>) -> bool {
    change(py, |files| files.shares.drop_one())
}

impl FileShare {
    pub fn new(client: FileClient) -> Arc<Self> {
        let limit = descriptor_limit_and_dup::limit();
        let max = match client.max {
            None => (limit / SHARE_OF_DESCRIPTORS).min(FILES_MAX),
            Some(max) => max.min(limit / 2),
        };
        Arc::new(Self {
            files: FILES.get(),
            id: with_files(|files| files.shares.join(client.block, max)),
            waiter: GilCell::new(None),
        })
    }

    /// True in a forked child for an object of its parent, whose response does not continue.
    fn is_inherited(&self) -> bool {
        !std::ptr::eq(self.files, FILES.get())
    }

    /// Requests the file or a permit to open it.
    pub fn take(&self, py: Python<'_>) -> PermitAnswer {
        if self.is_inherited() {
            return PermitAnswer::Later;
        }
        match change(py, |files| files.shares.take(self.id)) {
            Taken::Kept(file) => PermitAnswer::Open(file),
            Taken::Empty => PermitAnswer::Room,
            Taken::Waits => PermitAnswer::Later,
        }
    }

    /// Keeps the file open until another response needs the permit.
    pub fn keep(&self, py: Python<'_>, file: Arc<SentFile>) {
        if !self.is_inherited() {
            drop(change(py, |files| files.shares.keep(self.id, file)));
        }
    }

    pub fn release(&self, py: Python<'_>) {
        if !self.is_inherited() {
            change(py, |files| files.shares.release(self.id));
        }
    }

    /// Sets `future` when there is a permit.
    pub fn wait(&self, py: Python<'_>, event_loop: &Py<PyAny>, future: &Bound<'_, PyAny>) {
        let waiter = Arc::new(Waiter {
            event_loop: event_loop.clone_ref(py),
            future: future.clone().unbind(),
        });
        let weak = Arc::downgrade(&waiter);
        let old = self.waiter.with(py, |slot| slot.replace(waiter.clone()));
        drop(old);
        if self.is_inherited() {
            return;
        }
        // A loop of another thread may have released a permit since.
        let is_granted = with_files(|files| {
            let is_granted = files.shares.is_working(self.id);
            if !is_granted {
                files.waiters.insert(self.id, weak);
            }
            is_granted
        });
        if is_granted {
            waiter.set_soon(py);
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.waiter
            .traverse(|waiter| match waiter {
                Some(waiter) => {
                    visit.call(&waiter.event_loop)?;
                    visit.call(&waiter.future)
                }
                None => Ok(()),
            })
            .unwrap_or(Ok(()))
    }
}

impl Drop for FileShare {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        let leave = |files: &mut Files| {
            files.waiters.remove(&self.id);
            files.shares.leave(self.id);
        };
        // In a finalising interpreter no response waits.
        let left = Python::try_attach(|py| with_pending_set_aside(py, || change(py, leave)));
        if left.is_none() {
            with_files(leave);
        }
    }
}

impl Waiter {
    /// Sets the future by the loop's `call_soon_threadsafe`, on any thread. An error is ignored: a closed loop has no
    /// response that waits.
    fn set_soon(&self, py: Python<'_>) {
        let event_loop = self.event_loop.bind(py);
        let set = || -> PyResult<()> {
            if event_loop
                .call_method0(intern!(py, "is_closed"))?
                .is_truthy()?
            {
                return Ok(());
            }
            let set = SetFuture {
                future: self.future.clone_ref(py),
            };
            event_loop
                .call_method1(intern!(py, "call_soon_threadsafe"), (Py::new(py, set)?,))
                .map(drop)
        };
        if let Err(error) = set() {
            error.write_unraisable(py, Some(event_loop));
        }
    }
}

/// A callable that sets a future, unless the future is done.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub(super) struct SetFuture {
    pub future: Py<PyAny>,
}

#[pymethods]
impl SetFuture {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        future_wakeup::wake(py, [self.future.clone_ref(py)])
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)
    }
}

/// The limit of open files is the process's limit of descriptors divided by this number. The other descriptors are
/// for TCP clients, listeners and the application.
const SHARE_OF_DESCRIPTORS: usize = 4;
/// The largest number of permits. More would not save any opening of files.
const FILES_MAX: usize = 16_384;
