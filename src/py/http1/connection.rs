//! `Http1Connection`: the protocol of a TCP or TLS transport, between the bytes of the transport and the applications.
//!
//! | file | content |
//! | --- | --- |
//! | `flush` | the methods that write its output |

mod flush;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::BytesMut;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::http1::{Connection, Event};
use uringcore_http::request_head::Head;
use uringcore_http::response_errors::Refusal;
use uringcore_limits::connection_limits::Admitted;
use uringcore_limits::memory_budget::{Account, Charge, Queued};
use uringcore_limits::semaphore::Semaphore;

use super::exchange::Exchange;
use crate::asgi::asgi_service::AsgiService;
use crate::asgi::open_file_permits::FileClient;
use crate::asgi::request::Request;
use crate::asgi::scope::{self, ConnectionInfo};
use crate::capi::gil_cell::GilCell;
use crate::http2::Http2Connection;
use crate::tcp::connection_info::{Ends, HasEnds, connection_info};
use crate::tcp::lower_transport::LowerTransport;
use crate::tcp::server_connections::{TcpConnection, TcpService, data_of, negotiated_protocol};
use crate::transport::native_protocol::NativeProtocol;

/// HTTP/1.1 on a server's connection. The transport of the connection has this object as its protocol.
#[pyclass(frozen, extends = NativeProtocol, module = "uringcore._uringcore")]
pub struct Http1Connection {
    service: Py<TcpService>,
    /// Permits for files that stay open while their responses wait for the client.
    pub files: Arc<Semaphore>,
    /// Permits for large messages of a WebSocket.
    messages: Arc<Semaphore>,
    /// The memory of data that waits for applications.
    queued: Arc<Queued>,
    client_ip: OnceLock<IpAddr>,
    state: GilCell<Http1State>,
}

struct Http1State {
    http: Connection,
    id: u64,
    /// Present while the connection counts for the limits of the server.
    admitted: Option<Admitted>,
    lower: Option<LowerTransport>,
    /// The current request, or the last one while its application runs.
    request: Option<(u64, Py<Request>)>,
    /// The serial number of the request to which the next events belong.
    reported: u64,
    ends: Option<Ends>,
    /// True if the transport has paused writing.
    is_writing_paused: bool,
    /// True if the connection has paused reading from the transport.
    is_paused: bool,
    is_delivering: bool,
    /// True if a call of `_proceed` is scheduled.
    will_proceed: bool,
}

/// The content of [`Event::Request`].
struct ReceivedRequest {
    serial: u64,
    head: Head,
    refusal: Option<Refusal>,
    ended: bool,
    expects_continue: bool,
    is_http10: bool,
}

#[pymethods]
impl Http1Connection {
    #[new]
    fn new(service: &Bound<'_, TcpService>) -> PyClassInitializer<Self> {
        Self::create(service)
    }

    #[getter]
    fn transport(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let lower = self.lower(py)?;
        Some(lower.object(py).clone().unbind())
    }

    fn connection_made(slf: &Bound<'_, Self>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let ends = Ends::of(transport)?;
        // Only the loop of this extension admits a connection before it makes a transport.
        let is_admitted = this.state.with(py, |state| state.admitted.is_some());
        if !is_admitted && !Self::admit(slf, ends.ip(py)) {
            return transport.call_method0(intern!(py, "abort")).map(drop);
        }
        if negotiated_protocol(transport)?.as_deref() == Some("h2") {
            return Self::become_http2(slf, transport, BytesMut::new());
        }
        let lower = LowerTransport::new(transport, Self::receive);
        let kept = Box::new(slf.clone().unbind());
        let service = this.service.get();
        let id = service.enter(slf.as_any(), kept)?;
        let is_stopping = service.is_stopping(py);
        this.state.with(py, |state| {
            if is_stopping {
                state.http.announce_stop();
            }
            if let Some(admitted) = &mut state.admitted {
                admitted.established();
            }
            state.id = id;
            state.lower = Some(lower);
            state.ends = Some(ends);
        });
        Ok(())
    }

    fn data_received(slf: &Bound<'_, Self>, data: &[u8]) -> PyResult<()> {
        Self::receive(slf.as_any(), data.into())
    }

    fn eof_received(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().with_http(slf.py(), Connection::end);
        Self::deliver(slf)
    }

    #[pyo3(signature = (exc))]
    fn connection_lost(slf: &Bound<'_, Self>, exc: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let _ = exc;
        let (id, old) = this.state.with(py, |state| {
            state.http.end();
            (state.id, (state.lower.take(), state.admitted.take()))
        });
        drop(old);
        let left = this.service.get().leave(id, slf.as_any());
        let delivered = Self::deliver(slf);
        let old = this
            .state
            .with(py, |state| (state.request.take(), state.ends.take()));
        drop(old);
        left.and(delivered)
    }

