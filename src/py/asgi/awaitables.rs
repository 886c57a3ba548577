//! The awaitables that `receive()` and `send()` return. They are coroutines too, because frameworks make tasks of them.
//! Nothing happens before the first step, as with a coroutine.
//!
//! A `send` whose client has gone suspends once. Otherwise it would never wait, and a program that continues to send
//! would block the loop.

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeWarning, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use uringcore_limits::budget::Charge;

use super::file::{FileBody, FileRequest};
use super::open_files::{FileShare, SetFuture};
use super::request::{Asked, Request};
use super::response::Sent;
use crate::capi::awaited::{as_sent, raised, returned, used_up};
use crate::capi::cell::GilCell;
use crate::capi::coroutine;
use crate::capi::error::warn_of_a_dying_object;

/// An awaitable of `receive()` or `send()`.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct Answer {
    request: Py<Request>,
    step: GilCell<Step>,
    call: Call,
}

#[derive(Clone, Copy)]
enum Call {
    Receive,
    Send,
}

/// The next step.
enum Step {
    Receive,
    Send(Py<PyAny>),
    /// The rest of a body waits for room. True if nothing follows.
    SendRest(Bytes, bool, Charge),
    /// Opens a file and sends it.
    OpenFile(Box<FileRequest>),
    /// Sends the rest of a file.
    SendFile(Box<FileBody>),
    /// Waits for a future, and then takes the other step.
    Wait(Py<PyIterator>, Box<Step>),
    /// Done, but the loop gets a turn first, because a program that continues to send to a client that has gone would block it.
    GiveWay,
    Finish,
    Over,
}

impl Step {
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Send(message) => visit.call(message),
            Self::OpenFile(file) => file.traverse(visit),
            Self::SendFile(file) => file.traverse(visit),
            Self::Wait(waiting, then) => {
                visit.call(waiting)?;
                then.traverse(visit)
            }
            Self::Receive | Self::SendRest(..) | Self::GiveWay | Self::Finish | Self::Over => {
                Ok(())
            }
        }
    }

    /// True if the coroutine has begun, for a step that is kept between two calls.
    fn has_begun(&self) -> bool {
        match self {
            Self::Receive | Self::Send(_) | Self::Over => false,
            Self::SendRest(..)
            | Self::OpenFile(_)
            | Self::SendFile(_)
            | Self::Wait(..)
            | Self::GiveWay
            | Self::Finish => true,
        }
    }
}

/// The result of a step.
enum Came {
    Value(Py<PyAny>),
    Nothing,
    /// A future for the task, or None for the next turn.
    Yield(Py<PyAny>),
}

impl Answer {
    /// True after the first step, and `None` at the end.
    fn has_begun(&self, py: Python<'_>) -> Option<bool> {
        self.step.with(py, |step| match step {
            Step::Over => None,
            step => Some(step.has_begun()),
        })
    }
}

#[pymethods]
impl Answer {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        match Self::advance(slf)? {
            Came::Yield(what) => Ok(Some(what)),
            Came::Nothing => Ok(None),
            Came::Value(value) => Err(returned(slf.py(), value)),
        }
    }

    /// The method of a coroutine. The value is not used.
    fn send(slf: &Bound<'_, Self>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        as_sent(slf.py(), Self::__next__(slf)?)
    }

    /// Raises inside, as a cancelled task does.
    #[pyo3(signature = (*args))]
    fn throw(slf: &Bound<'_, Self>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        match this.take(py) {
            Step::Wait(waiting, then) => {
                let thrown = waiting.bind(py).call_method1(intern!(py, "throw"), args);
                match thrown {
                    // The future caught the exception and waits again.
                    Ok(what) => {
                        this.put(py, Step::Wait(waiting, then));
                        Ok(what.unbind())
                    }
                    Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                        this.put(py, *then);
                        Self::send(slf, &py.None().into_bound(py))
                    }
                    Err(error) => Err(error),
                }
            }
            _ => Err(raised(args)?),
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
    fn __name__(&self) -> &'static str {
        match self.call {
            Call::Receive => "receive",
            Call::Send => "send",
        }
    }

    #[getter]
    fn __qualname__(&self) -> &'static str {
        match self.call {
            Call::Receive => "Request.receive",
            Call::Send => "Request.send",
        }
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

    /// The future for which it waits, if there is one.
    #[getter]
    fn cr_await(&self, py: Python<'_>) -> Option<Py<PyIterator>> {
        self.step.with(py, |step| match step {
            Step::Wait(waiting, _) => Some(waiting.clone_ref(py)),
            _ => None,
        })
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

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.request)?;
        self.step
            .traverse(|step| step.traverse(&visit))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.take(py));
    }
}

