//! The awaitables that methods of streams and connections return. They are coroutines too.
//!
//! Nothing happens before the first step. If the work can be done then, it needs no turn of the loop. If it has to wait,
//! it has done nothing yet, and tries again when it is woken. So a cancellation, at any moment, takes nothing from the
//! stream and leaves nothing behind.

use pyo3::exceptions::{PyRuntimeWarning, PyStopAsyncIteration, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyIterator, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::read_on_demand::Key;

use super::connection::{ConnectionBase, Opening};
use super::reading::Asked;
use super::sending::Unsent;
use super::stream::Stream;
use super::stream_manager::StreamManager;
use crate::capi::awaited::{as_sent, raised, returned, used_up};
use crate::capi::cell::GilCell;
use crate::capi::coroutine;
use crate::capi::error::warn_of_a_dying_object;

/// An awaitable of a stream or a connection.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct Waiting {
    /// For the names of tasks.
    name: &'static str,
    step: GilCell<Step>,
}

enum Step {
    Do(Job),
    /// The job waits for a future and then tries again.
    Wait(Py<PyIterator>, Job),
    Over,
}

/// The work of an awaitable.
pub enum Job {
    Read(Py<Stream>, Asked),
    ReadInto(Py<Stream>, Py<PyAny>),
    Next(Py<Stream>),
    Send(Py<Stream>, Unsent),
    Finish(Py<Stream>),
    WaitFinished(Py<Stream>),
    /// The end of the stream's `async with`, and true if an exception has left it.
    Leave(Py<Stream>, bool),
    Itself(Py<Stream>),
    Open(Py<ConnectionBase>, bool),
    Enter(Py<Opening>),
    Accept(Py<ConnectionBase>, bool),
    NextStream(Py<ConnectionBase>, bool),
    Datagram(Py<ConnectionBase>),
    Datagrams(Py<ConnectionBase>),
    NextDatagram(Py<ConnectionBase>),
    WaitAllFinished(Py<ConnectionBase>),
}

/// The result of a step.
pub enum Polled {
    Ready(Py<PyAny>),
    /// The end of an asynchronous iterator.
    Exhausted,
    Wait(Key),
}

enum Came {
    Value(Py<PyAny>),
    /// The future for the task.
    Yield(Py<PyAny>),
}

impl Waiting {
    /// True after the first step, and `None` at the end.
    fn has_begun(&self, py: Python<'_>) -> Option<bool> {
        self.step.with(py, |step| match step {
            Step::Do(_) => Some(false),
            Step::Wait(..) => Some(true),
            Step::Over => None,
        })
    }
}

#[pymethods]
impl Waiting {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.advance(py)? {
            Came::Yield(what) => Ok(Some(what)),
            Came::Value(value) if value.is_none(py) => Ok(None),
            Came::Value(value) => Err(returned(py, value)),
        }
    }

    /// The method of a coroutine. The value is not used.
    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        as_sent(py, self.__next__(py)?)
    }

    /// Raises inside, as a cancelled task does.
    #[pyo3(signature = (*args))]
    fn throw(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let Step::Wait(waiting, job) = self.take(py) else {
            return Err(raised(args)?);
        };
        match waiting.bind(py).call_method1(intern!(py, "throw"), args) {
            // The future caught the exception and waits again.
            Ok(what) => {
                self.put(py, Step::Wait(waiting, job));
                Ok(what.unbind())
            }
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                self.put(py, Step::Do(job));
                self.send(py, &py.None().into_bound(py))
            }
            Err(error) => Err(error),
        }
    }

    fn close(&self, py: Python<'_>) {
        drop(self.take(py));
    }

    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        coroutine::class(py)
    }

    #[getter]
    fn cr_frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        coroutine::frame(py, self.has_begun(py))
    }

    #[getter]
    fn cr_state(&self, py: Python<'_>) -> &'static str {
        coroutine::state(self.has_begun(py))
    }

    #[getter]
    fn cr_suspended(&self, py: Python<'_>) -> bool {
        self.has_begun(py) == Some(true)
    }

    /// Always False, because no code can read it during a step.
    #[getter]
    fn cr_running(&self) -> bool {
        false
    }

    /// Always None, because there is no Python code.
    #[getter]
    fn cr_code(&self) -> Option<Py<PyAny>> {
        None
    }

    /// Always None, because the origin is not recorded.
    #[getter]
    fn cr_origin(&self) -> Option<Py<PyAny>> {
        None
    }

    /// The future for which it waits.
    #[getter]
    fn cr_await(&self, py: Python<'_>) -> Option<Py<PyIterator>> {
        self.step.with(py, |step| match step {
            Step::Wait(waiting, _) => Some(waiting.clone_ref(py)),
            _ => None,
        })
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        self.name
    }

    #[getter]
    fn __qualname__(&self) -> &'static str {
        self.name
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.step
            .traverse(|step| match step {
                Step::Do(job) => job.traverse(&visit),
                Step::Wait(waiting, job) => {
                    visit.call(waiting)?;
                    job.traverse(&visit)
                }
                Step::Over => Ok(()),
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.take(py));
    }
}

/// Warns of an awaitable without a step, because an `await` was forgotten.
impl Drop for Waiting {
    fn drop(&mut self) {
        if !matches!(self.step.get_mut(), Step::Do(_)) {
            return;
        }
        let text = format!("coroutine '{}' was never awaited", self.name);
        // An interpreter at its end is not attached.
        Python::try_attach(|py| {
            warn_of_a_dying_object(&py.get_type::<PyRuntimeWarning>(), text);
        });
    }
}

