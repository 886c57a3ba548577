//! A request: its content for the application, and the futures of calls that wait.
//!
//! This file has `receive()` and the methods that the connection calls. `response` handles the messages of the
//! application.
//!
//! At most [`BODY_HIGH_WATER`] bytes, and the data of one more event, wait for the application. Above that, reading
//! stops, so that the client has to stop sending.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::request_head::Head;
use uringcore_http::response_errors::Refusal;
use uringcore_http::ws::Socket;
use uringcore_limits::memory_budget::Charge;

use super::asgi_service::{AsgiService, ReportedFault};
use super::http_datagrams::QueuedDatagrams;
use super::http_stream::{Ending, HttpStream, Refused};
use super::receive_send_awaitables::MessageAwaitable;
use super::request_body_buffer::Body;
use super::response::Response;
use super::scope::ConnectionInfo;
use crate::capi::future_wakeup::{Waiters, wake};
use crate::capi::gil_cell::GilCell;

/// A request and its response. The application is called with its methods `receive` and `send`.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct Request {
    pub(super) service: Py<AsgiService>,
    pub(super) scope: Py<PyDict>,
    pub(super) is_head: bool,
    pub(super) state: GilCell<RequestState>,
    /// The state of a WebSocket. `None` for other requests.
    pub(super) socket: Option<Box<GilCell<Socket>>>,
    /// The received datagrams. `None` if the request has no datagrams.
    pub(super) datagrams: Option<QueuedDatagrams>,
}

pub(super) struct RequestState {
    /// The stream of the request. `None` when the application has returned.
    pub stream: Option<Arc<dyn HttpStream>>,
    /// The task of the application. `None` if the application has returned without waiting.
    pub task: Option<Py<PyAny>>,
    /// Content that has arrived and that the application has not received.
    body: Body,
    /// The memory of waiting content, or of a WebSocket's messages, that the client is charged for.
    pub charge: Charge,
    /// The memory of the scope's fields that the client is charged for.
    _fields: Charge,
    pub more_body: bool,
    /// The application has got the end of the content.
    end_reported: bool,
    pub is_paused: bool,
    /// The client waits for a response 100 (RFC 9110 section 10.1.1). It is sent when the application first calls
    /// `receive()`.
    pub continue_wanted: bool,
    /// The client has gone.
    pub disconnected: bool,
    /// The response was complete when the client went away.
    pub was_answered: bool,
    /// The server has ended the exchange before the application had answered.
    pub is_cut: bool,
    pub response: Response,
    /// The futures of calls that wait in `receive` and in `send`.
    readers: Waiters,
    writers: Waiters,
}

impl RequestState {
    /// The futures of calls that wait in `send`, or in `receive`.
    fn waiters(&mut self, writes: bool) -> &mut Waiters {
        match writes {
            true => &mut self.writers,
            false => &mut self.readers,
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(stream) = &self.stream {
            stream.traverse(visit)?;
        }
        visit.call(&self.task)?;
        let mut waiters = self.readers.iter().chain(self.writers.iter());
        waiters.try_for_each(|future| visit.call(future))
    }
}

/// The answer to a call: a value, or a wait for one.
pub(super) enum Answer<T> {
    Now(T),
    Wait,
}

#[pymethods]
impl Request {
    /// Returns the next part of the content, or ``http.disconnect`` if the client has gone.
    fn receive(slf: &Bound<'_, Self>) -> PyResult<Py<MessageAwaitable>> {
        MessageAwaitable::to_receive(slf)
    }

    /// Handles one ASGI message. Done when there is space for another message.
    fn send(slf: &Bound<'_, Self>, message: Py<PyAny>) -> PyResult<Py<MessageAwaitable>> {
        MessageAwaitable::to_send(slf, message)
    }

    /// True if the client has gone, or has cancelled the request. `send` drops messages then.
    #[getter]
    fn disconnected(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.disconnected)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.service)?;
        visit.call(&self.scope)?;
        self.state
            .traverse(|state| state.traverse(&visit))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| {
            (
                state.stream.take(),
                state.task.take(),
                std::mem::take(&mut state.readers),
                std::mem::take(&mut state.writers),
            )
        });
        drop(old);
    }
}

