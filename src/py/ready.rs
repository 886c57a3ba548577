//! What waits to be run, shown to programs that run it themselves: `loop._ready` as asyncio has it.
//!
//! A program with a `_run_once` of its own (nest_asyncio is the best known) waits by the loop's
//! selector, pops what is ready and calls each handle's `_run()`. The list itself stays the core's; the
//! deque that the program sees is `uringcore._selector.ReadyView`. Running it in the loop's own turn is
//! `turn`'s.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};

use crate::cell::GilCell;
use crate::context::Entered;
use crate::handle::{AnyHandle, Handle};
use crate::loop_core::{LoopCore, Ready};
use crate::thread_end::Stays;
use crate::turn;

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

    /// Runs it, once. Raises only what leaves the loop.
    fn _run(&self, py: Python<'_>) -> PyResult<()> {
        let _stays = Stays::here();
        match self.work.take(py) {
            Some((owner, item)) => {
                turn::run_reported(owner.bind(py), &item, &mut Entered::default())
            }
            None => Ok(()),
        }
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

/// How many there are.
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
    let handle = slf.get().ready.with(py, |ready| match ready.get(index)? {
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

/// Adds a handle, of ours or of asyncio's.
#[pyfunction]
#[pyo3(name = "_ready_push")]
fn push(slf: &Bound<'_, LoopCore>, handle: &Bound<'_, PyAny>) {
    let handle = match handle.cast::<Handle>() {
        Ok(ours) => AnyHandle::Ours(ours.clone().unbind()),
        Err(_) => AnyHandle::Foreign(handle.clone().unbind()),
    };
    slf.get().push_ready(slf.py(), Ready::Handle(handle));
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
    m.add_function(wrap_pyfunction!(push, m)?)
}
