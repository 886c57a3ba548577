//! What waits to be run, also shown to programs that run it themselves: `loop._ready` as asyncio has it.
//!
//! A program with a `_run_once` of its own (nest_asyncio is the best known) waits by the loop's
//! selector, pops what is ready and calls each handle's `_run()`. The list itself stays the core's; the
//! deque that the program sees is `uringcore._selector.ReadyView`. Running it in the loop's own turn is
//! `turn`'s.
//!
//! Events stay in the engine's queue, which may blank one that is waiting; what is here is a place for each
//! entry ([`Ready::Event`]). They are counted, because callbacks and events run in the order in which they
//! came, as asyncio has it: an entry without a place would wait, one with two would put another's first.

use std::collections::VecDeque;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};

use crate::capi::cell::GilCell;
use crate::capi::error;
use crate::capi::thread_end::Stays;
use crate::event_loop::handle::{AnyHandle, Handle, TimerHandle};
use crate::event_loop::loop_core::LoopCore;
use crate::event_loop::turn::{self, KeepsOthersOut};
use crate::transport::base::BaseTransport;

/// One thing to run in this turn.
pub enum Ready {
    Handle(AnyHandle),
    /// The next entry of the engine's queue of events: taken when its turn comes, because a callback
    /// before it may have paused the transport that it belongs to.
    Event,
    /// `connection_made`, then the first read, then the waiter of whoever asked for the transport.
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

/// What is to be run, in order.
///
/// **Invariant.** `events` is how many [`Ready::Event`] are in `items`. Whoever takes one takes the engine's
/// next entry by it, so that an event has the place among the callbacks that its item has. Never is there a
/// second item for one entry, however often a program waits without running what is ready.
#[derive(Default)]
pub struct ReadyQueue {
    items: VecDeque<Ready>,
    events: usize,
    /// What is here at the end of the turn belongs to it: an event was delivered to those who wait for it.
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

    /// For everything but events.
    pub fn push_back(&mut self, item: Ready) {
        self.items.push_back(item);
    }

    fn push_front(&mut self, item: Ready) {
        self.items.push_front(item);
    }

    /// The engine has so many events: those that have no item yet get one.
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

    /// Takes a handle out of its place.
    fn take(&mut self, handle: &Bound<'_, PyAny>) -> Option<Ready> {
        let is_it = |item: &Ready| matches!(item, Ready::Handle(one) if one.as_any().is(handle));
        let at = self.items.iter().position(is_it)?;
        self.items.remove(at)
    }
}

/// Handles that nobody holds and that have nothing in them, to be used again. The collector knows them all
/// along: an object that it is not told of anew, as with a free list, is one whose cycles stay for ever.
pub struct Spare<T>(Vec<Py<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Spare<T> {
    /// Whoever takes one asks whether it is alone: the collector shows it to anybody who asks for all objects.
    pub fn take(&mut self) -> Option<Py<T>> {
        self.0.pop()
    }

    /// Gives it back when there are enough.
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

/// More than a loop ever has ready at a time but for bursts; some 100 KiB of each kind.
const SPARE_MAX: usize = 1_024;

/// Something of the loop's own that is to be run: as much of a handle as `_run_once` looks at.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct LoopErrand {
    /// `None` after its run, and in one that is only looked at.
    work: GilCell<Option<(Py<LoopCore>, Ready)>>,
}

#[pymethods]
impl LoopErrand {
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

    /// Runs it, once. Raises only what leaves the loop, and RuntimeError where another thread runs that.
    fn _run(&self, py: Python<'_>) -> PyResult<()> {
        let _stays = Stays::here();
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

/// The number of elements.
#[pyfunction]
#[pyo3(name = "_ready_count")]
fn count(slf: &Bound<'_, LoopCore>) -> usize {
    slf.get().ready.with(slf.py(), |ready| ready.len())
}

/// The one at `index`, to be looked at.
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

/// Takes the first one, to be run by the caller.
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

/// Adds a handle, of ours or of asyncio's, as the last one or as the first.
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

/// Takes a handle out, wherever it is; false if it is not there.
#[pyfunction]
#[pyo3(name = "_ready_remove")]
fn remove(slf: &Bound<'_, LoopCore>, handle: &Bound<'_, PyAny>) -> bool {
    let taken = slf.get().ready.with(slf.py(), |ready| ready.take(handle));
    taken.is_some()
}

fn shown(py: Python<'_>, work: Option<(Py<LoopCore>, Ready)>) -> PyResult<Py<PyAny>> {
    let work = GilCell::new(work);
    Ok(Py::new(py, LoopErrand { work })?.into_any())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<LoopErrand>()?;
    m.add_function(wrap_pyfunction!(count, m)?)?;
    m.add_function(wrap_pyfunction!(at, m)?)?;
    m.add_function(wrap_pyfunction!(pop, m)?)?;
    m.add_function(wrap_pyfunction!(push, m)?)?;
    m.add_function(wrap_pyfunction!(remove, m)?)
}
