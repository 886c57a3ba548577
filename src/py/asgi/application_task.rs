//! The run of the application for a request: the coroutine around the application, and its task.
//!
//! There is always a task, because anyio and `asyncio.timeout` need the current one. From CPython 3.12 on the task
//! starts eagerly, so an application that waits for nothing has returned when the task is made.

use std::borrow::Cow;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
#[cfg(Py_3_11)]
use pyo3::types::PyDict;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit, ffi, intern};
use uringcore_http::ws::close_codes;

use super::asgi_service::{AsgiService, ReportedFault};
use super::http_stream::Ending;
use super::request::Request;
use super::websocket::ClientDisconnected;
use crate::capi::coroutine_methods::{
    Coroutine, CoroutineState, Stepped, coroutine_methods, executing, raised, stand_in_frame,
    used_up,
};
use crate::capi::gil_cell::GilCell;
#[cfg(Py_3_12)]
use crate::event_loop::task_and_future_creation;

/// The coroutine of a request's task: `await application(scope, receive, send)`, and then the end of the exchange.
///
/// Its `cr_frame` and similar attributes are those of the application's coroutine, for programs that print the
/// position of a task.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct ApplicationCoroutine(Run);

coroutine_methods!(ApplicationCoroutine);

/// One run of the application.
struct Run {
    request: Py<Request>,
    state: GilCell<TaskState>,
    /// True if a proxy has forwarded the request and its fields name the client.
    is_forwarded: bool,
    /// True if the task was cancelled. Otherwise a CancelledError that the application raises is a failure like any
    /// other.
    is_cancelled: AtomicBool,
}

enum TaskState {
    NotBegun,
    /// The iterator of the awaitable that the application has returned: in most cases its coroutine.
    Running(Py<PyAny>),
    Over,
}

impl Coroutine for Run {
    fn resume(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<Stepped> {
        match value {
            Some(value) => self.step(py, value),
            None => self.step(py, py.None().bind(py)),
        }
    }

    fn throw(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Stepped> {
        let state = self.state(py);
        let error = match raised(args) {
            // A coroutine that has not started ignores an argument that is no exception, and raises only the TypeError.
            Err(error) if state == CoroutineState::Created => return Err(error),
            Ok(error) | Err(error) => error,
        };
        match state {
            CoroutineState::Closed => return Err(used_up()),
            CoroutineState::Running => return Err(executing()),
            CoroutineState::Created | CoroutineState::Suspended => {}
        }
        if is_cancellation(py, &error) {
            self.is_cancelled.store(true, Ordering::Relaxed);
        }
        let came = match self.running(py) {
            Some(running) => {
                let thrown = running.bind(py).call_method1(intern!(py, "throw"), args);
                thrown.map(|what| Stepped::Waits(what.unbind()))
            }
            // The exception came before the first step, so the application is never called.
            None => Err(error),
        };
        let came = match came {
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                let value = error.value(py).getattr(intern!(py, "value"))?;
                Ok(Stepped::Returned(value.unbind()))
            }
            came => came,
        };
        self.finish_step(py, came)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.state(py) == CoroutineState::Running {
            return Err(executing());
        }
        let old = self
            .state
            .with(py, |state| std::mem::replace(state, TaskState::Over));
        let closed = match old {
            TaskState::Running(running) => running
                .bind(py)
                .call_method0(intern!(py, "close"))
                .map(drop),
            TaskState::NotBegun => Ok(()),
            TaskState::Over => return Ok(()),
        };
        let request = self.request.get();
        request.end(py, Ending::Cancelled);
        closed.and(request.release(py))
    }

    fn state(&self, py: Python<'_>) -> CoroutineState {
        let state = self.state.with(py, |state| match state {
            TaskState::NotBegun => CoroutineState::Created,
            TaskState::Running(_) => CoroutineState::Suspended,
            TaskState::Over => CoroutineState::Closed,
        });
        let is_running = || {
            self.inner(py, intern!(py, "cr_running"))?
                .is_truthy(py)
                .ok()
        };
        match state {
            CoroutineState::Suspended if is_running() == Some(true) => CoroutineState::Running,
            state => state,
        }
    }

    fn qualname(&self, py: Python<'_>) -> Cow<'static, str> {
        self.inner_name(py, intern!(py, "__qualname__"))
    }

    fn name(&self, py: Python<'_>) -> Cow<'static, str> {
        self.inner_name(py, intern!(py, "__name__"))
    }

    fn awaited(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.inner(py, intern!(py, "cr_await"))
    }

    fn frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.running(py) {
            Some(_) => Ok(self.inner(py, intern!(py, "cr_frame"))),
            None => stand_in_frame(py, self.state(py)),
        }
    }

    fn code(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.inner(py, intern!(py, "cr_code"))
    }

    fn origin(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.inner(py, intern!(py, "cr_origin"))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.request)?;
        self.state
            .traverse(|state| match state {
                TaskState::Running(running) => visit.call(running),
                TaskState::NotBegun | TaskState::Over => Ok(()),
            })
            .unwrap_or(Ok(()))
    }

    fn clear(&self, py: Python<'_>) {
        drop(
            self.state
                .with(py, |state| std::mem::replace(state, TaskState::Over)),
        );
    }
}

impl Run {
    fn running(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state.with(py, |state| match state {
            TaskState::Running(running) => Some(running.clone_ref(py)),
            TaskState::NotBegun | TaskState::Over => None,
        })
    }

