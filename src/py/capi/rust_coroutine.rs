//! [`RustCoroutine`]: a coroutine whose work is Rust code.
//!
//! As with a Python coroutine, nothing happens before the first step. Work that can be done in that step needs no
//! iteration of the loop. Work that has to wait returns a future and the remaining work, which runs in the first step
//! after the future is done.

use std::borrow::Cow;

use pyo3::exceptions::{PyRuntimeWarning, PyStopAsyncIteration, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::coroutine_methods::{Coroutine, CoroutineState, Stepped, executing, raised, used_up};
use super::exception_conversion::warn_of_a_dying_object;
use super::gil_cell::GilCell;

/// The work of a coroutine. Each call of `run` consumes it and returns the result or the remaining work.
pub trait Work: Sized {
    fn run(self, py: Python<'_>) -> PyResult<Outcome<Self>>;

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

/// The result of [`Work::run`].
pub enum Outcome<W> {
    Return(Py<PyAny>),
    /// The asynchronous iterator has ended (`StopAsyncIteration`).
    Exhausted,
    /// The work continues when the future is done.
    Wait(Py<PyAny>, W),
    /// The work continues in the loop's next iteration.
    Yield(W),
}

/// A coroutine whose work is a `W`.
pub struct RustCoroutine<W: Work> {
    /// `__qualname__`, such as `SendStream.send`. asyncio shows it in the repr of a task.
    qualname: &'static str,
    step: GilCell<Step<W>>,
}

enum Step<W> {
    New(W),
    /// The coroutine has to wait: for this future, or without one until the next loop iteration. The second value is
    /// the work that is left.
    Suspended(Option<Py<PyIterator>>, W),
    /// A step runs now and owns the work.
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

    /// Begins a step: takes out the work, and the future for which it has waited.
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

    /// Stores the remaining work until the next step.
    fn suspend(&self, py: Python<'_>, awaited: Option<Py<PyIterator>>, work: W) {
        drop(self.replace(py, Step::Suspended(awaited, work)));
    }

    fn end(&self, py: Python<'_>) {
        drop(self.replace(py, Step::Over));
    }

    fn replace(&self, py: Python<'_>, next: Step<W>) -> Step<W> {
        self.step.with(py, |step| std::mem::replace(step, next))
    }

    /// Runs one step of the work. If the work has not suspended itself, the coroutine ends.
    #[inline]
    fn step(&self, py: Python<'_>, awaited: Option<Py<PyIterator>>, work: W) -> PyResult<Stepped> {
        let came = self.run(py, awaited, work);
        if !matches!(came, Ok(Stepped::Waits(_))) {
            self.end(py);
        }
        came
    }

    /// Runs the work until it returns a result or waits for a future.
    fn run(
        &self,
        py: Python<'_>,
        mut awaited: Option<Py<PyIterator>>,
        mut work: W,
    ) -> PyResult<Stepped> {
        loop {
            if let Some(future) = awaited
                && let Some(what) = future.bind(py).clone().next()
            {
                let what = what?.unbind();
                self.suspend(py, Some(future), work);
                return Ok(Stepped::Waits(what));
            }
            match work.run(py)? {
                Outcome::Return(value) => return Ok(Stepped::Returned(value)),
                Outcome::Exhausted => return Err(PyStopAsyncIteration::new_err(())),
                Outcome::Wait(future, rest) => {
                    awaited = Some(future.bind(py).try_iter()?.unbind());
                    work = rest;
                }
                Outcome::Yield(rest) => {
                    self.suspend(py, None, rest);
                    return Ok(Stepped::Waits(py.None()));
                }
            }
        }
    }
}

impl<W: Work> Coroutine for RustCoroutine<W> {
    #[inline]
    fn resume(&self, py: Python<'_>, _value: Option<&Bound<'_, PyAny>>) -> PyResult<Stepped> {
        let (awaited, work) = self.begin(py)?;
        self.step(py, awaited, work)
    }

    fn throw(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Stepped> {
        let error = match raised(args) {
            // A coroutine that is not suspended ignores an argument that is no exception, and raises only the
            // TypeError.
            Err(error) if self.state(py) != CoroutineState::Suspended => return Err(error),
            Ok(error) | Err(error) => error,
        };
        let (awaited, work) = self.begin(py)?;
        let Some(awaited) = awaited else {
            self.end(py);
            return Err(error);
        };
        match awaited.bind(py).call_method1(intern!(py, "throw"), args) {
            // The future has caught the exception and the coroutine waits for it again.
            Ok(what) => {
                self.suspend(py, Some(awaited), work);
                Ok(Stepped::Waits(what.unbind()))
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

/// Warns if a coroutine is dropped that was never awaited, because its work was not done. CPython does this for
/// coroutines of its own.
impl<W: Work> Drop for RustCoroutine<W> {
    fn drop(&mut self) {
        if !matches!(self.step.get_mut(), Step::New(_)) {
            return;
        }
        let text = format!("coroutine '{}' was never awaited", self.qualname);
        // At the end of the interpreter the thread cannot attach, and no warning is issued.
        Python::try_attach(|py| {
            warn_of_a_dying_object(&py.get_type::<PyRuntimeWarning>(), text);
        });
    }
}
