//! Wakes the asyncio futures for which coroutines written in Rust wait.

use pyo3::intern;
use pyo3::prelude::*;

/// The futures of calls that wait for one event, the oldest first. In most cases there is one, which takes no
/// allocation.
#[derive(Default)]
pub struct Waiters {
    /// `None` only if `others` is empty.
    first: Option<Py<PyAny>>,
    others: Vec<Py<PyAny>>,
}

impl Waiters {
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn push(&mut self, future: Py<PyAny>) {
        match &self.first {
            None => self.first = Some(future),
            Some(_) => self.others.push(future),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.first.iter().chain(&self.others)
    }

    /// Removes and returns all futures.
    pub fn take(&mut self) -> impl Iterator<Item = Py<PyAny>> + use<> {
        let all = std::mem::take(self);
        all.first.into_iter().chain(all.others)
    }

    /// Returns the futures that are not done. Runs Python code.
    pub fn without_done(mut self, py: Python<'_>) -> PyResult<Self> {
        let mut live = Self::default();
        for future in self.take() {
            if !is_done(future.bind(py))? {
                live.push(future);
            }
        }
        Ok(live)
    }
}

impl FromIterator<Py<PyAny>> for Waiters {
    fn from_iter<I: IntoIterator<Item = Py<PyAny>>>(futures: I) -> Self {
        let mut waiters = Self::default();
        futures.into_iter().for_each(|future| waiters.push(future));
        waiters
    }
}

/// Sets the result None on all futures in `waiting` that are not done. Returns the first error, such as that of a
/// closed loop.
pub fn wake(py: Python<'_>, waiting: impl IntoIterator<Item = Py<PyAny>>) -> PyResult<()> {
    let mut outcome = Ok(());
    for future in waiting {
        let future = future.bind(py);
        let set = is_done(future).and_then(|is_done| match is_done {
            true => Ok(()),
            false => future
                .call_method1(intern!(py, "set_result"), (py.None(),))
                .map(drop),
        });
        outcome = outcome.and(set);
    }
    outcome
}

fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = future.py();
    future.call_method0(intern!(py, "done"))?.is_truthy()
}