    fn inner(&self, py: Python<'_>, name: &Bound<'_, pyo3::types::PyString>) -> Option<Py<PyAny>> {
        let running = self.running(py)?;
        running.bind(py).getattr(name).ok().map(Bound::unbind)
    }

    fn inner_name(
        &self,
        py: Python<'_>,
        attribute: &Bound<'_, pyo3::types::PyString>,
    ) -> Cow<'static, str> {
        let name = self.inner(py, attribute);
        match name.and_then(|name| name.extract::<String>(py).ok()) {
            Some(name) => Cow::Owned(name),
            // The application has no coroutine before and after its run.
            None => Cow::Borrowed("application"),
        }
    }

    fn step(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Stepped> {
        let state = self.state.with(py, |state| match state {
            TaskState::NotBegun => Ok(None),
            TaskState::Running(running) => Ok(Some(running.clone_ref(py))),
            TaskState::Over => Err(()),
        });
        let came = match state {
            Ok(Some(running)) => send(running.bind(py), value),
            Ok(None) if self.is_refused(py)? => Ok(Stepped::Returned(py.None())),
            Ok(None) => self
                .begin(py)
                .and_then(|running| send(running.bind(py), value)),
            Err(()) => return Err(used_up()),
        };
        self.finish_step(py, came)
    }

    /// Refuses a request instead of calling the application, if other requests of the same loop iteration have used up
    /// the memory of this client.
    fn is_refused(&self, py: Python<'_>) -> PyResult<bool> {
        let request = self.request.get();
        let is_short =
            request.with_stream(py, |stream| stream.is_short_of_memory(py)) == Some(true);
        if is_short {
            request.end(py, Ending::NotProcessed);
            request.disconnect(py)?;
        }
        Ok(is_short)
    }

    /// Calls the application.
    fn begin(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let request = self.request.bind(py);
        let receive = request.getattr(intern!(py, "receive"))?;
        let sending = request.getattr(intern!(py, "send"))?;
        let service = request.get().service.bind(py).get();
        let application = match self.is_forwarded {
            true => service.application.bind(py),
            false => service.direct.bind(py),
        };
        let awaitable = application.call1((&request.get().scope, receive, sending))?;
        // SAFETY: this thread is attached and the object is alive. Only its type is read.
        let is_coroutine = unsafe { ffi::Py_TYPE(awaitable.as_ptr()) == &raw mut ffi::PyCoro_Type };
        let running = match is_coroutine {
            true => awaitable.unbind(),
            false => awaitable.call_method0(intern!(py, "__await__"))?.unbind(),
        };
        let kept = running.clone_ref(py);
        let old = self.state.with(py, |state| {
            std::mem::replace(state, TaskState::Running(kept))
        });
        drop(old);
        Ok(running)
    }

    /// Converts the result of a step for the task. If the application has returned, that ends the exchange, and the
    /// task returns None.
    fn finish_step(&self, py: Python<'_>, came: PyResult<Stepped>) -> PyResult<Stepped> {
        match came {
            Ok(Stepped::Waits(what)) => return Ok(Stepped::Waits(what)),
            // The application has made a step inside its own step. That step fails, and the outer one continues.
            Err(error) if self.state(py) == CoroutineState::Running => return Err(error),
            _ => {}
        }
        let old = self
            .state
            .with(py, |state| std::mem::replace(state, TaskState::Over));
        drop(old);
        let request = self.request.bind(py);
        let ended = match came {
            Ok(Stepped::Returned(value)) => Request::returned(request, value.bind(py)),
            Err(error)
                if self.is_cancelled.load(Ordering::Relaxed) && is_cancellation(py, &error) =>
            {
                // The server's time for a graceful stop has passed. The client gets an error code, and the task ends.
                if !request.get().was_abandoned(py) {
                    let reported = ReportedFault::Application(Some(error.clone_ref(py)));
                    let service = request.get().service.get();
                    service.report_fault(py, reported, "Exception in ASGI application\n");
                }
                request.get().end(py, Ending::Cancelled);
                Err(error)
            }
            Err(error) => Request::raised(request, error),
            Ok(Stepped::Waits(_)) => Ok(()),
        };
        request.get().release(py)?;
        ended.map(|()| Stepped::Returned(py.None()))
    }
}

/// Makes a task. It starts eagerly, if CPython supports that and the loop has no task factory.
fn new_task<'py>(
    service: &AsgiService,
    coroutine: &Bound<'py, PyAny>,
    context: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = coroutine.py();
    let event_loop = service.event_loop.bind(py);
    #[cfg(Py_3_12)]
    if !task_and_future_creation::has_task_factory(event_loop)? {
        return task_and_future_creation::new_eager_task(
            coroutine,
            service.task_keywords.bind(py),
            context,
        );
    }
    let create_task = event_loop.getattr(intern!(py, "create_task"))?;
    match context {
        None => create_task.call1((coroutine,)),
        #[cfg(Py_3_11)]
        Some(context) => {
            let kwargs = PyDict::new(py);
            kwargs.set_item(intern!(py, "context"), context)?;
            create_task.call((coroutine,), Some(&kwargs))
        }
        // A task copies the context in which it is made, so it is made inside an empty one.
        #[cfg(not(Py_3_11))]
        Some(context) => context.call_method1(intern!(py, "run"), (create_task, coroutine)),
    }
}