/// The methods that the connection calls.
impl Request {
    pub fn new(
        service: Py<AsgiService>,
        scope: Py<PyDict>,
        stream: Arc<dyn HttpStream>,
        is_head: bool,
        expects_continue: bool,
        ended: bool,
        fields: Charge,
    ) -> Self {
        let state = RequestState {
            stream: Some(stream),
            task: None,
            body: Body::default(),
            charge: fields.beside(),
            _fields: fields,
            more_body: !ended,
            end_reported: false,
            is_paused: false,
            continue_wanted: expects_continue,
            disconnected: false,
            was_answered: false,
            is_cut: false,
            response: Response::new(is_head),
            readers: Waiters::default(),
            writers: Waiters::default(),
        };
        Self {
            service,
            scope,
            is_head,
            state: GilCell::new(state),
            socket: None,
            datagrams: None,
        }
    }

    /// Makes the request a WebSocket.
    pub fn with_socket(self, socket: Socket) -> Self {
        Self {
            socket: Some(Box::new(GilCell::new(socket))),
            ..self
        }
    }

    /// Charges the client for `bytes` of a response that wait in the application, until the returned charge is dropped.
    ///
    /// The application may send one object to many clients, so at most [`UNSENT_CHARGE_MAX`] bytes are charged.
    pub(super) fn charge_unsent(&self, py: Python<'_>, bytes: usize) -> Charge {
        let mut charge = self.state.with(py, |state| state.charge.beside());
        charge.set(bytes.min(UNSENT_CHARGE_MAX));
        charge
    }

    /// Handles content that has arrived in `pieces`. With `ended` it is the last.
    pub fn content(&self, py: Python<'_>, pieces: &[Bytes], ended: bool) -> PyResult<()> {
        if let Some(taken) = self.socket_content(py, pieces, ended) {
            return taken;
        }
        let has_to_pause = self.state.with(py, |state| {
            if !state.response.is_complete() {
                state.body.push(py, pieces)?;
                state.charge.set(state.body.held_bytes());
            }
            state.more_body &= !ended;
            let pauses = state.body.len() > BODY_HIGH_WATER && !state.is_paused && state.more_body;
            state.is_paused |= pauses;
            PyResult::Ok(pauses)
        })?;
        if has_to_pause {
            self.with_stream(py, |stream| stream.pause(py));
        }
        self.wake_readers(py)
    }