/// Warns if the awaitable was never awaited, as a coroutine of Python does. Its work was not done.
impl Drop for Answer {
    fn drop(&mut self) {
        if !matches!(self.step.get_mut(), Step::Receive | Step::Send(_)) {
            return;
        }
        let text = format!("coroutine '{}' was never awaited", self.__qualname__());
        // An interpreter at its end is not attached.
        Python::try_attach(|py| {
            warn_of_a_dying_object(&py.get_type::<PyRuntimeWarning>(), text);
        });
    }
}

impl Answer {
    pub fn to_receive(request: &Bound<'_, Request>) -> PyResult<Py<Self>> {
        Self::new(request, Step::Receive, Call::Receive)
    }

    pub fn to_send(request: &Bound<'_, Request>, message: Py<PyAny>) -> PyResult<Py<Self>> {
        Self::new(request, Step::Send(message), Call::Send)
    }

    fn new(request: &Bound<'_, Request>, step: Step, call: Call) -> PyResult<Py<Self>> {
        let answer = Self {
            request: request.clone().unbind(),
            step: GilCell::new(step),
            call,
        };
        Py::new(request.py(), answer)
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
    fn advance(slf: &Bound<'_, Self>) -> PyResult<Came> {
        let (py, this) = (slf.py(), slf.get());
        let request = this.request.bind(py);
        loop {
            match this.take(py) {
                Step::Receive => match Request::next_message(request)? {
                    Asked::Answer(message) => return Ok(Came::Value(message)),
                    Asked::Wait => this.wait(py, false, Step::Receive)?,
                },
                Step::Send(message) => {
                    let sent = Request::take_message(request, message.bind(py))?;
                    this.after(py, sent)?;
                }
                Step::SendRest(rest, last, charge) => {
                    drop(charge);
                    let sent = Request::send_rest(request, rest, last)?;
                    this.after(py, sent)?;
                }
                Step::OpenFile(file) => {
                    let sent = Request::open_file(request, file)?;
                    this.after(py, sent)?;
                }
                Step::SendFile(file) => {
                    let sent = Request::send_file(request, file)?;
                    this.after(py, sent)?;
                }
                Step::Wait(waiting, then) => match waiting.bind(py).clone().next() {
                    Some(what) => {
                        let what = what?.unbind();
                        this.put(py, Step::Wait(waiting, then));
                        return Ok(Came::Yield(what));
                    }
                    None => this.put(py, *then),
                },
                Step::GiveWay => {
                    this.put(py, Step::Finish);
                    return Ok(Came::Yield(py.None()));
                }
                Step::Finish => return Ok(Came::Nothing),
                Step::Over => return Err(used_up()),
            }
        }
    }

    fn after(&self, py: Python<'_>, sent: Sent) -> PyResult<()> {
        match sent {
            Sent::Taken => self.put(py, Step::Finish),
            Sent::ToNobody => self.put(py, Step::GiveWay),
            Sent::Full => self.wait(py, true, Step::Finish)?,
            Sent::FullBefore(rest, last) => {
                let charge = self.request.get().charge_unsent(py, rest.len());
                self.wait(py, true, Step::SendRest(rest, last, charge))?;
            }
            Sent::FileFull(file) => self.wait(py, true, Step::SendFile(file))?,
            Sent::FileUnopened(file) => {
                let future = self.wait_for_file(py, file.share(), file.retry_delay())?;
                self.wait_for(py, &future, Step::OpenFile(file))?;
            }
            Sent::FileUnopenable(file) => {
                let future = self.wait_for_file(py, file.share(), file.retry_delay())?;
                self.wait_for(py, &future, Step::SendFile(file))?;
            }
            Sent::FileUnread(mut file) => {
                let service = self.request.get().service.get();
                let future = file.read_in_thread(service.event_loop.bind(py))?;
                self.wait_for(py, &future, Step::SendFile(file))?;
            }
        }
        Ok(())
    }

    /// A future that is set when a file may be opened, or after `delay` seconds for another try; also when the client has
    /// gone.
    fn wait_for_file<'py>(
        &self,
        py: Python<'py>,
        share: &FileShare,
        delay: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = self.request.get();
        let future = request.waiter(py, true)?;
        let event_loop = &request.service.get().event_loop;
        match delay {
            None => share.wait(py, event_loop, &future),
            Some(delay) => {
                let set = SetFuture {
                    future: future.clone().unbind(),
                };
                let args = (delay, Py::new(py, set)?);
                event_loop
                    .bind(py)
                    .call_method1(intern!(py, "call_later"), args)?;
            }
        }
        Ok(future)
    }

    fn wait(&self, py: Python<'_>, writes: bool, then: Step) -> PyResult<()> {
        let future = self.request.get().waiter(py, writes)?;
        self.wait_for(py, &future, then)
    }

    fn wait_for(&self, py: Python<'_>, future: &Bound<'_, PyAny>, then: Step) -> PyResult<()> {
        let waiting = future.try_iter()?.unbind();
        self.put(py, Step::Wait(waiting, Box::new(then)));
        Ok(())
    }
}