    fn pause_writing(&self, py: Python<'_>) {
        self.state.with(py, |state| state.set_writing_paused(true));
    }

    fn resume_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.state.with(py, |state| state.set_writing_paused(false));
        let resumed = match this.request(py) {
            Some(request) => request.get().writable(py),
            None => Ok(()),
        };
        // This schedules the next request, if it had to wait.
        resumed.and(Self::flush(slf))
    }

    /// Makes the current request, or the next one of a connection that was used a moment ago, the last one. A WebSocket
    /// is closed with the status code 1012 (service restart).
    fn shutdown(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.with_http(py, |http| http.stop(Instant::now()));
        let restarted = match this.request(py) {
            Some(request) if request.get().is_socket() => {
                Request::socket_restarts(request.bind(py))
            }
            _ => Ok(()),
        };
        restarted.and(Self::flush(slf))
    }

    /// Continues with the next request, which had to wait for the end of the one before.
    fn _proceed(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get()
            .state
            .with(slf.py(), |state| state.will_proceed = false);
        Self::deliver(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.service)?;
        self.state
            .traverse(|state| {
                if let Some(lower) = &state.lower {
                    lower.traverse(&visit)?;
                }
                if let Some(ends) = &state.ends {
                    ends.traverse(&visit)?;
                }
                visit.call(state.request.as_ref().map(|(_, request)| request))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self
            .state
            .with(py, |state| (state.lower.take(), state.request.take()));
        drop(old);
    }
}

/// The functions that the other files call.
impl Http1Connection {
    fn create(service: &Bound<'_, TcpService>) -> PyClassInitializer<Self> {
        let limits = service.get().limits.get();
        let state = Http1State {
            http: Connection::new(limits.http1.clone(), Instant::now()),
            id: 0,
            admitted: None,
            lower: None,
            request: None,
            reported: 0,
            ends: None,
            is_writing_paused: false,
            is_paused: false,
            is_delivering: false,
            will_proceed: false,
        };
        let connection = Self {
            service: service.clone().unbind(),
            files: Semaphore::new(limits.open_files),
            messages: Semaphore::new(limits.large_messages),
            queued: Arc::default(),
            client_ip: OnceLock::new(),
            state: GilCell::new(state),
        };
        let base = NativeProtocol::new(|object, address| {
            object
                .cast::<Self>()
                .is_ok_and(|connection| Self::admit(connection, address))
        });
        PyClassInitializer::from(base).add_subclass(connection)
    }

    pub fn with_http<R>(&self, py: Python<'_>, run: impl FnOnce(&mut Connection) -> R) -> R {
        self.state.with(py, |state| run(&mut state.http))
    }

    /// True if the sender of content has to wait.
    pub fn is_writing_paused(&self, py: Python<'_>) -> bool {
        self.state
            .with(py, |state| state.is_writing_paused && state.lower.is_some())
    }

    /// True if the process exceeds its memory budget, and this client's address holds a significant part of it.
    pub fn is_short_of_memory(&self, py: Python<'_>) -> bool {
        self.queued.is_budget_exceeded()
            && self.state.with(py, |state| {
                let admitted = state.admitted.as_ref();
                admitted.is_some_and(|admitted| admitted.holding.is_short())
            })
    }

    pub fn request(&self, py: Python<'_>) -> Option<Py<Request>> {
        self.state.with(py, |state| {
            let (_, request) = state.request.as_ref()?;
            Some(request.clone_ref(py))
        })
    }

    /// The client that is charged for open files. All clients without an address count as one.
    pub fn file_client(&self) -> FileClient {
        let ip = self.client_ip.get().copied();
        FileClient {
            block: ip.unwrap_or(Ipv6Addr::UNSPECIFIED.into()).into(),
            max: self.service.get().limits.get().process_files,
        }
    }

    /// Ends a request whose application has returned.
    pub fn request_done(slf: &Bound<'_, Self>, serial: u64) -> PyResult<()> {
        let (py, now) = (slf.py(), Instant::now());
        let (old, is_delivering) = slf.get().state.with(py, |state| {
            state.http.done(serial, now);
            let is_current = state.request.as_ref().is_some_and(|(of, _)| *of == serial);
            let old = match is_current {
                true => state.request.take(),
                false => None,
            };
            (old, state.is_delivering)
        });
        drop(old);
        match is_delivering {
            // The delivery flushes at its end.
            true => Ok(()),
            false => Self::flush(slf),
        }
    }

    /// Enforces the time-outs. The service calls this about once a second.
    fn tick(slf: &Bound<'_, Self>, now: Instant) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let Some(lower) = this.lower(py) else {
            return Ok(());
        };
        let unsent = lower.unsent_bytes(py)?;
        this.with_http(py, |http| http.tick(unsent, now));
        let ticked = match this.request(py) {
            Some(request) if request.get().is_socket() => request.get().socket_tick(py, now),
            _ => Ok(()),
        };
        ticked.and(Self::deliver(slf))
    }
}