    /// Handles the end of the client's interest: it has cancelled this request, or the connection has ended.
    pub fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        self.state.with(py, |state| {
            let is_whole = state.response.is_complete() && !state.is_cut;
            state.was_answered |= !state.disconnected && is_whole;
            state.disconnected = true;
            state.response.encoding = None;
            state.body = Body::Empty;
            state.charge.set(0);
        });
        self.socket_lost(py);
        self.wake_all(py)
    }

    /// Wakes the senders, because there is space for more of the response.
    pub fn writable(&self, py: Python<'_>) -> PyResult<()> {
        self.send_pongs(py);
        self.wake_writers(py)
    }

    /// Starts the application, or answers with 503 if the server is overloaded. `keep` is called between the two: the
    /// connection has to know the request before the application runs.
    pub fn call_application(
        slf: &Bound<'_, Self>,
        is_forwarded: bool,
        keep: impl FnOnce(),
    ) -> PyResult<()> {
        let py = slf.py();
        let service = slf.get().service.get();
        match service.is_overloaded(py) {
            Ok(false) => {}
            Err(error) => return Self::not_started(slf, error),
            Ok(true) => {
                service.report_fault(py, ReportedFault::Load, "Exceeded concurrency limit.");
                return Self::refuse_overload(slf);
            }
        }
        keep();
        Self::spawn(slf, is_forwarded).or_else(|error| Self::not_started(slf, error))
    }

    /// Answers a request that its HTTP version refuses, and reports the client's fault. `version` is that of the log
    /// line.
    pub fn refuse_invalid(
        slf: &Bound<'_, Self>,
        version: &str,
        head: &Head,
        refusal: Refusal,
        info: &ConnectionInfo<'_>,
    ) -> PyResult<()> {
        if refusal.is_a_fault() {
            let text = format!("Invalid {version} request received: {}.", refusal.detail);
            let service = slf.get().service.get();
            service.report_fault(slf.py(), ReportedFault::Client(&info.client), &text);
        }
        // The answer to a HEAD has no content. Without a method, the refused request may have been a HEAD.
        let detail = match head.method.is_empty() {
            true => "",
            false => refusal.detail,
        };
        Self::refuse(slf, refusal.status, detail)
    }

    /// Answers the request without calling the application.
    pub fn refuse(slf: &Bound<'_, Self>, status: u16, detail: &str) -> PyResult<()> {
        let answered = Self::respond_or_end(slf, status, detail.as_bytes());
        answered.and(slf.get().release(slf.py()))
    }

    /// Answers the request with 503, after which a TCP connection ends: connections count for the limit of concurrency.
    fn refuse_overload(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        slf.get()
            .state
            .with(py, |state| state.response.closes = true);
        Self::refuse(slf, 503, "Service Unavailable")
    }

    /// Cancels the exchange, because content for which the application waits comes too slowly.
    pub fn body_timed_out(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::content_refused(slf, 408, "Request Timeout")
    }

    /// Ends the content, because it is malformed or too slow. Sends a response with this status, or cancels the
    /// exchange if the response has begun.
    pub fn content_refused(slf: &Bound<'_, Self>, status: u16, detail: &str) -> PyResult<()> {
        let this = slf.get();
        let is_begun = this.state.with(slf.py(), |state| {
            state.is_cut = true;
            state.response.is_begun()
        });
        let answered = match is_begun {
            true => {
                this.end(slf.py(), Ending::Cancelled);
                Ok(())
            }
            false => Self::respond_or_end(slf, status, detail.as_bytes()),
        };
        answered.and(this.disconnect(slf.py()))
    }

    /// Reports that the application could not be started, and answers with 500.
    pub fn not_started(slf: &Bound<'_, Self>, error: PyErr) -> PyResult<()> {
        let py = slf.py();
        let message = "An ASGI application could not be started\n";
        let service = slf.get().service.get();
        service.report_fault(py, ReportedFault::Application(Some(error)), message);
        let failed = Self::fail(slf);
        failed.and(slf.get().release(py))
    }
}