/// Makes one step of a coroutine or iterator.
fn send(running: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Stepped> {
    let py = running.py();
    let mut result = null_mut();
    // SAFETY: this thread is attached, and both objects are alive for the call, which writes a new reference, or null
    // with an exception set.
    let (outcome, result) = unsafe {
        let outcome = ffi::PyIter_Send(running.as_ptr(), value.as_ptr(), &raw mut result);
        (outcome, Bound::from_owned_ptr_or_opt(py, result))
    };
    match (outcome, result) {
        (ffi::PySendResult::PYGEN_NEXT, Some(what)) => Ok(Stepped::Waits(what.unbind())),
        (ffi::PySendResult::PYGEN_RETURN, Some(value)) => Ok(Stepped::Returned(value.unbind())),
        _ => Err(PyErr::fetch(py)),
    }
}

fn is_cancellation(py: Python<'_>, error: &PyErr) -> bool {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        py.import("asyncio")?
            .getattr("CancelledError")
            .map(Bound::unbind)
    });
    class.is_ok_and(|class| error.matches(py, class.bind(py)).unwrap_or(false))
}

impl Request {
    /// Runs the application in a new task.
    pub fn spawn(slf: &Bound<'_, Self>, is_forwarded: bool) -> PyResult<()> {
        let py = slf.py();
        let service = slf.get().service.bind(py).get();
        let run = Run {
            request: slf.clone().unbind(),
            state: GilCell::new(TaskState::NotBegun),
            is_forwarded,
            is_cancelled: AtomicBool::new(false),
        };
        let coroutine = Bound::new(py, ApplicationCoroutine(run))?.into_any();
        let context = match service.fresh_context {
            true => Some(
                py.import(intern!(py, "contextvars"))?
                    .call_method0(intern!(py, "Context"))?,
            ),
            false => None,
        };
        let task = new_task(service, &coroutine, context.as_ref())?;
        let is_open = slf.get().state.with(py, |state| {
            let is_open = state.stream.is_some();
            if is_open {
                state.task = Some(task.clone().unbind());
            }
            is_open
        });
        if is_open {
            service.tasks.bind(py).add(task)?;
        }
        Ok(())
    }