impl Http1Connection {
    /// Counts a new connection of the server. Returns false if it exceeds a limit.
    fn admit(slf: &Bound<'_, Self>, address: Option<IpAddr>) -> bool {
        let (py, this) = (slf.py(), slf.get());
        let Some(admitted) = this.service.get().admit(py, address) else {
            return false;
        };
        this.queued.charged_to(&admitted.holding);
        if let Some(address) = address {
            // A connection is admitted once, so the value is not set yet.
            let _ = this.client_ip.set(address);
        }
        this.state.with(py, |state| state.admitted = Some(admitted));
        true
    }

    fn lower(&self, py: Python<'_>) -> Option<LowerTransport> {
        self.state.with(py, |state| {
            state.lower.as_ref().map(|lower| lower.clone_ref(py))
        })
    }

    fn asgi<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, AsgiService> {
        self.service.get().asgi.bind(py)
    }

    /// Reads bytes of the client.
    fn receive(object: &Bound<'_, PyAny>, data: BytesMut) -> PyResult<()> {
        let slf = object.cast::<Self>()?;
        let now = Instant::now();
        let input = slf.get().with_http(slf.py(), |http| {
            http.receive(data, now);
            http.take_http2()
        });
        let Some(input) = input else {
            return Self::deliver(slf);
        };
        match slf.get().lower(slf.py()) {
            Some(lower) => {
                let transport = lower.object(slf.py()).clone();
                Self::become_http2(slf, &transport, input)
            }
            None => Self::deliver(slf),
        }
    }

    /// Passes the transport on to a connection of HTTP/2, which reads `input` first.
    fn become_http2(
        slf: &Bound<'_, Self>,
        transport: &Bound<'_, PyAny>,
        input: BytesMut,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (id, admitted, lower) = this.state.with(py, |state| {
            (state.id, state.admitted.take(), state.lower.take())
        });
        if lower.is_some() {
            this.service.get().leave(id, slf.as_any())?;
        }
        Http2Connection::begin(this.service.bind(py), transport, admitted, input)
    }

    /// Passes events to the application, and writes the output.
    fn deliver(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let begins = this.state.with(py, |state| {
            let begins = !state.is_delivering && state.http.has_events();
            state.is_delivering |= begins;
            begins
        });
        if !begins {
            return Self::flush(slf);
        }
        let delivery = AsgiService::begin_delivery(this.asgi(py));
        let dispatched = Self::dispatch(slf);
        let ended = delivery.end();
        this.state.with(py, |state| state.is_delivering = false);
        dispatched.and(ended).and(Self::flush(slf))
    }

    fn dispatch(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        // An exception of one event does not prevent the delivery of the others.
        let mut outcome = Ok(());
        while let Some(event) = this.with_http(py, Connection::poll_event) {
            let handled = Self::handle(slf, event).or_else(|error| this.report(py, error));
            outcome = outcome.and(handled);
        }
        outcome
    }

    fn report(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        self.asgi(py).get().report_exception(py, "HTTP/1.1", error)
    }

