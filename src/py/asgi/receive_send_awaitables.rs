//! The awaitables that `receive()` and `send()` return. They are coroutines too, because frameworks make tasks of
//! them.
//!
//! A `send` to a client that has gone suspends once. Otherwise it would never wait, and a program that continues to
//! send would block the loop.

use bytes::Bytes;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use uringcore_limits::memory_budget::Charge;

use super::file_response::{FileBody, FileRequest};
use super::open_file_permits::{FileShare, SetFuture};
use super::request::{Answer, Request};
use super::response::Sent;
use crate::capi::coroutine_methods::coroutine_methods;
use crate::capi::rust_coroutine::{Outcome, RustCoroutine, Work};

/// The awaitable of a call of `receive()` or `send()`.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct MessageAwaitable(RustCoroutine<Call>);

coroutine_methods!(MessageAwaitable);

impl MessageAwaitable {
    pub fn to_receive(request: &Bound<'_, Request>) -> PyResult<Py<Self>> {
        Self::new(request, "Request.receive", Step::Receive)
    }

    pub fn to_send(request: &Bound<'_, Request>, message: Py<PyAny>) -> PyResult<Py<Self>> {
        Self::new(request, "Request.send", Step::Send(message))
    }

    fn new(request: &Bound<'_, Request>, qualname: &'static str, step: Step) -> PyResult<Py<Self>> {
        let call = Call {
            request: request.clone().unbind(),
            step,
        };
        Py::new(request.py(), Self(RustCoroutine::new(qualname, call)))
    }
}

/// The remaining work of a call of `receive()` or `send()`.
struct Call {
    request: Py<Request>,
    step: Step,
}

/// The next step of the work.
enum Step {
    Receive,
    Send(Py<PyAny>),
    /// Sends a message that waits for space.
    SendAgain(Py<PyAny>, Charge),
    /// Sends the rest of a body that waits for space. True if it is the last content of the response.
    SendRest(Bytes, bool, Charge),
    /// Opens a file and sends it.
    OpenFile(Box<FileRequest>),
    /// Sends the rest of a file.
    SendFile(Box<FileBody>),
    Finish,
}

impl Work for Call {
    #[inline]
    fn run(self, py: Python<'_>) -> PyResult<Outcome<Self>> {
        let Self { request, step } = self;
        let bound = request.bind(py);
        let sent = match step {
            Step::Receive => {
                return match Request::next_message(bound)? {
                    Answer::Now(message) => Ok(Outcome::Return(message)),
                    Answer::Wait => Self::wait(request, py, false, Step::Receive),
                };
            }
            Step::Send(message) => match Request::take_message(bound, message.bind(py))? {
                Sent::NotTaken(bytes) => {
                    let charge = request.get().charge_unsent(py, bytes);
                    return Self::wait(request, py, true, Step::SendAgain(message, charge));
                }
                sent => sent,
            },
            Step::SendAgain(message, charge) => {
                drop(charge);
                let step = Step::Send(message);
                return Self { request, step }.run(py);
            }
            Step::SendRest(rest, last, charge) => {
                drop(charge);
                Request::send_rest(bound, rest, last)?
            }
            Step::OpenFile(file) => Request::open_file(bound, file)?,
            Step::SendFile(file) => Request::send_file(bound, file)?,
            Step::Finish => return Ok(Outcome::Return(py.None())),
        };
        Self::after(request, py, sent)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.request)?;
        match &self.step {
            Step::Send(message) | Step::SendAgain(message, _) => visit.call(message),
            Step::OpenFile(file) => file.traverse(visit),
            Step::SendFile(file) => file.traverse(visit),
            Step::Receive | Step::SendRest(..) | Step::Finish => Ok(()),
        }
    }
}

impl Call {
    fn after(request: Py<Request>, py: Python<'_>, sent: Sent) -> PyResult<Outcome<Self>> {
        let (future, step) = match sent {
            Sent::Taken => return Ok(Outcome::Return(py.None())),
            // The client has gone. The application is suspended for one loop iteration, because an application that
            // continues to send would otherwise block the loop.
            Sent::ToNobody => {
                let step = Step::Finish;
                return Ok(Outcome::Yield(Self { request, step }));
            }
            // Only `Step::Send` gets this outcome, and handles it.
            Sent::NotTaken(_) => return Self::wait(request, py, true, Step::Finish),
            Sent::Full => return Self::wait(request, py, true, Step::Finish),
            Sent::FullBefore(rest, last) => {
                let charge = request.get().charge_unsent(py, rest.len());
                let step = Step::SendRest(rest, last, charge);
                return Self::wait(request, py, true, step);
            }
            Sent::RestLater(rest, last) => {
                let charge = request.get().charge_unsent(py, rest.len());
                let step = Step::SendRest(rest, last, charge);
                return Ok(Outcome::Yield(Self { request, step }));
            }
            Sent::FileLater(file) => {
                let step = Step::SendFile(file);
                return Ok(Outcome::Yield(Self { request, step }));
            }
            Sent::FileFull(file) => return Self::wait(request, py, true, Step::SendFile(file)),
            Sent::FileUnopened(file) => {
                let future = wait_for_file(&request, py, file.share(), file.retry_delay())?;
                (future, Step::OpenFile(file))
            }
            Sent::FileUnopenable(file) => {
                let future = wait_for_file(&request, py, file.share(), file.retry_delay())?;
                (future, Step::SendFile(file))
            }
            Sent::FileUnread(mut file) => {
                let service = request.get().service.get();
                let future = file.read_in_thread(service.event_loop.bind(py))?;
                (future, Step::SendFile(file))
            }
        };
        Ok(Outcome::Wait(future.unbind(), Self { request, step }))
    }

    /// Waits until the client has sent more, or with `writes` until it has taken more. Then executes `step`.
    fn wait(
        request: Py<Request>,
        py: Python<'_>,
        writes: bool,
        step: Step,
    ) -> PyResult<Outcome<Self>> {
        let future = request.get().waiter(py, writes)?.unbind();
        Ok(Outcome::Wait(future, Self { request, step }))
    }
}

/// Makes a future that is set when a file may be opened, or after `delay` seconds for another attempt, or when the
/// client has gone.
fn wait_for_file<'py>(
    request: &Py<Request>,
    py: Python<'py>,
    share: &FileShare,
    delay: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let request = request.get();
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