    /// Cancels the application, unless it has completed its response and only continues to work.
    pub fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let task = self.state.with(py, |state| match &state.task {
            Some(task) if !state.was_answered => Some(task.clone_ref(py)),
            _ => None,
        });
        match task {
            Some(task) => task.bind(py).call_method0(intern!(py, "cancel")).map(drop),
            None => Ok(()),
        }
    }

    fn returned(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if value.is_none() && this.close_socket(py, close_codes::NORMAL, "") {
            // The application has returned without closing its WebSocket, which was closed with the code 1000.
            return this.wake_all(py);
        }
        let (disconnected, is_complete, is_begun) = this.state.with(py, |state| {
            let response = &state.response;
            (
                state.disconnected,
                response.is_complete(),
                response.is_started(),
            )
        });
        let complaint = if !value.is_none() {
            format!("ASGI callable should return None, but returned '{value}'.")
        } else if disconnected || is_complete {
            return Ok(());
        } else {
            let what = match (is_begun, this.is_socket()) {
                (true, _) => "completing response",
                (false, false) => "starting response",
                (false, true) => "completing handshake",
            };
            format!("ASGI callable returned without {what}.")
        };
        this.service
            .get()
            .report_fault(py, ReportedFault::Application(None), &complaint);
        Self::fail(slf)
    }

    fn raised(slf: &Bound<'_, Self>, error: PyErr) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if this.is_socket_over(py) && error.is_instance_of::<ClientDisconnected>(py) {
            // The application has raised ClientDisconnected because its own client has gone. If the client were still
            // there, the error would be about another WebSocket and would be reported.
            return Ok(());
        }
        let service = this.service.get();
        if this.was_abandoned(py) {
            let message = "Exception in ASGI application after its client had gone";
            service.report_fault(
                py,
                ReportedFault::Departure(&this.client(py), error),
                message,
            );
        } else {
            let message = "Exception in ASGI application\n";
            service.report_fault(py, ReportedFault::Application(Some(error)), message);
        }
        Self::fail(slf)
    }

    /// True if the client went away before the application had answered, or before it had closed its WebSocket.
    fn was_abandoned(&self, py: Python<'_>) -> bool {
        if self.is_socket() {
            return self.is_socket_over(py) && !self.was_closed_by_application(py);
        }
        self.state
            .with(py, |state| state.disconnected && !state.was_answered)
    }

    /// Releases the stream and the task, because the application has returned and the exchange has ended.
    pub(super) fn release(&self, py: Python<'_>) -> PyResult<()> {
        let (stream, task) = self
            .state
            .with(py, |state| (state.stream.take(), state.task.take()));
        if let Some(stream) = stream {
            stream.done(py);
        }
        let service = self.service.get();
        service.count_answered(py);
        let discarded = match task {
            Some(task) => service.tasks.bind(py).discard(task).map(drop),
            None => Ok(()),
        };
        // Wakes other tasks that the application has started. They wait for messages that will not come.
        discarded.and(self.wake_all(py))
    }
}