    fn handle(slf: &Bound<'_, Self>, event: Event) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if let Event::Request {
            serial,
            head,
            refusal,
            ended,
            expects_continue,
            is_http10,
        } = event
        {
            let received = ReceivedRequest {
                serial,
                head,
                refusal,
                ended,
                expects_continue,
                is_http10,
            };
            return Self::begin(slf, received);
        }
        // The application of an earlier request may still be running, while this one was refused.
        let request = this.state.with(py, |state| {
            let (serial, request) = state.request.as_ref()?;
            (*serial == state.reported).then(|| request.clone_ref(py))
        });
        match (event, request) {
            (Event::Body { pieces, ended }, Some(request)) => {
                request.get().content(py, &pieces, ended)
            }
            (Event::ContentRefused(refusal), Some(request)) => {
                Request::content_refused(request.bind(py), refusal.status, refusal.detail)
            }
            (Event::Aborted, Some(request)) => request.get().disconnect(py),
            (Event::TooSlow(why), _) => this.service.get().report_slow(py, why),
            _ => Ok(()),
        }
    }

    /// Begins a request. If an exception prevents that, the request is abandoned, because nothing would answer it.
    fn begin(slf: &Bound<'_, Self>, received: ReceivedRequest) -> PyResult<()> {
        let (py, this, serial) = (slf.py(), slf.get(), received.serial);
        this.state.with(py, |state| state.reported = serial);
        if Self::answers_with_file(slf, &received) {
            return Ok(());
        }
        let made = match connection_info(py, &this.state, this.service.get()) {
            Ok(None) => return Ok(()),
            Ok(Some(info)) => {
                Self::new_request(slf, &received, &info).map(|request| (request, info))
            }
            Err(error) => Err(error),
        };
        match made {
            Ok((request, info)) => Self::start(&request, received, slf, &info),
            Err(error) => {
                this.with_http(py, |http| http.done(serial, Instant::now()));
                Err(error)
            }
        }
    }

    /// Answers a request with a file, without the application. Returns false if the application has to answer.
    fn answers_with_file(slf: &Bound<'_, Self>, received: &ReceivedRequest) -> bool {
        let (py, this) = (slf.py(), slf.get());
        let is_plain = received.refusal.is_none() && received.ended && !received.head.is_websocket;
        if !is_plain || this.is_short_of_memory(py) {
            return false;
        }
        let stream = Exchange {
            connection: slf.clone().unbind(),
            serial: received.serial,
        };
        this.asgi(py)
            .get()
            .answer_with_file(py, &received.head, &stream)
    }

    fn new_request<'py>(
        slf: &Bound<'py, Self>,
        received: &ReceivedRequest,
        info: &ConnectionInfo<'py>,
    ) -> PyResult<Bound<'py, Request>> {
        let (py, this, head) = (slf.py(), slf.get(), &received.head);
        let asgi = this.asgi(py);
        let service = asgi.get();
        let scope = scope::build(py, service, head, info)?;
        if received.is_http10 {
            scope.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?;
        }
        if head.is_websocket {
            scope::for_websocket(&scope, head)?;
            if !this.service.get().is_secure() {
                scope.set_item(intern!(py, "scheme"), intern!(py, "ws"))?;
            }
        }
        let stream = Exchange {
            connection: slf.clone().unbind(),
            serial: received.serial,
        };
        let mut fields = Charge::new(this.queued.clone());
        fields.set(head.size());
        // ASGI's method is in upper case, so an application gets `head` as HEAD, and sends no content.
        let is_head = head.method.eq_ignore_ascii_case(b"HEAD");
        let request = Request::new(
            asgi.clone().unbind(),
            scope.unbind(),
            Arc::new(stream),
            is_head,
            received.expects_continue,
            received.ended,
            fields,
        );
        let request = match &service.websockets {
            Some(limits) if head.is_websocket && received.refusal.is_none() => {
                let messages = this.messages.clone();
                request.with_socket(limits.get().socket(head, false, messages))
            }
            _ => request,
        };
        Bound::new(py, request)
    }

    /// Starts the application of a request, or answers the request if the server refuses it.
    fn start(
        request: &Bound<'_, Request>,
        received: ReceivedRequest,
        slf: &Bound<'_, Self>,
        info: &ConnectionInfo<'_>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(refusal) = received.refusal {
            return Request::refuse_invalid(request, "HTTP/1.1", &received.head, refusal, info);
        }
        if this.is_short_of_memory(py) {
            return Request::refuse(request, 503, "Service Unavailable");
        }
        Request::call_application(request, received.head.is_forwarded(), || {
            let kept = request.clone().unbind();
            let old = this
                .state
                .with(py, |state| state.request.replace((received.serial, kept)));
            drop(old);
        })
    }
}

impl HasEnds for Http1State {
    fn ends(&mut self) -> Option<&mut Ends> {
        self.ends.as_mut()
    }

    fn lower(&self) -> Option<&LowerTransport> {
        self.lower.as_ref()
    }
}

impl TcpConnection for Py<Http1Connection> {
    fn tick(&self, py: Python<'_>, now: Instant) -> PyResult<()> {
        Http1Connection::tick(self.bind(py), now)
    }

    fn announce_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.get().with_http(py, Connection::announce_stop);
        Ok(())
    }

    fn shed(&self, py: Python<'_>) -> PyResult<()> {
        // The memory is freed at the end of the loop iteration, but the budget must not count it any more.
        let admitted = self.get().state.with(py, |state| {
            state.http.shed();
            state.admitted.take()
        });
        drop(admitted);
        Http1Connection::deliver(self.bind(py))
    }

    fn data_of(&self, py: Python<'_>, account: &Arc<Account>) -> usize {
        self.get().state.with(py, |state| {
            data_of(py, state.admitted.as_ref(), state.lower.as_ref(), account)
        })
    }

    fn clone_ref(&self, py: Python<'_>) -> Box<dyn TcpConnection> {
        Box::new(Py::clone_ref(self, py))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self)
    }
}
