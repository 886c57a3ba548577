//! The files that a process has open for its responses: permits that clients share fairly (`limits::fair_permits`).
//!
//! A response holds a permit while it reads, also while a thread reads for it, and keeps its file open with the permit
//! while its client accepts nothing. A kept file is closed when another response needs the permit, and is opened again
//! later. So a client that reads slowly takes no descriptor from others, and no response fails because it lacks one:
//! it waits.
//!
//! The permits belong to the process, whatever loops and servers it has. Not here: reading (`file`), and the identity
//! of a client (the version of HTTP gives it through `HttpStream::file_client`).

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;
use uringcore_io::{PerProcess, SentFile, descriptors};
use uringcore_limits::fair_permits::{Changes, FairPermits, HolderId, Taken};
use uringcore_limits::memory_budget::AddressBlock;

use crate::capi::error::with_pending_set_aside;
use crate::capi::future_wakeup;
use crate::capi::gil_cell::GilCell;

/// One response's share of the process's open files.
pub(super) struct FileShare {
    /// The files of the process that made it. A forked child has copies of its parent's objects.
    files: &'static Mutex<Files>,
    id: HolderId,
    waiter: GilCell<Option<Arc<Waiter>>>,
}

/// The account of a client's response.
#[derive(Clone, Copy)]
pub struct FileClient {
    pub block: AddressBlock,
    /// The limit of files of the whole process, if the server sets one.
    pub max: Option<usize>,
}

/// The result of a request for a permit.
pub(super) enum Granted {
    /// The file that was kept.
    Open(Arc<SentFile>),
    /// A permit to open one.
    Room,
    /// [`FileShare::wait`] reports the time.
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
    /// The shares own their waiters, so the waiter of a loop that has gone is dropped with its response.
    waiters: FxHashMap<HolderId, Weak<Waiter>>,
}

/// A forked child starts with all permits, because its parent's responses do not run in it.
static FILES: PerProcess<Mutex<Files>> = PerProcess::new();

/// Runs `run` on the files. It calls no Python code.
fn with_files<R>(run: impl FnOnce(&mut Files) -> R) -> R {
    let mut files = FILES.get().lock().unwrap_or_else(PoisonError::into_inner);
    run(&mut files)
}

/// Runs `run`, and then its consequences: files are closed and futures set outside of the lock.
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

/// Closes a kept file, because the system is out of descriptors. False if there is none.
pub(super) fn close_one(py: Python<'_>) -> bool {
    change(py, |files| files.shares.drop_one())
}

impl FileShare {
    pub fn new(client: FileClient) -> Arc<Self> {
        let limit = descriptors::limit();
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

    /// True in a forked child, where no loop continues the response.
    fn is_inherited(&self) -> bool {
        !std::ptr::eq(self.files, FILES.get())
    }

    /// Requests a permit to work with.
    pub fn take(&self, py: Python<'_>) -> Granted {
        if self.is_inherited() {
            return Granted::Later;
        }
        match change(py, |files| files.shares.take(self.id)) {
            Taken::Kept(file) => Granted::Open(file),
            Taken::Empty => Granted::Room,
            Taken::Waits => Granted::Later,
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
        // Another thread's loop may have released its permit since.
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
        // No response waits in a finalising interpreter.
        let left = Python::try_attach(|py| with_pending_set_aside(py, || change(py, leave)));
        if left.is_none() {
            with_files(leave);
        }
    }
}

impl Waiter {
    /// Callable on any thread. A closed loop has no response that waits.
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

/// Sets a future, which may already be done at that time.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub(super) struct SetFuture {
    pub future: Py<PyAny>,
}

#[pymethods]
impl SetFuture {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        future_wakeup::wake(py, vec![self.future.clone_ref(py)])
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.future)
    }
}

/// The divisor of the process's limit of descriptors. The others are for TCP clients, listeners and the application.
const SHARE_OF_DESCRIPTORS: usize = 4;
/// More permits would not save any opening.
const FILES_MAX: usize = 16_384;
