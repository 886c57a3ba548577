//! Callbacks that are ready to run, also for programs that run them themselves: asyncio's `loop._ready`.
//!
//! A program with its own `_run_once` (nest_asyncio is the best known) waits by the loop's selector, pops ready items and
//! calls `_run()` of each. The list stays in this module; the program sees a deque, `uringcore._selector_views.ReadyView`. The
//! loop's own turn runs the list in `turn`.
//!
//! Events stay in the engine's queue, which may drop one that is waiting. This list has an item for each entry of that
//! queue ([`Ready::Event`]). Items are counted, because callbacks and events run in the order in which they came, as in
//! asyncio: an entry without an item would wait, and one with two would run others too early.

use std::collections::VecDeque;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};

use crate::capi::error;
use crate::capi::gil_cell::GilCell;
use crate::capi::unwind_guard::UnwindGuard;
use crate::event_loop::handle::{AnyHandle, Handle, TimerHandle};
use crate::event_loop::loop_core::LoopCore;
use crate::event_loop::turn::{self, KeepsOthersOut};
use crate::transport::base_transport::BaseTransport;

/// One thing to run in this turn.
pub enum Ready {
    Handle(AnyHandle),
    /// The next entry of the engine's queue of events. It is taken when this item runs, because an earlier callback may
    /// have paused its transport.
    Event,
    /// `connection_made`, then the first read, then the future of the caller who waits for the transport.
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
/// **Invariant.** `events` is the number of [`Ready::Event`] in `items`. Each of them takes the engine's next entry, so an
/// event has the position of its item among the callbacks. There is never a second item for an entry, even if a program
/// waits several times without running ready items.
#[derive(Default)]
pub struct ReadyQueue {
    items: VecDeque<Ready>,
    events: usize,
    /// Items that are added until the end of the turn belong to it, because an event of a stream has woken tasks.
    pub goes_on: bool,
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

    /// Adds an item other than an event.
    pub fn push_back(&mut self, item: Ready) {
        self.items.push_back(item);
    }

    fn push_front(&mut self, item: Ready) {
        self.items.push_front(item);
    }

    /// The engine has `count` events: adds items for those that have none.
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

    /// Removes a handle.
    fn take(&mut self, handle: &Bound<'_, PyAny>) -> Option<Ready> {
        let is_it = |item: &Ready| matches!(item, Ready::Handle(one) if one.as_any().is(handle));
        let at = self.items.iter().position(is_it)?;
        self.items.remove(at)
    }
}

/// Empty handles without other references, to be used again. The garbage collector tracks them all the time. Objects of a
/// free list, which it does not track anew, would leak their cycles.
pub struct Spare<T>(Vec<Py<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Spare<T> {
    /// Takes a handle. The caller checks that it has the only reference, because `gc.get_objects()` may have returned the
    /// handle to the program.
    pub fn take(&mut self) -> Option<Py<T>> {
        self.0.pop()
    }

    /// Keeps a handle, or returns it if there are enough.
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

/// More handles than a loop has ready at a time, except in bursts: some 100 KiB of each kind.
const SPARE_MAX: usize = 1_024;

/// An item of the loop's own, with the attributes of a handle that `_run_once` uses.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct ReadyItem {
    /// `None` after the run, and in an item that is only shown.
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

    /// Runs the item, once. Raises only exceptions that leave the loop, and RuntimeError if another thread runs the loop.
    fn _run(&self, py: Python<'_>) -> PyResult<()> {
        let _guard = UnwindGuard::enter();
        let is_refused = self.work.with(py, |work| {
            let owner = work.as_ref().map(|(owner, _)| owner.get());
            owner.is_some_and(|owner| owner.runs_elsewhere(py))
        });
        if is_refused {
            return Err(error::engine_away());
        }
        let Some((owner, item)) = self.work.take(py) else {
            return Ok(());
        };
        let owner = owner.bind(py);
        let _alone = KeepsOthersOut::new(owner.get(), py);
        turn::run_reported(owner, item)
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

/// The item at `index`, which is only shown.
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

/// Takes the first item, for the caller to run.
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

/// Adds a handle of this package or of asyncio, as the last or the first item.
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

/// Removes a handle. False if it is not in the list.
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