/// Methods for `receive`.
impl Request {
    /// Returns the next message, or a wait for it.
    pub(super) fn next_message(slf: &Bound<'_, Self>) -> PyResult<Answer<Py<PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(asked) = this.next_socket_message(py) {
            return asked;
        }
        this.send_continue(py)?;
        let is_over = |state: &mut RequestState| state.disconnected || state.response.is_complete();
        if !this.state.with(py, is_over)
            && let Some(datagram) = this.next_datagram(py)?
        {
            return Ok(Answer::Now(datagram));
        }
        let part = this.state.with(py, |state| {
            if state.disconnected || state.response.is_complete() {
                return Answer::Now(None);
            }
            // After the end of the content, the caller waits for the end of the exchange.
            if state.body.is_empty() && (state.more_body || state.end_reported) {
                return Answer::Wait;
            }
            state.end_reported = !state.more_body;
            let resumes = std::mem::take(&mut state.is_paused);
            state.charge.set(0);
            Answer::Now(Some((
                std::mem::take(&mut state.body),
                state.more_body,
                resumes,
            )))
        });
        match part {
            Answer::Wait => {
                // Without datagrams, the application waits for content now.
                if this.datagrams.is_none() {
                    this.with_stream(py, |stream| stream.wait_for_body(py));
                }
                Ok(Answer::Wait)
            }
            Answer::Now(None) => {
                let message = PyDict::new(py);
                message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
                Ok(Answer::Now(message.into_any().unbind()))
            }
            Answer::Now(Some((body, more_body, resumes))) => {
                if resumes {
                    this.with_stream(py, |stream| stream.resume(py));
                }
                let message = PyDict::new(py);
                message.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
                message.set_item(intern!(py, "body"), body.into_bytes(py))?;
                message.set_item(intern!(py, "more_body"), more_body)?;
                Ok(Answer::Now(message.into_any().unbind()))
            }
        }
    }

    fn send_continue(&self, py: Python<'_>) -> PyResult<()> {
        let is_wanted = self.state.with(py, |state| {
            if !state.continue_wanted || !state.body.is_empty() || !state.more_body {
                return false;
            }
            state.continue_wanted = false;
            !state.disconnected && !state.response.is_begun()
        });
        if is_wanted {
            let fields = [(&b":status"[..], &b"100"[..])];
            match self.with_stream(py, |stream| stream.headers(py, &fields, false)) {
                Some(Err(Refused::Gone)) => self.disconnect(py)?,
                Some(Err(Refused::Failed(error))) => return Err(error),
                // The client does not accept a header section of this size, and does not need the response 100.
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a future that is set when `receive`, or with `writes` when `send`, has to try again.
    pub(super) fn waiter<'py>(&self, py: Python<'py>, writes: bool) -> PyResult<Bound<'py, PyAny>> {
        let future = self.service.get().new_future(py)?;
        // Futures that are done are removed. There are many, because frameworks check for a disconnect by calls that
        // they cancel at once.
        let mut live = self.take_waiting(py, writes).without_done(py)?;
        live.push(future.clone().unbind());
        self.state.with(py, |state| {
            // A call that began while Python code ran has added its future meanwhile.
            let waiters = state.waiters(writes);
            let later = waiters.take();
            later.for_each(|future| live.push(future));
            *waiters = live;
        });
        Ok(future)
    }

    fn take_waiting(&self, py: Python<'_>, writes: bool) -> Waiters {
        self.state
            .with(py, |state| std::mem::take(state.waiters(writes)))
    }

    pub(super) fn wake_readers(&self, py: Python<'_>) -> PyResult<()> {
        wake(py, self.take_waiting(py, false).take())
    }

    fn wake_writers(&self, py: Python<'_>) -> PyResult<()> {
        wake(py, self.take_waiting(py, true).take())
    }

    /// Wakes all callers, because the exchange has ended: those that wait for content, and those that wait for space.
    pub(super) fn wake_all(&self, py: Python<'_>) -> PyResult<()> {
        // In most exchanges no call waits at the end.
        let is_waited =
            |state: &mut RequestState| !state.readers.is_empty() || !state.writers.is_empty();
        if !self.state.with(py, is_waited) {
            return Ok(());
        }
        self.wake_readers(py)?;
        self.wake_writers(py)
    }

    /// Drops content that the application will not receive.
    pub(super) fn forget_body(&self, py: Python<'_>) {
        self.state.with(py, |state| {
            state.body = Body::Empty;
            state.charge.set(0);
        });
    }

    /// Calls `run` with the stream, which may call this request. `None` if the application has returned.
    pub(super) fn with_stream<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&dyn HttpStream) -> R,
    ) -> Option<R> {
        let stream = self.state.with(py, |state| state.stream.clone())?;
        Some(run(&*stream))
    }

    /// Lets the loop send the written data. Called when the application has written all that it has at present.
    pub(super) fn written(&self, py: Python<'_>) {
        self.with_stream(py, |stream| stream.written(py));
    }

    /// Ends the exchange early, unless it has ended.
    pub(super) fn end(&self, py: Python<'_>, ending: Ending) {
        let is_open = self.state.with(py, |state| {
            let is_open = !state.disconnected && !state.response.is_complete();
            state.is_cut |= is_open;
            state.response.complete();
            is_open
        });
        if is_open {
            self.with_stream(py, |stream| stream.end(py, ending));
        }
    }
}

/// The number of bytes of a request's content that wait for the application before reading stops.
const BODY_HIGH_WATER: usize = 256 * 1024;
/// The largest number of bytes of a waiting message that are charged to the client: the size in which Starlette reads
/// files.
const UNSENT_CHARGE_MAX: usize = 64 * 1024;