impl Waiting {
    pub fn on(job: Job) -> Self {
        Self {
            name: job.name(),
            step: GilCell::new(Step::Do(job)),
        }
    }

    fn take(&self, py: Python<'_>) -> Step {
        self.step
            .with(py, |step| std::mem::replace(step, Step::Over))
    }

    fn put(&self, py: Python<'_>, next: Step) {
        let old = self.step.with(py, |step| std::mem::replace(step, next));
        drop(old);
    }

    /// Works until there is a value, or a future to wait for.
    fn advance(&self, py: Python<'_>) -> PyResult<Came> {
        loop {
            match self.take(py) {
                Step::Do(mut job) => match job.poll(py)? {
                    Polled::Ready(value) => return Ok(Came::Value(value)),
                    Polled::Exhausted => return Err(PyStopAsyncIteration::new_err(())),
                    Polled::Wait(key) => {
                        let future = job.manager(py).get().waiter(py, key)?;
                        self.put(py, Step::Wait(future.try_iter()?.unbind(), job));
                    }
                },
                Step::Wait(waiting, job) => match waiting.bind(py).clone().next() {
                    Some(what) => {
                        let what = what?.unbind();
                        self.put(py, Step::Wait(waiting, job));
                        return Ok(Came::Yield(what));
                    }
                    None => self.put(py, Step::Do(job)),
                },
                Step::Over => return Err(used_up()),
            }
        }
    }
}

impl Job {
    /// The name of the method that made it.
    fn name(&self) -> &'static str {
        match self {
            Self::Read(..) => "read",
            Self::ReadInto(..) => "readinto",
            Self::Next(..) | Self::NextStream(..) | Self::NextDatagram(..) => "__anext__",
            Self::Send(..) => "send",
            Self::Finish(..) => "finish",
            Self::WaitFinished(..) => "wait_finished",
            Self::Leave(..) => "__aexit__",
            Self::Itself(..) | Self::Enter(..) => "__aenter__",
            Self::Open(..) => "open_stream",
            Self::Accept(..) => "accept_stream",
            Self::Datagram(..) => "receive_datagram",
            Self::Datagrams(..) => "receive_datagrams",
            Self::WaitAllFinished(..) => "wait_delivered",
        }
    }

    fn poll(&mut self, py: Python<'_>) -> PyResult<Polled> {
        match self {
            Self::Read(stream, asked) => stream.get().read(py, asked),
            Self::ReadInto(stream, target) => stream.get().read_into(py, target.bind(py)),
            Self::Next(stream) => stream.get().next_piece(py),
            Self::Send(stream, unsent) => stream.get().send(py, unsent),
            Self::Finish(stream) => stream.get().finish(py),
            Self::WaitFinished(stream) => stream.get().wait_finished(py),
            Self::Leave(stream, failed) => stream.get().leave(py, *failed),
            Self::Itself(stream) => Ok(Polled::Ready(stream.clone_ref(py).into_any())),
            Self::Open(connection, unidirectional) => {
                ConnectionBase::open(connection.bind(py), *unidirectional)
            }
            Self::Enter(opening) => opening.get().enter(py),
            Self::Accept(connection, unidirectional) => {
                ConnectionBase::accept(connection.bind(py), *unidirectional, false)
            }
            Self::NextStream(connection, unidirectional) => {
                ConnectionBase::accept(connection.bind(py), *unidirectional, true)
            }
            Self::Datagram(connection) => connection.get().datagram(py, false),
            Self::Datagrams(connection) => connection.get().datagrams_waiting(py),
            Self::NextDatagram(connection) => connection.get().datagram(py, true),
            Self::WaitAllFinished(connection) => connection.get().wait_all_finished(py),
        }
    }

    fn manager(&self, py: Python<'_>) -> Py<StreamManager> {
        match self {
            Self::Read(stream, _)
            | Self::ReadInto(stream, _)
            | Self::Next(stream)
            | Self::Send(stream, _)
            | Self::Finish(stream)
            | Self::WaitFinished(stream)
            | Self::Leave(stream, _)
            | Self::Itself(stream) => stream.get().manager.clone_ref(py),
            Self::Enter(opening) => opening.get().connection.get().manager.clone_ref(py),
            Self::Open(connection, _)
            | Self::Accept(connection, _)
            | Self::NextStream(connection, _)
            | Self::Datagram(connection)
            | Self::Datagrams(connection)
            | Self::NextDatagram(connection)
            | Self::WaitAllFinished(connection) => connection.get().manager.clone_ref(py),
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::ReadInto(stream, target) => {
                visit.call(stream)?;
                visit.call(target)
            }
            Self::Send(stream, unsent) => {
                visit.call(stream)?;
                unsent.traverse(visit)
            }
            Self::Read(stream, _)
            | Self::Next(stream)
            | Self::Finish(stream)
            | Self::WaitFinished(stream)
            | Self::Leave(stream, _)
            | Self::Itself(stream) => visit.call(stream),
            Self::Enter(opening) => visit.call(opening),
            Self::Open(connection, _)
            | Self::Accept(connection, _)
            | Self::NextStream(connection, _)
            | Self::Datagram(connection)
            | Self::Datagrams(connection)
            | Self::NextDatagram(connection)
            | Self::WaitAllFinished(connection) => visit.call(connection),
        }
    }
}
