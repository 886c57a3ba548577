//! [`RustCoroutine`]: a coroutine whose work is in Rust.
//!
//! Nothing happens before the first step, as with a coroutine of Python. If the work can be done then, it needs no
//! turn of the loop. Work that has to wait returns the future and the work that is left, which continues when the
//! future is done.

use std::borrow::Cow;

use pyo3::exceptions::{PyRuntimeWarning, PyStopAsyncIteration, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::coroutine::{Coroutine, CoroutineState, executing, raised, returned, used_up};
use super::error::warn_of_a_dying_object;
use super::gil_cell::GilCell;

/// The work of a coroutine.
pub trait Work: Sized {
    fn run(self, py: Python<'_>) -> PyResult<Outcome<Self>>;

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

/// The result of a run of the work.
pub enum Outcome<W> {
    Return(Py<PyAny>),
    /// The end of an asynchronous iterator.
    Exhausted,
    /// The work waits for a future, and then continues.
    Wait(Py<PyAny>, W),
    /// The loop gets a turn, and then the work continues.
    Yield(W),
}

/// The state of a coroutine whose work is `W`.
pub struct RustCoroutine<W: Work> {
    /// Used for the names of tasks.
    qualname: &'static str,
    step: GilCell<Step<W>>,
}

enum Step<W> {
    New(W),
    /// The rest of the work, behind a future, or behind a turn of the loop if there is none.
    Suspended(Option<Py<PyIterator>>, W),
    /// Inside a step, which has the work.
    Running,
    Over,
}

impl<W: Work> RustCoroutine<W> {
    pub fn new(qualname: &'static str, work: W) -> Self {
        Self {
            qualname,
            step: GilCell::new(Step::New(work)),
        }
    }

    /// Takes the work for a step, with the future that is before it.
    fn begin(&self, py: Python<'_>) -> PyResult<(Option<Py<PyIterator>>, W)> {
        match self.replace(py, Step::Running) {
            Step::New(work) => Ok((None, work)),
            Step::Suspended(awaited, work) => Ok((awaited, work)),
            Step::Running => Err(executing()),
            Step::Over => {
                self.end(py);
                Err(used_up())
            }
        }
    }

    /// Keeps the rest of the work until the next step.
    fn suspend(&self, py: Python<'_>, awaited: Option<Py<PyIterator>>, work: W) {
        drop(self.replace(py, Step::Suspended(awaited, work)));
    }

    fn end(&self, py: Python<'_>) {
        drop(self.replace(py, Step::Over));
    }

    fn replace(&self, py: Python<'_>, next: Step<W>) -> Step<W> {
        self.step.with(py, |step| std::mem::replace(step, next))
    }

    /// A step: runs the work, and ends the coroutine if it has not suspended itself.
    #[inline]
    fn step(
        &self,
        py: Python<'_>,
        awaited: Option<Py<PyIterator>>,
        work: W,
    ) -> PyResult<Option<Py<PyAny>>> {
        let came = self.run(py, awaited, work);
        if !matches!(came, Ok(Some(_))) {
            self.end(py);
        }
        came
    }

    /// Works until there is a result, or a future to wait for.
    fn run(
        &self,
        py: Python<'_>,
        mut awaited: Option<Py<PyIterator>>,
        mut work: W,
    ) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(future) = awaited
                && let Some(what) = future.bind(py).clone().next()
            {
                let what = what?.unbind();
                self.suspend(py, Some(future), work);
                return Ok(Some(what));
            }
            match work.run(py)? {
                Outcome::Return(value) if value.is_none(py) => return Ok(None),
                Outcome::Return(value) => return Err(returned(py, value)),
                Outcome::Exhausted => return Err(PyStopAsyncIteration::new_err(())),
                Outcome::Wait(future, rest) => {
                    awaited = Some(future.bind(py).try_iter()?.unbind());
                    work = rest;
                }
                Outcome::Yield(rest) => {
                    self.suspend(py, None, rest);
                    return Ok(Some(py.None()));
                }
            }
        }
    }
}

impl<W: Work> Coroutine for RustCoroutine<W> {
    #[inline]
    fn resume(
        &self,
        py: Python<'_>,
        _value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (awaited, work) = self.begin(py)?;
        self.step(py, awaited, work)
    }

    fn throw(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Option<Py<PyAny>>> {
        let error = match raised(args) {
            // Arguments that are no exception leave the coroutine as it is.
            Err(error) if self.state(py) != CoroutineState::Suspended => return Err(error),
            Ok(error) | Err(error) => error,
        };
        let (awaited, work) = self.begin(py)?;
        let Some(awaited) = awaited else {
            self.end(py);
            return Err(error);
        };
        match awaited.bind(py).call_method1(intern!(py, "throw"), args) {
            // The future caught the exception and waits again.
            Ok(what) => {
                self.suspend(py, Some(awaited), work);
                Ok(Some(what.unbind()))
            }
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => self.step(py, None, work),
            Err(error) => {
                self.end(py);
                Err(error)
            }
        }
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.state(py) {
            CoroutineState::Running => Err(executing()),
            _ => {
                self.end(py);
                Ok(())
            }
        }
    }

    fn state(&self, py: Python<'_>) -> CoroutineState {
        self.step.with(py, |step| match step {
            Step::New(_) => CoroutineState::Created,
            Step::Suspended(..) => CoroutineState::Suspended,
            Step::Running => CoroutineState::Running,
            Step::Over => CoroutineState::Closed,
        })
    }

    fn qualname(&self, _py: Python<'_>) -> Cow<'static, str> {
        Cow::Borrowed(self.qualname)
    }

    fn awaited(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.step.with(py, |step| match step {
            Step::Suspended(Some(awaited), _) => Some(awaited.clone_ref(py).into_any()),
            _ => None,
        })
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.step
            .traverse(|step| match step {
                Step::New(work) => work.traverse(visit),
                Step::Suspended(awaited, work) => {
                    visit.call(awaited)?;
                    work.traverse(visit)
                }
                Step::Running | Step::Over => Ok(()),
            })
            .unwrap_or(Ok(()))
    }

    fn clear(&self, py: Python<'_>) {
        self.end(py);
    }
}

/// Warns of a coroutine that was never awaited, as CPython does: its work was not done.
impl<W: Work> Drop for RustCoroutine<W> {
    fn drop(&mut self) {
        if !matches!(self.step.get_mut(), Step::New(_)) {
            return;
        }
        let text = format!("coroutine '{}' was never awaited", self.qualname);
        // An interpreter at its end is not attached.
        Python::try_attach(|py| {
            warn_of_a_dying_object(&py.get_type::<PyRuntimeWarning>(), text);
        });
    }
}
