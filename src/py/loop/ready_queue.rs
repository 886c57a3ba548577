//! The callbacks that are ready to run: asyncio's `loop._ready`.
//!
//! The loop's own iteration runs them in `iteration`. A program with its own `_run_once` (nest_asyncio is the best
//! known) waits by the loop's selector, pops ready items and calls `_run()` of each. Such a program sees the queue
//! through a deque, `uringcore._selector_views.ReadyView`.
//!
//! Events stay in the engine's queue, which may drop one before it is handled. This queue has one item
//! ([`Ready::Event`]) for each entry of the engine's queue, because callbacks and events run in the order in which
//! they came, as in asyncio. An entry without an item would wait; two items for one entry would run later events too
//! early.

use std::collections::VecDeque;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};

use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;
use crate::capi::thread_exit_guard::UnwindGuard;
use crate::event_loop::handle::{AnyHandle, Handle, TimerHandle};
use crate::event_loop::iteration::{self, ExclusiveIteration};
use crate::event_loop::loop_core::LoopCore;
use crate::transport::base_transport::BaseTransport;

/// An item that the loop runs in this loop iteration.
pub enum Ready {
    Handle(AnyHandle),
    /// The next entry of the engine's queue of events. The entry is taken when the item runs, because an earlier
    /// callback may have paused the entry's transport.
    Event,
    /// Starts a transport: calls `connection_made`, begins to read, and then wakes the future of `create_connection`.
    Start(Py<BaseTransport>, Option<Py<PyAny>>),
}

impl Ready {
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Handle(handle) => handle.traverse(visit),
            Self::Start(transport, waiter) => {
                visit.call(transport)?;
                visit.call(waiter)
            }
            Self::Event => Ok(()),
        }
    }
}

/// The items to run, in order.
///
/// **Invariant.** `events` is the number of [`Ready::Event`] items. Each of them takes the next entry of the engine's
/// queue when it runs, so an event has the position of its item among the callbacks. There is never a second item for
/// an entry, even if a program waits several times without running ready items.
#[derive(Default)]
pub struct ReadyQueue {
    items: VecDeque<Ready>,
    events: usize,
    /// True if items that are added until the end of the loop iteration still run in this loop iteration, because an
    /// event of a QUIC stream has woken tasks.
    pub iteration_continues: bool,
    pub handles: Spare<Handle>,
    pub timers: Spare<TimerHandle>,
}

impl ReadyQueue {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.items
            .iter()
            .try_for_each(|item| item.traverse(visit))?;
        self.handles.traverse(visit)?;
        self.timers.traverse(visit)
    }

    /// Adds an item at the end. Not for [`Ready::Event`].
    pub fn push_back(&mut self, item: Ready) {
        self.items.push_back(item);
    }

    fn push_front(&mut self, item: Ready) {
        self.items.push_front(item);
    }

    /// Adds [`Ready::Event`] items until there are `count`, the number of events in the engine's queue.
    pub fn note_events(&mut self, count: usize) {
        while self.events < count {
            self.items.push_back(Ready::Event);
            self.events += 1;
        }
    }

    pub fn pop_front(&mut self) -> Option<Ready> {
        let item = self.items.pop_front()?;
        if matches!(item, Ready::Event) {
            self.events -= 1;
        }
        Some(item)
    }

    /// Removes the item of a handle.
    fn take(&mut self, handle: &Bound<'_, PyAny>) -> Option<Ready> {
        let is_it = |item: &Ready| matches!(item, Ready::Handle(one) if one.as_any().is(handle));
        let at = self.items.iter().position(is_it)?;
        self.items.remove(at)
    }
}

/// Handles without a callback, kept for reuse. They stay tracked by the garbage collector. Objects from a free list of
/// PyO3 would not be tracked again, so that reference cycles through them would leak.
pub struct Spare<T>(Vec<Py<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Spare<T> {
    /// Takes a handle. The caller must check that no other reference exists, because a program may have got one from
    /// `gc.get_objects()`.
    pub fn take(&mut self) -> Option<Py<T>> {
        self.0.pop()
    }

    /// Keeps an unused handle, to be used again. Returns the handle if [`SPARE_MAX`] handles are kept already.
    pub fn keep(&mut self, handle: Py<T>) -> Option<Py<T>> {
        match self.0.len() < SPARE_MAX {
            true => {
                self.0.push(handle);
                None
            }
            false => Some(handle),
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.iter().try_for_each(|handle| visit.call(handle))
    }
}

/// More than the number of handles that are ready at a time, except in bursts. Handles of one kind then occupy some
/// 100 KiB.
const SPARE_MAX: usize = 1_024;

/// An entry of the queue that is not a handle, as Python sees it. It has the attributes of a handle that asyncio's
/// `_run_once` reads.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct ReadyItem {
    /// The loop and the item. `None` after the run, and in an object that only shows an item of the queue.
    work: GilCell<Option<(Py<LoopCore>, Ready)>>,
}

#[pymethods]
impl ReadyItem {
    #[getter]
    fn _cancelled(&self) -> bool {
        false
    }

    #[getter]
    fn _callback(&self) -> Option<Py<PyAny>> {
        None
    }

    #[getter]
    fn _args(&self, py: Python<'_>) -> Py<PyTuple> {
        PyTuple::empty(py).unbind()
    }

    /// Runs the item, at most once. Raises only exceptions that leave the loop, and RuntimeError if another thread runs
    /// the loop.
    fn _run(&self, py: Python<'_>) -> PyResult<()> {
        let _guard = UnwindGuard::enter();
        let is_refused = self.work.with(py, |work| {
            let owner = work.as_ref().map(|(owner, _)| owner.get());
            owner.is_some_and(|owner| owner.runs_elsewhere(py))
        });
        if is_refused {
            return Err(exception_conversion::engine_away());
        }
        let Some((owner, item)) = self.work.take(py) else {
            return Ok(());
        };
        let owner = owner.bind(py);
        let _alone = ExclusiveIteration::new(owner.get(), py);
        iteration::run_reported(owner, item)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.work
            .traverse(|work| match work {
                Some((owner, item)) => {
                    visit.call(owner)?;
                    item.traverse(&visit)
                }
                None => Ok(()),
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.work.take(py));
    }
}

/// The number of items.
#[pyfunction]
#[pyo3(name = "_ready_count")]
fn count(slf: &Bound<'_, LoopCore>) -> usize {
    slf.get().ready.with(slf.py(), |ready| ready.len())
}

/// An object that shows the item at `index`. None if there is no such item.
#[pyfunction]
#[pyo3(name = "_ready_at")]
fn at(slf: &Bound<'_, LoopCore>, index: usize) -> PyResult<Option<Py<PyAny>>> {
    let py = slf.py();
    let handle = slf
        .get()
        .ready
        .with(py, |ready| match ready.items.get(index)? {
            Ready::Handle(handle) => Some(Some(handle.as_any().clone_ref(py))),
            _ => Some(None),
        });
    match handle {
        Some(None) => shown(py, None).map(Some),
        Some(handle) => Ok(handle),
        None => Ok(None),
    }
}

/// Removes the first item and returns it, for the caller to run.
#[pyfunction]
#[pyo3(name = "_ready_pop")]
fn pop(slf: &Bound<'_, LoopCore>) -> PyResult<Option<Py<PyAny>>> {
    let py = slf.py();
    match slf.get().ready.with(py, |ready| ready.pop_front()) {
        Some(Ready::Handle(handle)) => Ok(Some(handle.as_any().clone_ref(py))),
        Some(item) => shown(py, Some((slf.clone().unbind(), item))).map(Some),
        None => Ok(None),
    }
}

/// Adds a handle of this package or of asyncio, at the beginning if `first` is true, else at the end.
#[pyfunction]
#[pyo3(name = "_ready_push")]
fn push(slf: &Bound<'_, LoopCore>, handle: &Bound<'_, PyAny>, first: bool) {
    let handle = match (
        handle.cast_exact::<Handle>(),
        handle.cast_exact::<TimerHandle>(),
    ) {
        (Ok(ours), _) => AnyHandle::Ours(ours.clone().unbind()),
        (_, Ok(timer)) => AnyHandle::Timer(timer.clone().unbind()),
        _ => AnyHandle::Foreign(handle.clone().unbind()),
    };
    let item = Ready::Handle(handle);
    slf.get().ready.with(slf.py(), |ready| {
        if first {
            ready.push_front(item);
        } else {
            ready.push_back(item);
        }
    });
}

/// Removes a handle. Returns False if the handle is not in the queue.
#[pyfunction]
#[pyo3(name = "_ready_remove")]
fn remove(slf: &Bound<'_, LoopCore>, handle: &Bound<'_, PyAny>) -> bool {
    let taken = slf.get().ready.with(slf.py(), |ready| ready.take(handle));
    taken.is_some()
}

fn shown(py: Python<'_>, work: Option<(Py<LoopCore>, Ready)>) -> PyResult<Py<PyAny>> {
    let work = GilCell::new(work);
    Ok(Py::new(py, ReadyItem { work })?.into_any())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ReadyItem>()?;
    m.add_function(wrap_pyfunction!(count, m)?)?;
    m.add_function(wrap_pyfunction!(at, m)?)?;
    m.add_function(wrap_pyfunction!(pop, m)?)?;
    m.add_function(wrap_pyfunction!(push, m)?)?;
    m.add_function(wrap_pyfunction!(remove, m)?)
}
